"""Synchronous training over 1 Gb/s, dense and compressed, predicted from what one host and the links say.

Before: the links' bandwidth and latency (as in :mod:`prediction.ring`), a window of `local:inf` with as
many workers on this machine, and what encoding takes there, which the run itself says. After: the same
script on 2 and 4 hosts, which are network namespaces.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from scripts.layers import SIZE_BYTES

from paceline.runs import Run, read_run
from paceline.simulate.cluster import ClusterModel
from paceline.simulate.predict import Scenario, predict
from paceline.strategies import parse_strategy
from paceline.trace import Step
from prediction import ring
from prediction.launched import Job, launched
from prediction.namespaces import Host, hosts, missing
from prediction.rows import Row

RATE_BITS_PER_S = 1e9
WORKERS = (2, 4)
DENSE = ""
WORDS = (DENSE, "topk:0.01", "powersgd:4")
SCRIPT = Path(__file__).parents[1] / "scripts" / "layers.py"
STEPS, STARTING = 14, 3
LIMIT = 0.15
PATIENCE_S = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Links:
    """Of all hosts' the slowest."""

    bytes_per_s: float
    hop_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Alone:
    """On one host. ``push_bytes``: what a gradient is on its way; ``gathered``: it is not summed there."""

    step_s: float
    coding_s: float
    push_bytes: float


def rows(directory: Path, say: Callable[[str], None]) -> Iterator[Row]:
    """A row for each number of hosts and word; none, and why, where there can be no namespaces."""
    if reason := missing():
        say(f"compression over network namespaces left out: {reason}")
        return
    for workers in WORKERS:
        say(f"{workers} workers on one host")
        alone = {
            word: on_one_host(workers, word, directory / f"{workers}-{word}") for word in WORDS
        }
        with hosts((RATE_BITS_PER_S,) * workers) as places:
            say(f"{workers} hosts at 1 Gb/s: the links")
            seen = ring.measured(places)
            links = Links(bytes_per_s=min(seen["bytes_per_s"]), hop_s=seen["hop_s"])
            for word in WORDS:
                say(f"{workers} hosts at 1 Gb/s: {word or 'dense'}")
                out = directory / f"hosts-{workers}-{word}"
                yield Row(
                    part="wire", scene=f"{workers} hosts", strategy=word or "dense", figure="window_s",
                    predicted=predicted(workers, word, alone[word], links),
                    measured=between_hosts(places, word, out), limit=LIMIT,
                    note=f"computing {alone[word].step_s:.3f} s, coding {alone[word].coding_s:.3f} s",
                )  # fmt: skip


def predicted(workers: int, word: str, alone: Alone, links: Links) -> float:
    """Seconds of a window, by the simulator."""
    lines = [
        "[workers]", f"count = {workers}", f"step_s = {alone.step_s}", "[network]",
        f"size_bytes = {SIZE_BYTES}", f"bytes_per_s = {links.bytes_per_s}", f"delay_s = {links.hop_s}",
    ]  # fmt: skip
    if word:
        lines.append(f"push_bytes = {alone.push_bytes}")
        lines.append(f"gathered = {str(word.startswith('topk')).lower()}")
        lines.append(f"coding_s = {alone.coding_s}")
    cluster = ClusterModel.parse("\n".join(lines))
    scenario = Scenario(cluster=cluster, steps=STEPS, network=cluster.network)
    return predict(parse_strategy("sync:allreduce"), scenario)[0].time_s / STEPS


def on_one_host(workers: int, word: str, directory: Path) -> Alone:
    """A window without exchange, and what compressing its gradient takes and leaves."""
    run, _ = _one_host(workers, "local:inf", directory / "alone")
    step_s = slowest_s(run)
    if not word:
        return Alone(step_s=step_s, coding_s=0.0, push_bytes=SIZE_BYTES)
    _, said = _one_host(
        workers, "sync:allreduce", directory / "packed", "--compress", f"{word},warmup=0"
    )
    coding = re.search(r"took (\S+) ms each to encode and decode", said)
    share = re.search(r"\((\S+)%\)", said)
    if coding is None or share is None:
        raise RuntimeError(f"the run does not say what compression took:\n{said[-1000:]}")
    packed_bytes = float(share[1]) / 100 * SIZE_BYTES
    return Alone(step_s=step_s, coding_s=float(coding[1]) / 1000, push_bytes=packed_bytes)


def slowest_s(run: Run) -> float:
    """A window of whoever is the last in it: under sync the others wait for that one."""
    return median(map(max, zip(*(_windows_s(rank.steps) for rank in run.ranks), strict=True)))


def between_hosts(places: Sequence[Host], word: str, out: Path) -> float:
    """Seconds of a window of rank 0."""
    words = ["--strategy", "sync:allreduce", *(["--compress", f"{word},warmup=0"] if word else [])]
    launched(
        places, Job(script=SCRIPT, args=[str(STEPS)], words=words, out=out), timeout_s=PATIENCE_S
    )
    return median(_windows_s(read_run(out / "0").ranks[0].steps))


def _one_host(workers: int, strategy: str, out: Path, *options: str) -> tuple[Run, str]:
    """The run, and what it printed. Raises RuntimeError if it failed."""
    command = [
        sys.executable, "-m", "paceline.cli", "run", "-n", str(workers), "--threads", "1",
        "--strategy", strategy, *options, "--out", str(out), str(SCRIPT), str(STEPS),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    return read_run(out), done.stdout + done.stderr


def _windows_s(steps: Sequence[Step]) -> list[float]:
    """From each window's start to the next one's, without the first few."""
    starts = [step.time_s for step in steps][STARTING:]
    return [after - before for before, after in pairwise(starts)]
