"""What a worker meets the world through: its group, its clock, how it waits, how it hears of its end.

A worker of a process of its own has the real ones. Whoever runs workers otherwise (virtual time)
surrounds each with others, before its script goes on. Knows nothing of what they do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from paceline.worker.exits import ExitHooks
from paceline.worker.session import Session


class Hooks(Protocol):
    """Calls back when the script ends without ``close``."""

    def remove(self) -> None:
        """Call back no more."""


class MakeHooks(Protocol):
    """How hooks are set: see :class:`paceline.worker.exits.ExitHooks`."""

    def __call__(
        self, *, on_failure: Callable[[BaseException], None], on_exit: Callable[[], None]
    ) -> Hooks: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """``join``: as :meth:`Session.connect`. ``clock_s``: monotonic; ``sleep_s`` waits by it."""

    join: Callable[..., Session] = Session.connect
    clock_s: Callable[[], float] = time.monotonic
    sleep_s: Callable[[float], None] = time.sleep
    exit_hooks: MakeHooks = ExitHooks


REAL = Surroundings()

_current = REAL


def surround(surroundings: Surroundings) -> None:
    """Workers made from now on meet the world through ``surroundings``."""
    global _current
    _current = surroundings


def surroundings() -> Surroundings:
    """What a worker made now is surrounded by."""
    return _current
