"""Memory of all processes together, N = 4, model A: paceline with its server and launcher, and DDP.

Each side is measured while it alone is running: pages of torch's libraries are divided among all
who have them mapped, so a second side would halve them. The figure is the largest of several
samples during a block.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.bench import Bench
from harness.results import Row
from harness.sides import Launch, SideFailedError, paceline_run, torch_group

WORKERS = 4
STEPS = 5


def measure(bench: Bench) -> Iterator[Row]:
    """``memory N=4 sync`` and ``async``, as ratios to DDP's."""
    words = [word for word in ("sync", "async") if bench.wants(_key(word))]
    if not words:
        return
    try:
        peer_bytes = _peak_bytes(bench, torch_group("ddp.py", "--task", "A", workers=WORKERS))
    except SideFailedError as error:
        yield Row(key="memory N=4 DDP", value=None, failure=str(error))
        return
    for word in words:
        yield _row(bench, word, peer_bytes)


def _row(bench: Bench, word: str, peer_bytes: int) -> Row:
    launch = paceline_run("ours.py", "--task", "A", workers=WORKERS, strategy=word)
    try:
        own_bytes = _peak_bytes(bench, launch)
    except SideFailedError as error:
        return Row(key=_key(word), value=None, failure=str(error))
    note = f"{own_bytes / 2**20:,.0f} MiB, DDP {peer_bytes / 2**20:,.0f}"
    return Row(key=_key(word), value=own_bytes / peer_bytes, note=note)


def _key(word: str) -> str:
    return f"memory N={WORKERS} {word}"


def _peak_bytes(bench: Bench, launch: Launch) -> int:
    with bench.started(launch) as (side,):
        side.ask("block", steps=STEPS)
        side.tell("block", steps=STEPS)
        samples = [side.pss_bytes()]
        while not side.answered(within_s=0.1):
            samples.append(side.pss_bytes())
        side.answers()
    return max(samples)
