"""16 bits on the wire: in range, the same on all ranks, and nothing lost without being counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from paceline.gradients.precision.wire import NarrowSums


class Ranks:
    """The ends of several ranks in one thread: a sum is made of what all have started."""

    device = torch.device("cpu")

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        self.started: list[torch.Tensor] = []
        self.types: list[torch.dtype] = []
        self.told: list[Any] = []
        self.memory = [torch.zeros(3) for _ in range(size)]
        self.ends = [NarrowSums(self, dtype) for _ in range(size)]

    def start_sum(self, tensor: torch.Tensor, on_done: Callable[[], None] | None) -> Any:
        self.types.append(tensor.dtype)
        self.told.append(on_done)
        self.started.append(tensor)
        return tensor

    def finish(self, work: Any) -> None:
        if self.started:
            total = self.started[0].clone()
            for other in self.started[1:]:
                total += other
            for one in self.started:
                one.copy_(total)
            self.started = []

    def alone(self) -> torch.Tensor:
        """The first rank's, summed with nobody, as whoever is told of its end sees it."""
        self.memory[0].fill_(3.0)
        seen: list[torch.Tensor] = []
        work = self.ends[0].start_sum(self.memory[0], lambda: seen.append(self.memory[0].clone()))
        self.told[-1]()  # gloo's thread comes first
        self.ends[0].finish(work)
        assert torch.equal(seen[0], self.memory[0])
        return seen[0]

    def sum(self, *values: list[float]) -> torch.Tensor:
        self.types = []
        works = []
        for end, memory, own in zip(self.ends, self.memory, values, strict=True):
            memory.copy_(torch.tensor(own))
            works.append(end.start_sum(memory, None))
        for end, work in zip(self.ends, works, strict=True):
            end.finish(work)
        assert torch.equal(self.memory[0], self.memory[1]) or self.memory[0].isnan().any()
        return self.memory[0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_shares_of_1e5_and_2e4_sum_to_6e4(dtype: torch.dtype) -> None:
    ranks = Ranks(2, dtype)
    for _ in range(3):
        total = ranks.sum([1e5 / 2, 1.0, 0.0], [2e4 / 2, 1.0, 0.0])
        assert total.tolist() == pytest.approx([6e4, 2.0, 0.0], rel=2**-8)
    assert ranks.types == [dtype, dtype]


def test_large_and_small_vectors_are_brought_into_fp16s_range() -> None:
    for size in (1e30, 1e-30):
        ranks = Ranks(2, torch.float16)
        for _ in range(2):
            total = ranks.sum([size, size / 1e3, 0.0], [size, size / 1e3, -0.0])
        assert ranks.types == [torch.float16] * 2
        assert total.tolist() == pytest.approx([2 * size, 2 * size / 1e3, 0.0], rel=2**-10)


def test_vectors_at_float32s_end_stay_finite() -> None:
    for size in (1e-42, 3e38):
        ranks = Ranks(2, torch.float16)
        for _ in range(3):
            total = ranks.sum([size, 0.0, -0.0], [0.0, 0.0, 0.0])
        assert total.tolist() == pytest.approx([size, 0.0, 0.0], rel=2**-10, abs=1e-40)


def test_what_becomes_zero_is_counted() -> None:
    ranks = Ranks(2, torch.float16)
    ranks.sum([1.0, 1e-12, 0.0], [1.0, 1.0, 0.0])
    assert ranks.ends[0].take_traffic().flushed == 0, "the first sum is in float32"
    total = ranks.sum([1.0, 1e-12, 0.0], [1.0, 1.0, 0.0])
    assert total[1] == 1.0
    assert [end.take_traffic().flushed for end in ranks.ends] == [1, 0]
    assert ranks.ends[0].take_traffic().flushed == 0


def test_an_overflow_is_seen_by_all_and_the_next_sum_is_in_float32() -> None:
    ranks = Ranks(2, torch.float16)
    ranks.sum([1.0, 0.0, 0.0], [1.0, 0.0, 0.0])
    assert not ranks.sum([1e6, 0.0, 0.0], [0.0, 0.0, 0.0]).isfinite().all()
    assert ranks.sum([1e6, 0.0, 0.0], [0.0, 0.0, 0.0])[0] == 1e6
    assert ranks.types == [torch.float32] * 2
    assert ranks.sum([1e6, 0.0, 0.0], [0.0, 0.0, 0.0])[0] == pytest.approx(1e6, rel=2**-10)
    assert ranks.types == [torch.float16] * 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_who_hears_of_a_sums_end_sees_it_in_float32(dtype: torch.dtype) -> None:
    ranks = Ranks(1, dtype)
    for _ in range(3):
        assert ranks.alone().tolist() == [3.0] * 3
        ranks.started = []


def test_half_the_bytes_and_other_types_as_they_are() -> None:
    ranks = Ranks(2, torch.bfloat16)
    ranks.sum([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert ranks.ends[0].take_traffic().sent_bytes == 6
    votes = torch.ones(2, dtype=torch.float64)
    ranks.ends[0].finish(ranks.ends[0].start_sum(votes, None))
    assert ranks.types[-1] == torch.float64
    assert ranks.ends[0].take_traffic().sent_bytes == 16
