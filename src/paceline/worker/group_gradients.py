"""A window's gradients of all members of a group, summed in the region that the leader pushes from.

Members share a host, so the leader adds up their regions where they lie: nothing is sent but votes. A
region is its owner's until it has voted, and again once the leader has told what became of the window.
What is pushed, and what becomes of it, is the plane's business.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from paceline.gradients.layout import FlatLayout
from paceline.gradients.norms import sum_of_squares
from paceline.transport.shared_memory import Region
from paceline.worker.circle import Circle, Joined
from paceline.worker.plane import BucketTimes, Contribution
from paceline.worker.shared_gradients import Judged, SharedGradients

_WEIGHT, _BAD, _TOTAL, _STOP, _LEFT = range(5)
"""What a member says of its window, each in a column; numbers that may be absent are one more than they
are, and 0 if they are."""
_COLUMNS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupWindow:
    """What all members did in a window. ``weights``: of each one's samples; ``left``: how many take no
    more batches; ``totals``: batches of the pass, by what each one knows of its end.
    ``wait_s``: how long this member waited for the others' votes."""

    weights: tuple[float, ...]
    stop: bool
    left: int
    totals: tuple[int | None, ...]
    wait_s: float

    @property
    def weight(self) -> float:
        """Of the whole group's window."""
        return math.fsum(self.weights)


class GroupGradients:
    """Implements :class:`paceline.worker.shared_gradients.Gradients` for a member of ``circle``, all of
    whom make one, and then call :meth:`add_up` once each window. ``group``: joins them."""

    def __init__(
        self,
        parameters: Sequence[torch.nn.Parameter],
        layout: FlatLayout,
        *,
        group: Joined,
        circle: Circle,
        clock_s: Callable[[], float],
    ) -> None:
        self._own = SharedGradients(parameters, layout, tell=None, clock_s=clock_s)
        self.region = self._own.region
        self.views = self._own.views
        self._names = [slot.name for slot in layout.slots]
        self._group = group
        self._circle = circle
        self._clock_s = clock_s
        self._judged = self._nothing()
        self._members = self._see_members(layout.total_bytes)

    @property
    def vectors(self) -> Sequence[torch.Tensor]:
        return self._own.vectors

    def show_parameters(self) -> None:
        self._own.show_parameters()

    def before_backward(self, *, last: bool) -> None:
        self._own.before_backward(last=last)

    def add_up(self, contribution: Contribution, *, left: bool) -> GroupWindow:
        """This member's part of the window is over: what all did. The leader has their sum then."""
        judged = self._own.complete(empty=contribution.weight == 0, fill_unused=True)
        size = self._circle.size
        votes = torch.zeros(size * _COLUMNS + len(self._names), dtype=torch.float64)
        table, used = votes[: size * _COLUMNS].view(size, _COLUMNS), votes[size * _COLUMNS :]
        table[self._circle.place] = torch.tensor(self._vote(contribution, judged, left=left))
        used.copy_(torch.tensor(list(judged.used)))
        began_s = self._clock_s()
        self._group.finish(self._group.start_sum(votes))
        wait_s = self._clock_s() - began_s
        if self._circle.leads:
            norm = self._sum([place for place in range(size) if table[place, _WEIGHT] > 0])
            self._judged = Judged(
                used=bytes(count > 0 for count in used.tolist()),
                bad=self._blame(table[:, _BAD].tolist(), norm), norm=norm,
            )  # fmt: skip
        totals = tuple(round(one) - 1 if one else None for one in table[:, _TOTAL].tolist())
        return GroupWindow(
            weights=tuple(table[:, _WEIGHT].tolist()), stop=bool(table[:, _STOP].any()),
            left=round(float(table[:, _LEFT].sum())), totals=totals, wait_s=wait_s,
        )  # fmt: skip

    def complete(self, *, empty: bool, fill_unused: bool) -> Judged:
        """The group's, added up before; nothing if ``empty``."""
        return self._nothing() if empty else self._judged

    def clear(self) -> None:
        self._own.clear()

    def times(self) -> BucketTimes | None:
        return self._own.times()

    def close(self) -> None:
        self._own.close()
        self._members.clear()

    def _see_members(self, size_bytes: int) -> list[list[torch.Tensor]]:
        """Each member's buckets, where they lie; the leader alone looks at others'."""
        circle = self._circle
        where = torch.zeros(circle.size, 2, dtype=torch.float64)
        where[circle.place] = torch.tensor([os.getpid(), self.region.fd])
        self._group.finish(self._group.start_sum(where.view(-1)))
        if not circle.leads:
            return []
        members = [list(self.vectors)]
        for pid, fd in where[1:].tolist():
            region = Region.open(int(pid), int(fd), size_bytes)
            members.append(self._cut(region.memory))
            region.close()
        return members

    def _cut(self, memory: torch.Tensor) -> list[torch.Tensor]:
        buckets = self._own.buffer.buckets
        return [memory[one.start_bytes : one.stop_bytes].view(one.dtype) for one in buckets]

    def _vote(self, contribution: Contribution, judged: Judged, *, left: bool) -> list[float]:
        bad = 1 + self._names.index(judged.bad) if judged.bad else 0
        total = 0 if contribution.total is None else 1 + contribution.total
        return list(map(float, (contribution.weight, bad, total, contribution.stop, left)))

    def _sum(self, places: Sequence[int]) -> float:
        """Add up the gradients of the members at ``places`` in the leader's region, bucket by bucket; the
        norm of the sum, inf if its square is too large. Who has computed nothing has anything there."""
        squares = 0.0
        for own, *others in zip(*self._members, strict=True):
            parts = [(own, *others)[place] for place in places]
            if parts and parts[0] is not own:
                own.copy_(parts[0])
            for part in parts[1:]:
                own.add_(part)
            squares += sum_of_squares(own) if parts else 0.0
        return math.sqrt(squares) if math.isfinite(squares) else math.inf

    def _blame(self, bad: Sequence[float], norm: float) -> str:
        for place, parameter in enumerate(bad):
            if parameter:
                return f"{self._names[round(parameter) - 1]} (rank {self._circle.ranks[place]})"
        if math.isfinite(norm):
            return ""
        views = zip(self._names, self.views, strict=True)
        over = (name for name, view in views if not bool(torch.isfinite(view).all()))
        return next((f"{name} (the group's sum overflowed)" for name in over), "")

    def _nothing(self) -> Judged:
        return Judged(used=bytes(len(self._names)), bad="", norm=0.0)
