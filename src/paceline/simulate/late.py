"""Some workers of every step are late: how many, by how much, and how often it is others.

SSP's answer depends on that last question and on little else, so it has a word of its own. Knows
no random numbers: who they are is drawn by the cluster model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paceline.errors import bad_value
from paceline.simulate.tables import Table

PATTERNS = "'same', 'random', or 'every:' and a number of steps, as in 'every:50'"


@dataclass(frozen=True, kw_only=True, slots=True)
class Late:
    """``count`` workers are late by ``added_s`` in every step; others every ``every`` steps.

    ``every`` None: always the same ones.
    """

    count: int
    added_s: float
    every: int | None = 1

    def group(self, step: int) -> int:
        """The number of the group of workers that are late in ``step``."""
        return 0 if self.every is None else step // self.every

    def groups(self, steps: int) -> Iterator[tuple[int, slice]]:
        """Each group of the first ``steps`` steps, and its steps."""
        length = steps if self.every is None else self.every
        for first in range(0, steps, max(1, length)):
            yield self.group(first), slice(first, first + length)


def every_of(pattern: str) -> int | None:
    """What ``every`` is under the ``pattern`` of this name. Raises UsageError."""
    if not _is_pattern(pattern):
        raise bad_value("pattern", pattern, PATTERNS)
    words = {"same": None, "random": 1}
    return words[pattern] if pattern in words else int(pattern.removeprefix("every:"))


def late_from(table: Table, count: int) -> Late | None:
    """What the table ``[late]`` of a cluster of ``count`` workers says; None if there is none."""
    table.only("count", "added_s", "pattern")
    if table.empty:
        return None
    pattern = str(table.values.get("pattern", "random"))
    if not _is_pattern(pattern):
        raise table.wrong("pattern", pattern, PATTERNS)
    return Late(
        count=table.whole("count", low=1, high=count),
        added_s=table.number("added_s", low=0.0),
        every=every_of(pattern),
    )


def _is_pattern(text: str) -> bool:
    word, _, number = text.partition(":")
    return text in ("same", "random") or (word == "every" and number.isdigit() and int(number) > 0)
