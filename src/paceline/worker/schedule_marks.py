"""A point to which learning-rate schedulers can go back, with the hyper-parameters as they were there.

Needed where workers go ahead on what others are expected to compute. Knows schedulers and their
optimizers' groups; not why anybody goes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from paceline.errors import UsageError

Values = dict[str, Any]


class Mark:
    """Where ``schedulers`` stand now, at ``progress``. Raises UsageError if one has no state to go back to."""

    def __init__(self, schedulers: Sequence[LRScheduler], progress: int) -> None:
        self.progress = progress
        self._states = [(one, _state_of(one)) for one in schedulers]
        optimizers = {id(one.optimizer): one.optimizer for one in schedulers}.values()
        self._groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        self._values = [_values(group) for group in self._groups]
        self.note()

    def note(self) -> None:
        """What the groups hold now is the schedulers' work."""
        self._left = [_values(group) for group in self._groups]

    def touched(self) -> bool:
        """Whether somebody else has changed a group since. Going back would undo that, too."""
        pairs = zip(self._groups, self._left, strict=True)
        return any(not _equal(_values(group), left) for group, left in pairs)

    def go_back(self) -> None:
        """Everything is as it was."""
        for group, values in zip(self._groups, self._values, strict=True):
            for name, value in values.items():
                _put(group, name, value)
        for scheduler, state in self._states:
            scheduler.load_state_dict(state)


def _state_of(scheduler: LRScheduler) -> Values:
    if not hasattr(scheduler, "state_dict") or not hasattr(scheduler, "load_state_dict"):
        raise UsageError(
            f"worker.scheduler({type(scheduler).__name__}): under local:H and diloco:H a schedule may have "
            "to go back, when others computed less than was expected. Give it state_dict and "
            "load_state_dict, as torch.optim.lr_scheduler's have."
        )
    state: Values = _copied(scheduler.state_dict())
    return state


def _copied(value: Any) -> Any:
    """The containers that a scheduler may change in place, and not what they hold."""
    if type(value) is dict:
        return {key: _copied(one) for key, one in value.items()}
    return [_copied(one) for one in value] if type(value) is list else value


def _values(group: Values) -> Values:
    return {
        name: value.clone() if isinstance(value, torch.Tensor) else value
        for name, value in group.items()
        if name not in ("params", "param_names")
    }


def _equal(one: Values, other: Values) -> bool:
    return one.keys() == other.keys() and all(_same(value, other[at]) for at, value in one.items())


def _same(one: Any, other: Any) -> bool:
    tensors = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
    return torch.equal(one, other) if tensors else bool(one == other)


def _put(group: Values, name: str, value: Any) -> None:
    """Where a tensor is (``capturable``) the optimizer's compiled step may know it: it stays."""
    if isinstance(value, torch.Tensor) and isinstance(group.get(name), torch.Tensor):
        group[name].copy_(value)
    else:
        group[name] = value
