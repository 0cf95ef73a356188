"""Between hosts at 1 Gb/s: what sending less is worth. Model A, a worker on each of 2 and 4 hosts.

Hosts are network namespaces of this machine (root, ip, tc); elsewhere there are no rows, and it says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.bench import Bench
from harness.pairing import in_pairs
from harness.results import Row
from harness.sides import Launch, SideFailedError, on_hosts
from prediction.namespaces import Host, hosts, missing

from paceline.transport.keys import make_key

RATE_BITS_PER_S = 1e9


@dataclass(frozen=True, kw_only=True)
class Wire:
    """A contender on ``workers`` hosts, and what DDP does about the same."""

    workers: int
    compress: str = ""
    hook: str = ""

    @property
    def key(self) -> str:
        return f"wire N={self.workers} {self.compress or 'dense'}"

    def ours(self, places: Sequence[Host], key: Path) -> Launch:
        words = ["--task", "A", "--strategy", "sync:allreduce", "--key", str(key)]
        return on_hosts(
            "ours.py", *words, *_option("--compress", _warm(self.compress)), places=places
        )

    def peer(self, places: Sequence[Host]) -> Launch:
        return on_hosts("ddp.py", "--task", "A", *_option("--hook", self.hook), places=places)


WIRES = [
    Wire(workers=workers, compress=compress, hook=hook)
    for workers in (2, 4)
    for compress, hook in (("", ""), ("topk:0.01", ""), ("powersgd:4", "powersgd:4"))
]


def measure(bench: Bench) -> Iterator[Row]:
    """A row for each contender."""
    wanted = [wire for wire in WIRES if bench.wants(wire.key)]
    if wanted and (reason := missing()):
        yield Row(key="wire", value=None, failure=f"left out: {reason}")
        return
    key = bench.directory / "key"
    if wanted:
        make_key(key)
    for wire in wanted:
        with hosts((RATE_BITS_PER_S,) * wire.workers) as places:
            yield _row(bench, wire, places, key)


def _row(bench: Bench, wire: Wire, places: Sequence[Host], key: Path) -> Row:
    try:
        with bench.started(wire.peer(places), wire.ours(places, key)) as (peer, ours):
            return in_pairs(ours, peer, bench, wire.key).row(wire.key)
    except SideFailedError as error:
        return Row(key=wire.key, value=None, failure=str(error))


def _warm(compress: str) -> str:
    """As it is once the warm-up is over."""
    return compress and f"{compress},warmup=0"


def _option(name: str, value: str) -> list[str]:
    return [name, value] if value else []
