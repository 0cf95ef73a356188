"""The run's optimizer at work: sums of pushes, clipping and steps, tile by tile, in parallel.

It applies what it is told to and decides nothing. The bits are those of the plain loop: gradients
summed in the order given, divided, clipped by torch's own functions in the user's parameter order,
stepped by the same optimizer class. A tile goes through all of that while it is in the cache.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from paceline.gradients.layout import FlatLayout
from paceline.server.crew import Crew
from paceline.server.joint import Ahead, Gradients, Joint, Part, joined
from paceline.server.steppers import (
    State,
    Stepper,
    hyperparameters,
    scalars,
    state_of_slot,
    state_of_tile,
    tuples,
)
from paceline.server.tiles import TILE_BYTES, Pieces, Tile, cut, is_elementwise, single
from paceline.transport.messages import OptimizerSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """The sum of ``parts``, in this order, over ``divisor``, stepped with learning rates times
    ``lr_scale``. The first part's gradients are overwritten."""

    parts: Sequence[Part]
    divisor: float
    lr_scale: float


class Shard:
    """The optimizer of the parameters of ``layout``, worked on by ``threads`` threads.

    ``groups[place]``: the slot's optimizer group. ``state``: a ``state_dict`` to go on from, as
    ``torch.save`` wrote it (no code in it).
    """

    def __init__(
        self,
        *,
        layout: FlatLayout,
        spec: OptimizerSpec,
        groups: Sequence[int],
        state: bytes | None = None,
        threads: int = 1,
        tile_bytes: int = TILE_BYTES,
        bucket_bytes: int = TILE_BYTES,
    ) -> None:
        self._layout = layout
        self._name = spec.name
        self._groups = groups
        self._hyper = hyperparameters(spec)
        self._crew = Crew(threads)
        self._tile_bytes = tile_bytes
        self._ahead = Ahead(layout, bucket_bytes)
        states: dict[int, State] = {} if state is None else _load(state)
        self._tiles: tuple[Tile, ...] = cut(
            layout, groups, tile_bytes=tile_bytes,
            apart=lambda place: not is_elementwise(spec.name, self._hyper[groups[place]]),
            alike=lambda place: scalars(states.get(place, {})),
        )  # fmt: skip
        blank = torch.zeros(layout.total_bytes, dtype=torch.uint8)
        self._steppers = [self._stepper(tile, blank, states) for tile in self._tiles]
        self._places: Sequence[int] = range(len(layout.slots))
        self._mine: Sequence[int] = range(len(self._tiles))

    @property
    def tiles(self) -> Sequence[Tile]:
        """All of the layout's, also those that other shards have."""
        return self._tiles

    @property
    def own_numbers(self) -> Sequence[int]:
        """The tiles that this one has."""
        return self._mine

    def keep(self, places: Sequence[int]) -> None:
        """From now on this shard has only these parameters; no tile holds others, too."""
        self._places = places
        self._mine = self.numbers_of(places)
        blank = torch.zeros(self._layout.total_bytes, dtype=torch.uint8)
        for number in set(range(len(self._tiles))).difference(self._mine):
            self._steppers[number] = self._stepper(self._tiles[number], blank, {})

    def numbers_of(self, places: Sequence[int]) -> list[int]:
        """The tiles that these parameters lie in, in the order of tiles."""
        own = frozenset(places)
        return [number for number, tile in enumerate(self._tiles) if tile.places[0] in own]

    def state(self) -> bytes:
        """The optimizer's ``state_dict``, numbered in the user's order, for ``torch.load``."""
        held = [stepper.state for stepper in self._steppers]
        places = range(len(self._layout.slots))
        states = {p: state_of_slot(p, self._layout, self._tiles, held) for p in places}
        of_group = [[p for p in places if self._groups[p] == g] for g in range(len(self._hyper))]
        groups = [{**h, "params": own} for h, own in zip(self._hyper, of_group, strict=True)]
        buffer = io.BytesIO()
        kept = {place: state for place, state in states.items() if state}
        torch.save({"state": kept, "param_groups": groups}, buffer)
        return buffer.getvalue()

    def fits(self, used: bytes, groups: list[dict[str, Any]] | None) -> bool:
        """Whether a push with these can be meant for this model."""
        counts = len(self._layout.slots), len(self._hyper)
        return counts == (len(used), counts[1] if groups is None else len(groups))

    def set_groups(self, groups: list[dict[str, Any]]) -> None:
        """From now on the optimizer's groups have these hyper-parameters."""
        for own, given in zip(self._hyper, groups, strict=True):
            own.update(tuples(given))
        for tile, stepper in zip(self._tiles, self._steppers, strict=True):
            stepper.set_hyper(self._hyper[tile.group])

    def sum_ahead(self, gradients: Sequence[Gradients], filled: int) -> None:
        """Every worker of the round has filled its first ``filled`` buckets: sum them now.

        ``gradients``: of all parts of the next update, in its order.
        """
        self._ahead.sum(gradients, filled, self._share)

    def forget_sums(self) -> None:
        """The round that was summed ahead is not applied."""
        self._ahead.take()

    def joints(self, updates: Sequence[Update]) -> list[Joint]:
        """The gradients of the updates that are applied now, none of which is summed yet."""
        for update in updates:
            self._separate(joined(update.parts))
        edges = self._ahead.take()
        return [Joint(u.parts, u.divisor, self._tiles, edges) for u in updates]

    def all_at_once(
        self, joints: Sequence[Joint], scales: Sequence[float], source: Pieces, target: Pieces
    ) -> list[list[float]]:
        """Sum, and step with learning rates times ``scales``, one joint after the other: what a tile
        needs while it is in the cache. The sum of squares of each tile, for each joint that is not alone.
        """
        squares = [[0.0] * len(self._tiles) for _ in joints]
        moves = [
            self._move(joint, scale, target if number else source, target)
            for number, (joint, scale) in enumerate(zip(joints, scales, strict=True))
        ]

        def job(number: int) -> None:
            for joint, move, own in zip(joints, moves, squares, strict=True):
                joint.join(number)
                if not joint.alone:
                    own[number] = joint.square(number)
                move(number)

        self._share(job, self._mine)
        return squares

    def join(self, joint: Joint) -> None:
        """Only sum: whether and how to step is still to be seen."""
        self._share(joint.join, self._mine)

    def norms(self, joint: Joint) -> list[torch.Tensor]:
        """Of each parameter's gradient, where there is one, side by side."""
        gradients = joint.views(self._places)
        norms: list[torch.Tensor] = [torch.zeros(())] * len(gradients)

        def job(number: int) -> None:
            norms[number] = torch.linalg.vector_norm(gradients[number])

        self._share(job, range(len(gradients)))
        return norms

    def total(self, joint: Joint, norms: Sequence[torch.Tensor]) -> torch.Tensor:
        """What ``torch.nn.utils.get_total_norm`` computes. ``norms``: all parameters', in their order."""
        gradients = joint.views(self._places)
        if not norms or len({gradient.dtype for gradient in gradients}) > 1:
            return get_total_norm(gradients)
        total: torch.Tensor = torch.linalg.vector_norm(torch.stack(list(norms)))
        return total

    def is_finite(self, joint: Joint) -> bool:
        """Whether all values of the sum are."""
        return all(bool(torch.isfinite(one).all()) for one in joint.views(self._places))

    def step(
        self,
        joint: Joint,
        lr_scale: float,
        source: Pieces,
        target: Pieces,
        clip: tuple[float, torch.Tensor] | None,
    ) -> None:
        """Step with what was joined. ``clip``: the largest norm allowed, and the norm."""
        move = self._move(joint, lr_scale, source, target)

        def job(number: int) -> None:
            if clip is not None:
                _scale(joint.gradients[number], *clip)
            move(number)

        self._share(job, self._mine)

    def close(self) -> None:
        """End its threads, let go of the parameters."""
        self._crew.close()
        self._tiles, self._steppers = (), []

    def _move(
        self, joint: Joint, lr_scale: float, source: Pieces, target: Pieces
    ) -> Callable[[int], None]:
        """What makes a tile's new version: the old one, stepped if there is a gradient for it."""
        old, new = source.of(self._tiles), target.of(self._tiles)

        def move(number: int) -> None:
            if new is not old:
                new[number].copy_(old[number])
            if joint.has(number):
                self._steppers[number].step(new[number], joint.gradients[number], lr_scale)

        return move

    def _share(self, job: Callable[[int], None], numbers: Sequence[int]) -> None:
        """Side by side if there is enough to do for that to pay."""
        if self._layout.total_bytes > self._tile_bytes:
            self._crew.run(job, numbers)
            return
        for number in numbers:
            job(number)

    def _separate(self, used: bytes) -> None:
        """Give parameters tiles of their own where one of a tile has a gradient and another none."""
        if all(used) or all(len({used[p] for p in tile.places}) == 1 for tile in self._tiles):
            return
        held = [stepper.state for stepper in self._steppers]
        tiles: list[Tile] = []
        steppers: list[Stepper] = []
        blank = torch.zeros(self._layout.total_bytes, dtype=torch.uint8)
        for tile, stepper in zip(self._tiles, self._steppers, strict=True):
            if len({used[p] for p in tile.places}) == 1:
                tiles.append(tile)
                steppers.append(stepper)
                continue
            for place in tile.places:
                own = single(self._layout, place, self._groups)
                states = {place: state_of_slot(place, self._layout, self._tiles, held)}
                tiles.append(own)
                steppers.append(self._stepper(own, blank, states))
        self._tiles, self._steppers = tuple(tiles), steppers
        self._mine = self.numbers_of(self._places)

    def _stepper(self, tile: Tile, blank: torch.Tensor, states: dict[int, State]) -> Stepper:
        stepper = Stepper(self._name, self._hyper[tile.group], tile.view(blank))
        stepper.state = state_of_tile(tile, self._layout, states)
        return stepper


def _load(state: bytes) -> dict[int, State]:
    loaded: dict[int, State] = torch.load(io.BytesIO(state), weights_only=True)["state"]
    return loaded


def _scale(gradient: torch.Tensor, clip_norm: float, total: torch.Tensor) -> None:
    """torch's own clipping, of one tensor by the norm of all."""
    holder = gradient.detach()
    holder.grad = gradient
    clip_grads_with_norm_([holder], clip_norm, total)
