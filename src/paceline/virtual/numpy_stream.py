"""numpy's global random stream, one for each worker, at a price that a turn can pay.

``np.random.get_state`` copies the whole state (35 us, and as much to put it back): here each worker
has a generator of its own, and the global functions are pointed at it (0.5 us). A normal number that
numpy keeps for the next call is not part of a generator, nor to be seen from outside: once a worker has
drawn anything, its whole state is taken at each turn.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

_KEY_WORDS = 624


class _Mt19937(ctypes.Structure):
    """What ``MT19937.ctypes.state_address`` points at (numpy's mt19937.h)."""

    _fields_ = (("key", ctypes.c_uint32 * _KEY_WORDS), ("pos", ctypes.c_int))


class NumpyStream:
    """A stream that stands where the global one stands now."""

    def __init__(self) -> None:
        self._generator: Any = np.random.MT19937()
        self._generator.state = _current().state
        self._kept: Any = None  # the whole state, where there is a number for the next call
        self._mark = _mark(self._generator)
        self._drawn = False

    def enter(self) -> None:
        """The global functions draw from this stream from now on."""
        np.random.set_bit_generator(self._generator)  # type: ignore[attr-defined]
        if self._kept is not None:
            np.random.set_state(self._kept)

    def leave(self) -> None:
        """See where it stands."""
        generator = _current()
        mark = _mark(generator)
        untouched = generator is self._generator and mark is not None and mark == self._mark
        if untouched and not self._drawn:
            return
        self._drawn = mark is None or mark[0] != _KEY_WORDS or self._drawn
        self._generator, self._mark = generator, mark
        state = np.random.get_state(legacy=False)
        self._kept = state if state["has_gauss"] else None


def _current() -> Any:
    """The generator that numpy's global functions draw from."""
    return np.random.get_bit_generator()  # type: ignore[attr-defined]


def _mark(generator: Any) -> tuple[int, int] | None:
    """Changes whenever something is drawn; None if that cannot be seen."""
    if not isinstance(generator, np.random.MT19937):
        return None
    state = _Mt19937.from_address(generator.ctypes.state_address)
    return state.pos, state.key[0]
