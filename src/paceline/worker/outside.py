"""Changes that a script makes beside the loop and that a group could not follow: errors, not drift.

A plain loop may write to parameters, unfreeze one, or load another optimizer state at any time. In a
group such a change would be lost, or would let the replicas drift apart. Knows what may be changed
where; not when the loop looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NoReturn

from paceline.errors import MismatchError, UsageError
from paceline.worker.training import Training

_writes = attrgetter("_version")  # torch's count of the writes to a tensor


class OutsideChanges:
    """What one worker's script must leave alone. ``plane``: the plane's name."""

    def __init__(self, training: Training, plane: str) -> None:
        self._trainables = training.trainables
        self._parameters = training.parameters
        self._on_server = plane in ("server", "hybrid")
        self._alone = plane == "local"
        trained = {id(parameter) for parameter in training.parameters}
        everything = [p for group in training.optimizer.param_groups for p in group["params"]]
        self._frozen = [one for one in everything if id(one) not in trained]
        self._names = {id(p): name for name, p in training.model.named_parameters()}
        self._hook = (
            training.optimizer.register_load_state_dict_pre_hook(_refuse_load)
            if self._on_server
            else None
        )
        self.note()

    def note(self) -> None:
        """Parameters are as paceline left them."""
        if self._on_server:
            self._noted = self._written()

    def check(self) -> None:
        """Raise UsageError if the script changed what the group cannot follow."""
        if self._alone:
            return
        for parameter in self._frozen:
            if parameter.requires_grad:
                raise UsageError(
                    f"{self._names.get(id(parameter), 'a parameter')} was unfrozen after "
                    "paceline.Worker was constructed: the others do not train it. Close the worker "
                    "and make a new one after unfreezing."
                )
        if self._on_server and self._written() != self._noted:
            self._refuse_writes()

    def remove(self) -> None:
        """Look no longer."""
        if self._hook is not None:
            self._hook.remove()

    def _written(self) -> list[int]:
        """How often each parameter was written to. Looked at four times a step: keep it lean."""
        return list(map(_writes, self._parameters))

    def _refuse_writes(self) -> NoReturn:
        counts = zip(self._trainables, self._written(), self._noted, strict=True)
        name = next(one.name for one, now, noted in counts if now != noted)
        raise UsageError(
            f"{name} was changed outside worker.step(): the server holds the parameters and would "
            "overwrite it. Use strategy='sync:allreduce' for writes of your own (the same on every "
            "rank), or make a new Worker after a change."
        )


def refuse_different_groups(everyone: Sequence[dict[str, Any]]) -> None:
    """Raise MismatchError at the first hyper-parameter that differs between ranks.

    ``everyone``: facts with ``rank`` and ``groups`` (the optimizer groups' hyper-parameters).
    """
    first = everyone[0]
    for other in everyone[1:]:
        for number, (mine, theirs) in enumerate(zip(first["groups"], other["groups"], strict=True)):
            for name in mine:
                if mine[name] != theirs.get(name):
                    raise MismatchError(
                        f"{name} of optimizer group {number} is {mine[name]!r} on rank "
                        f"{first['rank']} and {theirs.get(name)!r} on rank {other['rank']}: change "
                        "hyper-parameters on every rank alike (was a scheduler stepped on one only?)."
                    )


def _refuse_load(*_: Any) -> None:
    raise UsageError(
        "optimizer.load_state_dict() was called after paceline.Worker was constructed: the server "
        "holds the optimizer's state. Load it before Worker(...)."
    )
