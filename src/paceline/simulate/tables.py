"""Reading a TOML table strictly: unknown keys, wrong types and values out of range are refused.

Every refusal names the file, the table, the key, what was expected and, where there is a near
miss, the key that was probably meant. Knows nothing of what the values mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf, isfinite
from typing import Any

from paceline.errors import UsageError, bad_value


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a document. ``name`` as written in the file, "" for the document itself."""

    values: Mapping[str, Any]
    name: str
    source: str
    repeated: bool = False

    @property
    def label(self) -> str:
        """The table as a person would point at it: ``cluster.toml: [workers]``."""
        brackets = f"[[{self.name}]]" if self.repeated else f"[{self.name}]"
        return f"{self.source}: {brackets}" if self.name else f"{self.source}:"

    @property
    def empty(self) -> bool:
        return not self.values

    def has(self, key: str) -> bool:
        return key in self.values

    def only(self, *allowed: str) -> None:
        """Refuse every key that is not among ``allowed``."""
        for key in self.values:
            if key not in allowed:
                near = get_close_matches(key, allowed, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise UsageError(
                    f"{self.label} does not know {key!r}: expected {', '.join(allowed)}.{hint}"
                )

    def number(
        self,
        key: str,
        *,
        low: float = -inf,
        above: float = -inf,
        high: float = inf,
        default: float | None = None,
    ) -> float:
        """The number at ``key``: finite, >= ``low``, > ``above``, <= ``high``."""
        value = self._value(key, default)
        allowed = _range(low=low, above=above, high=high)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, value, f"a number{allowed}")
        if not (isfinite(value) and low <= value <= high and value > above):
            raise self.wrong(key, value, f"a number{allowed}")
        return float(value)

    def whole(self, key: str, *, low: int, high: float = inf, default: int | None = None) -> int:
        """The whole number at ``key``, from ``low`` to ``high``."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(key, value, f"a whole number{_range(low=low, high=high)}")
        return value

    def table(self, key: str, *, required: bool = False) -> Table:
        """The table ``[key]``; empty if it is absent and not ``required``."""
        value = self.values.get(key, {})
        if required and key not in self.values:
            raise UsageError(f"{self.source}: the table [{key}] is missing.")
        if not isinstance(value, dict):
            raise self.wrong(key, value, f"a table, written [{key}]")
        return Table(value, name=key, source=self.source)

    def tables(self, key: str) -> list[Table]:
        """All tables ``[[key]]``."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.wrong(key, value, f"tables, each written [[{key}]]")
        return [Table(item, name=key, source=self.source, repeated=True) for item in value]

    def wrong(self, key: str, value: object, allowed: str, remedy: str = "") -> UsageError:
        """The error for a value of this table."""
        return bad_value(f"{self.label} {key}", value, allowed, remedy)

    def _value(self, key: str, default: object) -> object:
        if key not in self.values and default is None:
            raise UsageError(f"{self.label} needs {key!r}.")
        return self.values.get(key, default)


def _range(*, low: float = -inf, above: float = -inf, high: float = inf) -> str:
    parts = []
    if above > -inf:
        parts.append(f"> {above:g}")
    if low > -inf:
        parts.append(f">= {low:g}")
    if high < inf:
        parts.append(f"<= {high:g}")
    return f" {' and '.join(parts)}" if parts else ""
