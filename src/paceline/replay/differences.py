"""In what two records differ, leaving times aside. Pure: values in, words out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

_ASIDE = ("time_s", "text")


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """``field`` of a record was ``recorded`` and is ``now``, both as people read them."""

    field: str
    recorded: str
    now: str


def difference(recorded: Any, now: Any, *, only: Sequence[str] = ()) -> Difference | None:
    """The first field (of ``only``, if given) in which two records differ; their kind comes first."""
    if type(recorded) is not type(now):
        return Difference(field="what it did", recorded=kind(recorded), now=kind(now))
    names = only or [one.name for one in fields(recorded) if one.name not in _ASIDE]
    for name in names:
        before, after = getattr(recorded, name), getattr(now, name)
        if before != after:
            where = f"{name} of its {kind(recorded)}"
            return Difference(field=where, recorded=repr(before), now=repr(after))
    return None


def difference_in_orders(
    recorded: Sequence[Any], now: Sequence[Any], *, torn: bool
) -> Difference | None:
    """The first order that differs. ``torn``: the record may have lost the last of them."""
    for before, after in zip(recorded, now, strict=False):
        if (found := difference(before, after)) is not None:
            return found
    if len(now) < len(recorded):
        return Difference(field="the order", recorded=kind(recorded[len(now)]), now="none")
    if len(now) > len(recorded) and not torn:
        return Difference(field="the order", recorded="none", now=kind(now[len(recorded)]))
    return None


def kind(record: Any) -> str:
    """A record's type in one word, as traces have it."""
    return type(record).__name__.lower()
