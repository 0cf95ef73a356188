"""The server's record, entry by entry: a fact with the orders it brought about, or an encounter.

Reads lazily: a record may be longer than memory. Knows files; judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline import encounters, events, trace

SERVER_FILE = "server.jsonl"
_SERVED = (*events.Fact.__args__, *encounters.Encounter.__args__)
_ORDERS = events.Order.__args__


@dataclass(kw_only=True, slots=True)
class Entry:
    """What was served (``what``, on this ``line`` of the file) and the ``orders`` that followed.

    ``last``: of the record, so that orders may be missing.
    """

    line: int
    what: Any
    orders: list[Any] = field(default_factory=list)
    last: bool = False


def entries(path: Path) -> Iterator[Entry]:
    """The entries of the server's trace at ``path``, as far as it goes. Decode errors are passed on."""
    current: Entry | None = None
    with path.open("rb") as lines:
        for number, record in enumerate(trace.decode_lines(lines), start=1):
            if isinstance(record, _SERVED):
                if current is not None:
                    yield current
                current = Entry(line=number, what=record)
            elif current is not None and isinstance(record, _ORDERS):
                current.orders.append(record)
    if current is not None:
        current.last = True
        yield current


def server_record(run: Path | None) -> Path | None:
    """The record whose order a replay of ``run`` keeps; None where no order was decided."""
    if run is None or not (run / SERVER_FILE).is_file():
        return None
    decided = any(isinstance(entry.what, events.Join) for entry in entries(run / SERVER_FILE))
    return run / SERVER_FILE if decided else None


def records_of(path: Path, *kinds: str) -> Iterator[Any]:
    """The records of these kinds in a trace file, in order; other lines are not decoded."""
    heads = tuple(f'["{one}",'.encode() for one in kinds)
    if path.is_file():
        with path.open("rb") as lines:
            yield from trace.decode_lines(line for line in lines if line.startswith(heads))
