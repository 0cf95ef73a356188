"""Momentum per worker: each keeps that of its own gradients, and what it pushes has it in.

Momentum that all workers share on the server is fed with everyone's gradients of the past: delay
and memory add up, as at a larger learning rate. Which form it has is
:mod:`paceline.worker.momentum_forms`'s business; this knows no clip, no warm-up and no message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from paceline.worker.manifest import Trainable
from paceline.worker.momentum_forms import MomentumForm


class OwnMomentum:
    """Turns this worker's gradients (``views``, in the order of ``trainables``) into what it pushes.

    It begins with what ``optimizer`` holds. ``workers``: so many push to the server's optimizer.
    """

    def __init__(
        self,
        form: MomentumForm,
        optimizer: torch.optim.Optimizer,
        trainables: Sequence[Trainable],
        views: Sequence[torch.Tensor],
        workers: int,
    ) -> None:
        self.keeps_state = form.whole
        self._form = form
        self._optimizer = optimizer
        self._trainables = trainables
        self._views = views
        self._workers = workers
        self._kept = [
            _held(optimizer.state.get(one.parameter, {}).get(form.key), view)
            for one, view in zip(trainables, views, strict=True)
        ]

    @torch.no_grad()
    def turn(self, used: bytes) -> None:
        """In place, the gradients of the ``used`` parameters (one byte each): means, clipped."""
        for number, group in enumerate(self._optimizer.param_groups):
            places = [
                place
                for place, one in enumerate(self._trainables)
                if one.group == number and used[place]
            ]
            if places:
                self._turn(places, group)

    def forget(self) -> None:
        """Begin again: what was pushed last was not applied."""
        self._kept = [None] * len(self._kept)

    def show(self) -> None:
        """Let the optimizer hold it, as if it had stepped by itself."""
        for one, kept in zip(self._trainables, self._kept, strict=True):
            if kept is not None:
                state = self._optimizer.state.get(one.parameter, {})
                self._optimizer.state[one.parameter] = {**state, self._form.key: kept}

    def state(self) -> dict[str, dict[str, Any]]:
        """By parameter name, as the optimizer would hold it."""
        pairs = zip(self._trainables, self._kept, strict=True)
        return {one.name: {self._form.key: kept} for one, kept in pairs if kept is not None}

    def servers(self, group: dict[str, Any]) -> dict[str, Any]:
        """What is done here is not done there."""
        return self._form.left(group, self._workers)

    def _turn(self, places: Sequence[int], group: Mapping[str, Any]) -> None:
        gradients = [self._views[place] for place in places]
        parameters: list[torch.Tensor] = [self._trainables[place].parameter for place in places]
        self._form.decay(gradients, parameters, group)
        self._form.turn(gradients, [self._kept_at(place) for place in places], group)

    def _kept_at(self, place: int) -> torch.Tensor:
        kept = self._kept[place]
        if kept is None:
            kept = self._kept[place] = self._form.begin(self._views[place])
        return kept


def _held(state: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor | None:
    return None if state is None else torch.empty_like(like).copy_(state)
