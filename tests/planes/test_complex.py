"""Complex parameters on the collective plane: judged, summed and measured by their real parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from paceline.compression import parse_compression
from paceline.errors import UsageError
from paceline.gradients.norms import clip_by_norm, sum_of_squares, sum_of_values
from paceline.gradients.precision.plan import Precision
from paceline.strategies import parse_strategy
from paceline.transport.collective import Group
from paceline.worker.manifest import trainable
from paceline.worker.planes import refuse
from paceline.worker.training import Training


class Wire:
    """What gloo was given to sum."""

    def __init__(self) -> None:
        self.given: list[torch.Tensor] = []

    def allreduce(self, tensors: list[torch.Tensor]) -> None:
        self.given += tensors
        tensors[0].mul_(2)


def test_a_sum_is_of_real_numbers_in_the_same_memory() -> None:
    group: Any = object.__new__(Group)
    group.device, group._world_size, group._group = torch.device("cpu"), 2, Wire()
    values = torch.tensor([1 + 2j, 3 - 4j])
    group.start_sum(values)
    assert group._group.given[0].tolist() == [2, 4, 6, -8]
    assert values.tolist() == [2 + 4j, 6 - 8j]


def test_sums_and_norms_are_real() -> None:
    values = torch.tensor([1 + 2j, 3 - 4j])
    assert sum_of_values(values) == 2.0
    assert sum_of_squares(values) == pytest.approx(30.0)
    for bad in (complex("nan"), complex(0, float("inf"))):
        assert not torch.isfinite(torch.tensor(sum_of_values(torch.tensor([1j, bad]))))


@pytest.mark.parametrize("limit", [None, 1.0])
def test_clipping_is_torchs(limit: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [((3, 2), torch.complex64), ((4,), torch.float32)]
    mine, theirs = (
        [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape, dtype in shapes] for _ in range(2)
    )
    for one, other, (shape, dtype) in zip(mine, theirs, shapes, strict=True):
        one.grad = torch.randn(shape, dtype=dtype, generator=generator)
        other.grad = one.grad.clone()
    norm = nn.utils.clip_grad_norm_(theirs, limit or float("inf"))
    assert clip_by_norm(mine, limit) == pytest.approx(float(norm), rel=1e-6)
    for one, other in zip(mine, theirs, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)


@pytest.mark.parametrize(
    "given",
    [
        {"compress": parse_compression("int8")},
        {"precision": Precision(reduce=torch.bfloat16)},
        {"precision": Precision(accumulate=torch.float16)},
    ],
)
def test_what_is_for_real_numbers_is_refused(given: dict[str, Any]) -> None:
    model = nn.Linear(2, 1, dtype=torch.complex64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = Training(
        model=model, optimizer=optimizer, trainables=trainable(model, optimizer),
        strategy=parse_strategy("sync:allreduce"), **given,
    )  # fmt: skip
    with pytest.raises(UsageError, match=r"complex parameters \(weight\) cannot work together"):
        refuse("allreduce", training)
