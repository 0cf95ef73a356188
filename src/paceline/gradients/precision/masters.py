"""float32 copies of 16-bit parameters, which the optimizer steps in their place.

An update smaller than half a unit in the last place of a 16-bit parameter would be lost each time;
in the copy such updates add up. The optimizer holds the copies while these live, so that its state
is float32 too. Knows no planes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paceline.gradients.precision.mode import SIXTEEN_BIT
from paceline.gradients.precision.plan import wide


@dataclass(kw_only=True, slots=True)
class _Pair:
    """``seen``: torch's count of the writes to ``parameter`` when ``master`` last went into it."""

    parameter: torch.nn.Parameter
    master: torch.Tensor
    seen: int


class Masters:
    """The masters of those of ``parameters`` that have 16 bits. ``optimizer`` holds these instead
    until :meth:`close`."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, parameters: Sequence[torch.nn.Parameter]
    ) -> None:
        self._optimizer = optimizer
        self._pairs = [
            _Pair(parameter=one, master=one.detach().to(wide(one.dtype)), seen=one._version)
            for one in parameters
            if one.dtype in SIXTEEN_BIT
        ]
        for pair in self._pairs:
            state = optimizer.state.pop(pair.parameter, None)
            if state is not None:
                optimizer.state[pair.master] = widened(state)
        _replace(optimizer, {id(pair.parameter): pair.master for pair in self._pairs})

    def step(self, step: Callable[[], None]) -> None:
        """Step the masters with the gradients of the parameters, which follow.

        What the script wrote to a parameter since the last step counts.
        """
        for pair in self._pairs:
            if pair.parameter._version != pair.seen:
                pair.master.copy_(pair.parameter.detach())
            pair.master.grad = pair.parameter.grad
        step()
        for pair in self._pairs:
            pair.master.grad = None
            pair.parameter.detach().copy_(pair.master)
            pair.seen = pair.parameter._version

    def close(self) -> None:
        """Give the optimizer its parameters back, with a state that it can go on from."""
        _replace(self._optimizer, {id(pair.master): pair.parameter for pair in self._pairs})
        for pair in self._pairs:
            state = self._optimizer.state.pop(pair.master, None)
            if state is not None:
                self._optimizer.state[pair.parameter] = narrowed(state, pair.parameter.dtype)
        self._pairs = []


def widened(state: dict[str, Any]) -> dict[str, Any]:
    """An optimizer's state of a 16-bit parameter as that of its master."""
    return {key: value.float() if _is_16_bit(value) else value for key, value in state.items()}


def narrowed(state: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """A master's state as that of its parameter: torch's optimizers mix no types."""
    return {
        key: value.to(dtype) if _is_elementwise(value) else value for key, value in state.items()
    }


def _is_16_bit(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in SIXTEEN_BIT


def _is_elementwise(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0 and value.is_floating_point()


def _replace(optimizer: torch.optim.Optimizer, others: dict[int, torch.Tensor]) -> None:
    for group in optimizer.param_groups:
        group["params"][:] = [others.get(id(one), one) for one in group["params"]]
