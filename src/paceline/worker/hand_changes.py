"""Tells what a script changes in its optimizer's groups by hand from what a scheduler does there.

Under strategies where workers are at different points of a schedule their learning rates differ by
right, and only what was done by hand can be compared. Knows groups and values; no ranks.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from paceline.worker.manifest import hyperparameters
from paceline.worker.statement import Field


class HandChanges:
    """Counts them from construction on. ``moved``: what a scheduler has changed.

    :meth:`look` before, :meth:`scheduled` after each step of a scheduler.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._known = hyperparameters(optimizer)
        self._counts: Counter[Field] = Counter()
        self.moved: set[Field] = set()

    def look(self) -> None:
        """Whatever has changed since the last call was changed by hand."""
        self._counts.update(self._changed())

    def scheduled(self) -> None:
        """Whatever has changed since the last call a scheduler has changed."""
        self.moved.update(self._changed())

    def in_group(self, number: int) -> dict[str, int]:
        """How often each of a group's hyper-parameters was changed by hand, if it was."""
        return {
            name: count for (group, name), count in sorted(self._counts.items()) if group == number
        }

    def _changed(self) -> list[Field]:
        now = hyperparameters(self._optimizer)
        if now == self._known:
            return []
        before, self._known = self._known, now
        return [
            (number, name)
            for number, (old, new) in enumerate(zip(before, now, strict=True))
            for name in {**old, **new}
            if _value(old, name) != _value(new, name)
        ]


def _value(group: dict[str, Any], name: str) -> tuple[bool, Any]:
    return name in group, group.get(name)
