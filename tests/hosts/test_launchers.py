"""The launchers of several hosts: who is refused at the meeting, and what of a worker that never joins."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hosts.conftest import Places
from hosts.remote_stand_in import RemoteStandIn
from hosts.test_remote_plane import VALUES, crew, end, heard, together
from paceline.errors import UsageError
from paceline.launch.hosts import Hosts
from paceline.launch.meeting import Elsewhere, meet
from paceline.launch.observer import Observer, observe
from paceline.launch.request import RunRequest
from paceline.launch.same_run import launcher_of
from paceline.launch.summary import NoticeResult
from paceline.server.launchers import Launchers
from paceline.transport import messages
from paceline.transport.addresses import Remote
from paceline.transport.framing import FrameError
from paceline.transport.messages import Launcher, ProcessEnded
from server.stand_in import StandIn
from server.stand_in import observe as watch

FIRST = Launcher(number=0, ranks=[0], said={"script": "train.py", "resume": "nothing"})
SECOND = Launcher(number=1, ranks=[1], said=FIRST.said)


class Wire:
    """A line that is open until it is not."""

    open = True


def met(*launchers: Launcher) -> tuple[Launchers, list[Any]]:
    book, lines = Launchers(), [Wire() for _ in launchers]
    for line, launcher in zip(lines, launchers, strict=True):
        assert book.objection(launcher) == ""
        book.came(line, launcher)  # type: ignore[arg-type]
    return book, lines


def test_a_host_that_was_asked_for_another_run_is_refused_with_both_values() -> None:
    book, _ = met(FIRST)
    other = Launcher(
        number=1, ranks=[1], said={**FIRST.said, "resume": "a checkpoint of version 7"}
    )
    said = book.objection(other)
    assert "resume='a checkpoint of version 7': host 0 of this run has 'nothing'" in said
    more = Launcher(number=1, ranks=[1], said={**FIRST.said, "strategy": "async"})
    assert "strategy='async': host 0 of this run has 'nothing'" in book.objection(more)
    assert book.objection(SECOND) == book.objection(None) == ""


def test_a_second_host_of_the_same_number_is_refused_unless_the_first_has_gone() -> None:
    book, lines = met(FIRST, SECOND)
    assert "node_rank=1" in book.objection(SECOND)
    lines[1].open = False
    assert book.objection(SECOND) == ""
    with pytest.raises(FrameError, match="not here yet"):
        Launchers().objection(SECOND)


def test_whose_worker_ended_is_known_from_its_own_launcher_alone() -> None:
    book, (_, second) = met(FIRST, SECOND)
    assert book.cause([0, 1]) == ""
    book.ended(second, ProcessEnded(rank=1, text="rank 1 failed with exit code 1"))
    assert book.cause([1]) == "rank 1 failed with exit code 1, before it made its paceline.Worker"
    assert book.cause([0]) == ""
    with pytest.raises(FrameError, match="rank 0 is not its worker"):
        book.ended(second, ProcessEnded(rank=0, text=""))
    book.hung_up(second)
    assert "exit code 1" in book.cause([1]), "what it said is not forgotten"


def test_with_a_launcher_its_workers_are_lost() -> None:
    book, lines = met(FIRST, SECOND)
    book.hung_up(lines[1])
    assert "rank 1 is lost (the launcher of host 1 is gone)" in book.cause([0, 1])


def test_launchers_compare_what_must_be_equal(tmp_path: Path) -> None:
    script, cluster = tmp_path / "train.py", tmp_path / "cluster.toml"
    script.touch()
    cluster.write_text("workers = 2\n")
    hosts = Hosts(count=2, number=1, server=Remote(host="127.0.0.1", port=1), key=None)
    request = RunRequest(
        script=script, workers=3, hosts=hosts, strategy="async", overrides={"clip_norm": 2.0},
        emulate=cluster, args=("--data", "/here"),
    )  # fmt: skip
    launcher = launcher_of(request)
    assert (launcher.number, launcher.ranks) == (1, [3, 4, 5])
    wanted = {
        "nnodes": "2",
        "workers": "3",
        "script": "train.py",
        "strategy": "async",
        "clip_norm": "2.0",
    }
    assert wanted.items() <= launcher.said.items()
    assert "digest" in launcher.said["emulate"]
    assert "/here" not in str(launcher.said), (
        "a script's own arguments may differ from host to host"
    )


# ------------------------------------------------------------------------------ over the loopback


@pytest.fixture
def launchers(places: Places) -> Iterator[list[Observer]]:
    """Host 0's and host 1's, with rank 0 and rank 1."""
    both = [
        observe(places.near, FIRST, workers=2),
        observe(places.far, SECOND, workers=2, key=places.key),
    ]
    yield both
    for one in both:
        one.close()


def late(places: Places, rank: int) -> None:
    """A worker that comes after all is told to stop; the server ends once all have been here."""
    worker = StandIn(places.near, rank, 2)
    assert "before it made its paceline.Worker" in worker.welcome.text
    worker.leave()


def test_who_waits_for_a_worker_that_failed_on_another_host_is_stopped(
    places: Places, launchers: list[Observer]
) -> None:
    near = StandIn(places.near, 0, 2)
    launchers[1].ended(1, "rank 1 failed with exit code 1")
    stop = near.control.receive(5.0)
    assert isinstance(stop, messages.Stop)
    assert stop.text == "rank 1 failed with exit code 1, before it made its paceline.Worker"
    near.leave()
    late(places, 1)


@pytest.mark.full
def test_who_comes_after_it_has_failed_is_stopped_too(
    places: Places, launchers: list[Observer]
) -> None:
    launchers[0].ended(0, "rank 0 finished")  # on the server's own host, for a worker elsewhere
    far = RemoteStandIn(places.far, 1, 2, key=places.key)
    assert "rank 0 finished, before it" in far.control.receive(5.0).text
    far.leave()
    late(places, 0)


def test_a_launcher_that_is_gone_takes_its_workers_with_it(
    places: Places, launchers: list[Observer]
) -> None:
    near = StandIn(places.near, 0, 2)
    launchers[1].close()
    assert "the launcher of host 1 is gone" in near.control.receive(5.0).text
    near.leave()
    late(places, 1)


def test_workers_that_end_after_they_have_joined_stop_nobody(
    places: Places, launchers: list[Observer]
) -> None:
    near, far = crew(places, (False, True), "async")
    launchers[1].ended(1, "rank 1 finished")
    far.leave()
    launchers[1].close()
    near.open_pass(1)
    time.sleep(0.3)
    assert isinstance(near.ask(messages.Ready()), messages.Started)
    near.push(VALUES)
    near.leave()


def test_a_launcher_of_another_run_hears_why_and_the_run_does_not(
    places: Places, launchers: list[Observer]
) -> None:
    other = Launcher(number=1, ranks=[1], said={"script": "other.py"})
    with pytest.raises(UsageError, match=r"node_rank=1: .* has a host 1 already"):
        observe(places.far, other, workers=2, key=places.key)
    crew_of_two = crew(places, (False, True), "async")
    end(crew_of_two)


# ----------------------------------------------------------------------------------- the meeting


def hosts_at(port: int, key: Path | None = None) -> Hosts:
    return Hosts(count=2, number=1, server=Remote(host="127.0.0.1", port=port), key=key)


def meeting(port: int, *, for_s: float, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], float]:
    """What is said in a meeting with nobody that is given up after a while; how long it then took."""
    monkeypatch.setattr("paceline.launch.meeting.FIRST_WORD_AFTER_S", 0.0)
    monkeypatch.setattr("paceline.launch.meeting.AGAIN_AFTER_S", 0.05)
    monkeypatch.setattr("paceline.launch.meeting.ANSWERS_WITHIN_S", 0.2)
    said: list[str] = []
    by_s = time.monotonic() + for_s
    found = meet(
        hosts_at(port), SECOND, workers=2, given_up=lambda: time.monotonic() > by_s, say=said.append
    )
    assert found is None
    return said, time.monotonic() - by_s


def test_why_host_0_does_not_answer_is_said_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    said, _ = meeting(port, for_s=0.2, monkeypatch=monkeypatch)
    assert len(said) == 1
    assert f"no server at tcp://127.0.0.1:{port}" in said[0]
    assert "refused" in said[0]


def test_a_peer_that_accepts_and_is_silent_does_not_hold_up_ctrl_c(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        said, late_s = meeting(listener.getsockname()[1], for_s=0.1, monkeypatch=monkeypatch)
    assert "no handshake within" in said[0]
    assert late_s < 1.0


def test_strangers_that_say_nothing_make_room(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.server.remote.MOST_STRANGERS", 3)
    strangers = [socket.create_connection(("127.0.0.1", places.port)) for _ in range(6)]
    end(crew(places, (False, True), "async"))
    for one in strangers:
        one.close()


@pytest.mark.parametrize("leader_left", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_groups_member_that_dies_is_noted_so_that_host_0_may_leave(
    places: Places, leader_left: bool
) -> None:
    watcher = watch(places.near, 4)
    near = [StandIn(places.near, rank, 4) for rank in (0, 1)]
    far = [RemoteStandIn(places.far, rank, 4, key=places.key) for rank in (2, 3)]
    groups = [[0, 1], [2, 3]]
    openings = [one.opening(VALUES, "async", groups=groups) for one in (*near, *far)]
    pairs = list(zip((*near, *far), openings, strict=True))
    together([lambda one=one, said=said: one.ask(said) for one, said in pairs])
    if leader_left:
        far[0].leave()
    far[1].close()
    said = []
    while not said or (said[-1].kind, said[-1].rank) != ("died", 3):
        said.append(watcher.receive(5.0))
    if not leader_left:
        said.append(heard(watcher, "followed"))
        far[0].leave()
    there = [NoticeResult(time_s=0.0, kind=one.kind, rank=one.rank, text=one.text) for one in said]
    assert Elsewhere([0, 1], lambda: 1.0).over(there)
    end(near)
    watcher.close()
