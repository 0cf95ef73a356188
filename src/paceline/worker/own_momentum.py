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

COUNT = "own_step"
"""In an optimizer's state, beside its own keys: how many gradients this worker has taken in."""


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
        states = [optimizer.state.get(one.parameter, {}) for one in trainables]
        self._kept = [_copy(s.get(form.key), v) for s, v in zip(states, views, strict=True)]
        self._counts = [_count(state, form.key) for state in states]

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
        self._kept = [torch.zeros_like(view) for view in self._views]
        self._counts = [0] * len(self._views)

    def show(self) -> None:
        """Let the optimizer hold it, as if it had stepped by itself."""
        for place, one in enumerate(self._trainables):
            if own := self._state(place):
                state = self._optimizer.state.get(one.parameter, {})
                self._optimizer.state[one.parameter] = {**state, **own}

    def state(self) -> dict[str, dict[str, Any]]:
        """By parameter name, as the optimizer would hold it."""
        return {one.name: self._state(place) for place, one in enumerate(self._trainables)}

    def servers(self, group: dict[str, Any]) -> dict[str, Any]:
        """What is done here is not done there."""
        return self._form.left(group, self._workers)

    def _turn(self, places: Sequence[int], group: Mapping[str, Any]) -> None:
        gradients = [self._views[place] for place in places]
        parameters: list[torch.Tensor] = [self._trainables[place].parameter for place in places]
        self._form.decay(gradients, parameters, group)
        for place in places:
            self._counts[place] += 1
        kept, counts = [self._kept[p] for p in places], [self._counts[p] for p in places]
        self._form.turn(gradients, kept, counts, group)

    def _state(self, place: int) -> dict[str, Any]:
        count = self._counts[place]
        if count == 0:
            return {}
        counted = {COUNT: count} if self._form.counted else {}
        return {self._form.key: self._kept[place], **counted}


def _count(state: Mapping[str, Any], key: str) -> int:
    """How many gradients are in what an optimizer holds: its own steps, if it is not ours."""
    return int(state.get(COUNT, state.get("step", 1))) if key in state else 0


def _copy(state: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(like) if state is None else torch.empty_like(like).copy_(state)
