"""What is said of a loss scale that changes: each change in the trace, the first back-off to the user.

A window skipped because fp16 overflowed is ordinary under a dynamic scale: one sentence is enough.
"""

from __future__ import annotations


class ScaleWatch:
    """Follows the scale from window to window."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._backed_off = False

    def feed(self, scale: float) -> tuple[str, str]:
        """A window of this scale was decided: a sentence for the trace and one to say, or ""."""
        last, self._last = self._last, scale
        if last is None or last == scale:
            return "", ""
        change = f"loss scale {last:g} -> {scale:g}"
        if scale > last or self._backed_off:
            return change, ""
        self._backed_off = True
        return change, (
            f"{change}: a gradient overflowed, and its window was skipped. This is ordinary while the "
            "scale finds its place, and is not said again (the trace has every change)."
        )
