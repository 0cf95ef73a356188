"""A remote worker's side: which bucket leaves when, and where parameters are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from paceline.compression import parse_compression
from paceline.gradients.layout import layout_of
from paceline.transport.framing import FrameError
from paceline.transport.messages import GLANCE, WINDOW, Filled, Push
from paceline.worker.payload_ways import AsFrames, ReceivedParameters

BUCKETS = 3


class Recorder:
    """Stands for session, channel and gradients: writes down what is sent, in order."""

    rank = 1

    def __init__(self) -> None:
        self.sent: list[object] = []
        self.buffer, self.region = self, self
        self.memory = torch.zeros(0, dtype=torch.uint8)
        self.vectors = [torch.full((4,), float(number)) for number in range(BUCKETS)]

    def post(self, number: int, memory: memoryview) -> None:
        assert memory.nbytes == 16
        self.sent.append(number)

    def post_message(self, message: object) -> None:
        self.sent.append(message)

    def request(self, message: Any) -> None:
        self.sent.append("push" if message.weight else "empty push")


def way(recorder: Any, *, ahead: bool, early: bool) -> AsFrames:
    return AsFrames(recorder, recorder, recorder, received([]), ahead=ahead, early=early)


def received(
    parameters: list[nn.Parameter],
    pull: str | None = None,
    carried: Callable[[int, float], None] = lambda *_: None,
) -> ReceivedParameters:
    clock_s = iter(range(100)).__next__
    compression = None if pull is None else parse_compression(pull)
    return ReceivedParameters(parameters, _layout(), compression, clock_s=clock_s, carried=carried)


def pushing(weight: float, parcel: bytes | None = None) -> Push:
    return Push(
        weight=weight, unit=1.0, used=b"", bad="", norm=0.0, stop=False, total=None, groups=None,
        parcel=parcel,
    )  # fmt: skip


def _layout() -> Any:
    return layout_of([("a", (2, 3), (3, 1), torch.float32), ("b", (5,), (1,), torch.float32)])


def test_buckets_leave_as_they_fill_each_once_and_the_rest_with_the_push() -> None:
    seen = Recorder()
    frames = way(seen, ahead=False, early=True)
    for _ in range(2):
        frames.filled(1)
        frames.filled(2)
        frames.push(pushing(1.0))
    assert seen.sent == [0, 1, 2, "push"] * 2


def test_where_the_server_sums_ahead_it_is_told_after_the_bytes() -> None:
    seen = Recorder()
    frames = way(seen, ahead=True, early=True)
    frames.filled(2)
    frames.push(pushing(1.0))
    assert seen.sent == [0, 1, Filled(buckets=2), 2, "push"]


def test_gradients_that_are_changed_after_backward_wait_for_the_push() -> None:
    seen = Recorder()
    frames = way(seen, ahead=False, early=False)
    frames.filled(2)
    frames.push(pushing(1.0))
    assert seen.sent == [0, 1, 2, "push"]


def test_an_empty_push_has_no_buckets_and_the_next_window_has_all() -> None:
    seen = Recorder()
    frames = way(seen, ahead=False, early=True)
    frames.filled(1)
    frames.push(pushing(0.0))
    frames.push(pushing(1.0))
    assert seen.sent == [0, "empty push", 0, 1, 2, "push"]


def test_a_compressed_push_travels_alone() -> None:
    seen = Recorder()
    frames = way(seen, ahead=False, early=False)
    frames.filled(2)
    frames.push(pushing(1.0, parcel=b"encoded"))
    assert seen.sent == ["push"]


def test_parameters_are_shown_where_they_came_and_survive_the_run() -> None:
    parameters = [nn.Parameter(torch.zeros(2, 3)), nn.Parameter(torch.zeros(5))]
    layout = _layout()
    carried: list[tuple[int, float]] = []
    shown = received(parameters, carried=lambda *one: carried.append(one))
    for place, value in ((WINDOW, 1.0), (GLANCE, 2.0)):
        room = shown.room(place, layout.total_bytes)
        torch.frombuffer(room, dtype=torch.float32).fill_(value)
    shown.show(17)
    assert bool((parameters[0] == 1).all())
    with shown.showing(18):
        assert bool((parameters[1] == 2).all())
    assert bool((parameters[1] == 1).all())
    assert carried == [(layout.total_bytes, 1)]  # what came last before it was shown
    assert parameters[1].untyped_storage().nbytes() == 20  # torch.save writes whole storages
    shown.release()
    torch.frombuffer(shown.room(WINDOW, layout.total_bytes), dtype=torch.float32).fill_(9.0)
    assert bool((parameters[0] == 1).all())


@pytest.mark.parametrize(("place", "more"), [(2, 0), (WINDOW, 64), (GLANCE, -64)])
def test_parameters_of_another_size_have_no_room(place: int, more: int) -> None:
    layout = _layout()
    with pytest.raises(FrameError, match="the model has"):
        received([]).room(place, layout.total_bytes + more)
