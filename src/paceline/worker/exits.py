"""What happens when the script ends without ``close``: hooks into the interpreter, all removable.

An exception nobody caught must reach the other workers; a script that simply ends must still leave
the group in order.
"""

from __future__ import annotations

import atexit
import sys
import traceback
from collections.abc import Callable
from types import TracebackType

_LINES_KEPT = 15


class ExitHooks:
    """Calls ``on_failure(text)`` for an uncaught exception, ``on_exit()`` at the interpreter's end."""

    def __init__(
        self, *, on_failure: Callable[[BaseException], None], on_exit: Callable[[], None]
    ) -> None:
        self._on_failure = on_failure
        self._on_exit = on_exit
        self._before = sys.excepthook
        self._mine = self._excepthook  # one bound method, to be recognised at removal
        sys.excepthook = self._mine
        atexit.register(self._on_exit)

    def remove(self) -> None:
        """Put back what was there, unless someone has put a hook of theirs on top."""
        atexit.unregister(self._on_exit)
        if sys.excepthook is self._mine:
            sys.excepthook = self._before

    def _excepthook(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        self._before(kind, error, trace)
        self._on_failure(error)


def failure_text(error: BaseException) -> str:
    """The last lines of the exception's traceback, as the other workers are to read them."""
    lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
    return "\n".join(lines[-_LINES_KEPT:])
