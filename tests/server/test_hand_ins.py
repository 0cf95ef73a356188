"""Whose turn it is to write a checkpoint, without anybody waiting."""

from __future__ import annotations

from paceline.server.hand_ins import HandIns
from paceline.transport.messages import HandedIn, HandIn


def hand_in(own: HandIns, rank: int, number: int, *, live: set[int] | None = None) -> HandedIn:
    part = HandIn(
        pass_id=0, number=number, together=live is not None, part=b"%d of %d" % (number, rank)
    )
    return own.add(rank, part, live or set())


def test_together_the_last_one_writes_with_everybodys_parts() -> None:
    own, everybody = HandIns(), {0, 1, 2}
    assert not hand_in(own, 2, 1, live=everybody).turn
    assert not hand_in(own, 0, 1, live=everybody).turn
    last = hand_in(own, 1, 1, live=everybody)
    assert (last.turn, last.ranks) == (True, [0, 1, 2])
    assert last.parts == [b"1 of 0", b"1 of 1", b"1 of 2"]


def test_together_a_dead_one_is_not_awaited_and_numbers_do_not_mix() -> None:
    own = HandIns()
    assert not hand_in(own, 0, 1, live={0, 1}).turn
    assert not hand_in(own, 0, 2, live={0, 1}).turn
    assert hand_in(own, 1, 2, live={0, 1}).parts == [b"2 of 0", b"2 of 1"]
    assert hand_in(own, 0, 3, live={0}).turn


def test_together_what_a_worker_that_broke_off_leaves_open_does_not_pile_up() -> None:
    own = HandIns()
    for number in range(100):
        assert not hand_in(own, 0, number, live={0, 1}).turn
    assert len(own._open) <= 5


def test_elsewhere_the_first_one_writes_and_the_others_bring_their_parts_for_the_next() -> None:
    own = HandIns()
    assert hand_in(own, 1, 1).ranks == [1]
    assert not hand_in(own, 0, 1).turn
    second = hand_in(own, 0, 2)
    assert (second.turn, second.parts) == (True, [b"2 of 0", b"1 of 1"])
    assert not hand_in(own, 1, 2).turn
