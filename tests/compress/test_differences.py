"""Parameters sent as differences to a copy: both sides have the same bits, and nothing is lost for ever."""

from __future__ import annotations

import pytest
import torch

from compress.models import compression, layout, views
from paceline.gradients.codecs.codec import ParcelError
from paceline.gradients.codecs.differences import Differences
from paceline.gradients.codecs.packing import Moment
from paceline.payloads import push_bytes

PULLS = ("topk:0.05", "int8", "sign", "topk:1.0")


def pair(word: str) -> tuple[Differences, Differences]:
    chosen = compression(f"{word},pull={word}").of_pulls()
    assert chosen is not None
    return Differences(chosen, layout().slots), Differences(chosen, layout().slots)


def moment(share: float = 1.0) -> Moment:
    return Moment(turn=0, share=share, unit=1.0)


def move(values: list[torch.Tensor], generator: torch.Generator) -> None:
    for value in values:
        value.add_(torch.randn(value.shape, generator=generator), alpha=0.01)


@pytest.mark.parametrize("word", PULLS)
def test_both_sides_have_the_same_bits_and_the_rest_comes_later(word: str) -> None:
    sender, receiver = pair(word)
    current, copy, mine = views(layout()), views(layout()), views(layout())
    generator = torch.Generator().manual_seed(0)
    share = [0.0, 0.4, *[1.0] * 30]
    for turn in range(len(share)):
        move(current, generator)
        parcel = sender.encode(current, copy, moment(share[turn]))
        assert parcel is not None
        receiver.add(parcel, mine)
        assert all(torch.equal(one, other) for one, other in zip(copy, mine, strict=True))
        assert torch.equal(mine[1], current[1])  # of one dimension: whole
    shapes = [(slot.shape, 4) for slot in layout().slots]
    assert len(parcel) == push_bytes(compression(word).method, shapes)
    behind = [float((one - other).norm()) for one, other in zip(current, mine, strict=True)]
    for _ in range(200):  # nothing moves any more
        parcel = sender.encode(current, copy, moment())
        assert parcel is not None
        receiver.add(parcel, mine)
    after = [float((one - other).norm()) for one, other in zip(current, mine, strict=True)]
    assert sum(after) <= 0.05 * sum(behind)  # sign comes nearer by a share of what is left


def test_whatever_is_sent_whole_is_exact() -> None:
    sender, receiver = pair("topk:1.0")
    current, copy, mine = views(layout()), views(layout()), views(layout())
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        move(current, generator)
        parcel = sender.encode(current, copy, moment())
        assert parcel is not None
        receiver.add(parcel, mine)
        assert all(torch.equal(one, other) for one, other in zip(current, mine, strict=True))


@pytest.mark.parametrize("place", [0, 1])
def test_what_is_not_finite_is_not_encoded(place: int) -> None:
    sender, _ = pair("topk:0.05")
    current, copy = views(layout()), views(layout())
    current[place].view(-1)[3] = torch.nan
    assert sender.encode(current, copy, moment()) is None


def test_a_parcel_that_no_sender_made_changes_nothing() -> None:
    sender, receiver = pair("topk:0.05")
    current, copy, mine = views(layout()), views(layout()), views(layout())
    move(current, torch.Generator().manual_seed(0))
    parcel = sender.encode(current, copy, moment())
    assert parcel is not None
    for bad in (parcel[:10], parcel[:-1], torch.cat([parcel, parcel[:8]])):
        with pytest.raises(ParcelError):
            receiver.add(bad, mine)
        assert not any(bool(one.any()) for one in mine)
    wild = parcel.clone()
    wild[16 + 4 * 72 : 16 + 8 * 72] = 0xFF  # the indices of the first matrix
    with pytest.raises(ParcelError, match="index"):
        receiver.add(wild, mine)
