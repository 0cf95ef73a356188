"""A pass over the data, as the user holds it before it is begun: it can be iterated, and has a length.

Decides nothing: the loop runs the pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from paceline.worker.loop import Loop
from paceline.worker.parts import Parts
from paceline.worker.planning import Demand, batches_in


class Batches:
    """What ``worker.batches(loader)`` returns: iterate it once per pass; ``len`` is this rank's share."""

    def __init__(self, loop: Loop, demand: Demand, parts: Parts) -> None:
        self._loop = loop
        self._demand = demand
        self._parts = parts

    def __iter__(self) -> Iterator[Any]:
        return self._loop.run(self._demand)

    def __len__(self) -> int:
        """This rank's batches: exact where they are dealt, the equal share where handed out on demand.

        Raises TypeError where the loader has no length.
        """
        launch = self._parts.launch
        window = self._window() if self._demand.steps is not None else 1
        total = batches_in(self._demand, window=window, world_size=launch.world_size)
        if total is None:
            raise TypeError(f"{type(self._demand.loader).__name__} has no length; give steps=")
        if not self._demand.split:
            return total
        own, left = divmod(total, launch.world_size)
        return own + (launch.rank < left)

    def _window(self) -> int:
        options, batch = self._parts.options, getattr(self._demand.loader, "batch_size", None)
        if options.accumulate is None and batch is None:
            raise TypeError(
                "how many batches make global_batch is known once the first one is seen"
            )
        return options.window(batch=batch or 1, world_size=self._parts.launch.world_size)
