"""What every part of the benchmark is given: how much to measure, which rows, where to say so."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from harness.sides import Launch, Side, started


@dataclass(frozen=True, kw_only=True)
class Bench:
    """``pairs``: of blocks, after warm-up. ``block_s``: about how long a block lasts.

    ``only``: a regular expression that a row's key has to contain. ``say``: shows what goes on.
    """

    pairs: int
    block_s: float
    only: str
    directory: Path
    say: Callable[[str], None]

    def wants(self, key: str) -> bool:
        """Whether the row ``key`` is to be measured."""
        return re.search(self.only, key, re.IGNORECASE) is not None

    def started(self, *launches: Launch) -> AbstractContextManager[list[Side]]:
        """Start these sides; see :func:`harness.sides.started`."""
        self.say("starting " + " and ".join(launch.name for launch in launches))
        return started(*launches, directory=self.directory)
