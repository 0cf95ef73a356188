"""What a replica has trained since it last met the others, and what of it meets next.

Parameters meet in one or more fragments, which take turns. Knows no tensors and no other rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.worker.plane import Contribution
from paceline.worker.round_vote import Vote


class Round:
    """``windows`` since the last exchange, ``updates`` of them applied, with ``batches``. ``weights``: what
    was applied since each fragment's own last exchange. ``turn``: the fragment that meets next. ``stop``: the
    user's flag, in this pass."""

    def __init__(self, fragments: int) -> None:
        self.windows = self.updates = self.batches = 0
        self.weights = [0.0] * fragments
        self.turn = 0
        self.stop = False

    @property
    def whole(self) -> bool:
        """Whether nothing was applied that some fragment has not brought to the others yet."""
        return not any(self.weights)

    def go_on(self, turn: int, weights: Sequence[float]) -> None:
        """As a checkpoint has it."""
        self.turn, self.weights = turn, list(weights)

    def count(self, contribution: Contribution, batches: int, *, applied: bool) -> None:
        """A window is over."""
        self.stop = self.stop or contribution.stop
        self.windows += 1
        if applied:
            self.updates += 1
            self.batches += batches
            self.weights = [weight + contribution.weight for weight in self.weights]

    def lose(self) -> None:
        """The replica is not finite: what it was trained on is lost."""
        self.weights = [0.0] * len(self.weights)

    def vote(self, *, over: bool) -> Vote:
        """What this rank has to say at the exchange. ``over``: it has no batch left in the pass."""
        return Vote(
            weights=tuple(self.weights), windows=self.windows, updates=self.updates,
            batches=self.batches, stop=self.stop, over=over,
        )  # fmt: skip

    def due(self, *, ended: bool) -> Sequence[int]:
        """The fragments that meet; ``ended``: it is the pass's last exchange, after which all are one."""
        return range(len(self.weights)) if ended else (self.turn,)

    def met(self, fragments: Sequence[int]) -> None:
        """They have: another round begins; after one of all fragments with the first."""
        self.windows = self.updates = self.batches = 0
        self.weights = [0.0 if at in fragments else one for at, one in enumerate(self.weights)]
        whole = len(fragments) == len(self.weights)
        self.turn = 0 if whole else (self.turn + 1) % len(self.weights)
