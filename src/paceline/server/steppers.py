"""A torch optimizer for each tile, and their states as those of the parameters that the user knows.

Steps have the bits of the plain loop: the same optimizer class with the same flags. Decides nothing,
knows no pushes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from paceline.errors import UsageError
from paceline.gradients.layout import FlatLayout, Slot
from paceline.server.tiles import Tile
from paceline.transport.messages import OptimizerSpec

UNSUPPORTED = {
    "LBFGS": "it evaluates the loss several times a step",
    "SparseAdam": "it needs sparse gradients",
}
_SCALARS = {"step", "mu_product", "eta", "mu"}
"""What torch's elementwise optimizers keep once a parameter; all else they keep once an element."""

State = dict[str, Any]


class Stepper:
    """The optimizer of one tile. ``hyper``: its group's hyper-parameters."""

    def __init__(self, name: str, hyper: dict[str, Any], like: torch.Tensor) -> None:
        self._parameter = like.detach()
        cls = cast("type[Any]", getattr(torch.optim, name))
        self._optimizer: torch.optim.Optimizer = cls([{**hyper, "params": [self._parameter]}])
        # Without the wrapper for profiling and hooks: 11 us a tile in which no other thread runs.
        self._step = getattr(cls.step, "__wrapped__", cls.step)

    @property
    def state(self) -> State:
        """What the optimizer keeps; empty before its first step."""
        return cast("State", self._optimizer.state.get(self._parameter, {}))

    @state.setter
    def state(self, state: State) -> None:
        if state:
            self._optimizer.state[self._parameter] = state

    def set_hyper(self, hyper: dict[str, Any]) -> None:
        """From now on the group has these hyper-parameters."""
        self._optimizer.param_groups[0].update(hyper)

    def step(self, parameter: torch.Tensor, gradient: torch.Tensor, lr_scale: float) -> None:
        """Step ``parameter`` in place; the learning rate is multiplied for this step only."""
        own, group = self._parameter, self._optimizer.param_groups[0]
        own.data, own.grad = parameter, gradient
        rate = group["lr"]
        group["lr"] = rate if lr_scale == 1 else rate * lr_scale
        try:
            self._step(self._optimizer)
        finally:
            group["lr"] = rate
            own.grad = None


def hyperparameters(spec: OptimizerSpec) -> list[dict[str, Any]]:
    """Each group's, with torch's defaults for what is not given.

    Raises :class:`UsageError` for a class that is not in ``torch.optim`` or cannot work here.
    """
    _check_supported(spec)
    groups = [{**tuples(hyper), "params": [torch.zeros(1)]} for hyper in spec.groups]
    optimizer = cast("type[Any]", getattr(torch.optim, spec.name))(groups)
    return [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]


def _check_supported(spec: OptimizerSpec) -> None:
    if spec.name in UNSUPPORTED:
        raise UsageError(
            f"optimizer={spec.name}: cannot live on the server: {UNSUPPORTED[spec.name]}. "
            "Use strategy='sync:allreduce', or another optimizer."
        )
    cls = getattr(torch.optim, spec.name, None)
    if not (isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer)):
        raise UsageError(
            f"optimizer={spec.name}: expected a class of torch.optim on the server plane. "
            "Use strategy='sync:allreduce', which runs your own optimizer in each worker."
        )


def tuples(hyper: dict[str, Any]) -> dict[str, Any]:
    """Tuples (``betas``) became lists on their way here."""
    return {key: tuple(v) if isinstance(v, list) else v for key, v in hyper.items()}


# --------------------------------------------------------------------- states: parameters, tiles


def scalars(state: State) -> tuple[Any, ...]:
    """What has to be equal in states for their parameters to share a tile."""
    return tuple(sorted((key, float(state[key]) if key in _SCALARS else None) for key in state))


def state_of_tile(tile: Tile, layout: FlatLayout, states: dict[int, State]) -> State:
    """The tile's state out of its parameters' ``states`` (by place; all have the same scalars)."""
    first = states.get(tile.places[0], {})
    if tile.slot is not None:
        return first
    return {
        key: _copy(value) if _is_shared(key, value) else _flat_part(key, tile, layout, states)
        for key, value in first.items()
    }


def state_of_slot(
    place: int, layout: FlatLayout, tiles: Sequence[Tile], states: Sequence[State]
) -> State:
    """A parameter's state out of those of the tiles it lies in."""
    slot = layout.slots[place]
    own = [(t, s) for t, s in zip(tiles, states, strict=True) if place in t.places and s]
    if not own:
        return {}
    first_tile, first = own[0]
    if first_tile.slot is not None:
        return first
    return {
        key: _copy(value) if _is_shared(key, value) else _shaped(slot, key, own)
        for key, value in first.items()
    }


def _is_shared(key: str, value: Any) -> bool:
    return key in _SCALARS or not isinstance(value, torch.Tensor)


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _flat_part(key: str, tile: Tile, layout: FlatLayout, states: dict[int, State]) -> torch.Tensor:
    """The tile's piece of the parameters' tensors, laid out as they are in memory."""
    like = states[tile.places[0]][key]
    memory = torch.zeros(tile.stop - tile.start, dtype=torch.uint8).view(like.dtype)
    for place in tile.places:
        slot = layout.slots[place]
        flat = torch.zeros(slot.span_bytes // like.itemsize, dtype=like.dtype)
        flat.as_strided(slot.shape, slot.stride).copy_(states[place][key])
        start, stop = _overlap(slot, tile)
        size = like.itemsize
        memory[(start - tile.start) // size : (stop - tile.start) // size] = flat[
            (start - slot.offset_bytes) // size : (stop - slot.offset_bytes) // size
        ]
    return memory


def _shaped(slot: Slot, key: str, own: Sequence[tuple[Tile, State]]) -> torch.Tensor:
    """The parameter's tensor, in its shape, out of the tiles' flat ones."""
    size = slot.dtype.itemsize
    pieces = []
    for tile, state in own:
        start, stop = _overlap(slot, tile)
        pieces.append(state[key][(start - tile.start) // size : (stop - tile.start) // size])
    return torch.cat(pieces).as_strided(slot.shape, slot.stride)


def _overlap(slot: Slot, tile: Tile) -> tuple[int, int]:
    start = max(slot.offset_bytes, tile.start)
    return start, max(start, min(slot.offset_bytes + slot.span_bytes, tile.stop))
