"""Tables as plain text: no colour, no trailing blanks, as wide as a document or a log can show."""

from __future__ import annotations

from rich.console import Console, RenderableType

WIDTH = 100


def as_text(*shown: RenderableType, width: int = WIDTH) -> str:
    """What ``shown`` looks like, one under the other, in a terminal of ``width`` columns."""
    console = Console(width=width, no_color=True, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(*shown, sep="\n")
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n")
