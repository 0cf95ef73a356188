"""Two hosts on this machine: network namespaces, and a launcher on each. Needs root and iproute2.

with two_hosts() as places:                      # skips the test where there can be none
    ends = launch(places, script, [...], workers=2, out=directory)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from paceline.transport.keys import make_key

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
RATE_BITS_PER_S = 1e9
PORT = 29500


@dataclass(frozen=True, kw_only=True)
class Ended:
    """One host's launcher: how it ended and what it said."""

    exit_code: int
    said: str


class Launched:
    """``paceline run`` on each of ``places``, host i recording in ``out/i``."""

    def __init__(
        self, places: Sequence, script: Path, args: Sequence[str], *, workers: int, out: Path,
        words: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.out = out
        key = out / "key"
        make_key(key)
        self.launchers = [
            subprocess.Popen(
                place.command(
                    sys.executable, "-m", "paceline.cli", "run", "--nnodes", str(len(places)),
                    "--node-rank", str(number), "--master-addr", places[0].address,
                    "--key", str(key), "-n", str(workers), "--out", str(out / str(number)),
                    "--threads", "1", *words, str(script), *args,
                ),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for number, place in enumerate(places)
        ]  # fmt: skip

    def wait(self, timeout_s: float) -> list[Ended]:
        """How each ended."""
        try:
            said = [one.communicate(timeout=timeout_s)[0] for one in self.launchers]
        finally:
            for one in self.launchers:
                one.kill()
                one.wait()
        return [
            Ended(exit_code=one.returncode, said=words)
            for one, words in zip(self.launchers, said, strict=True)
        ]


@contextmanager
def two_hosts() -> Iterator[list]:
    """Two namespaces joined at 1 Gb/s; the test is skipped where there can be none."""
    if str(BENCHMARKS) not in sys.path:
        sys.path.insert(0, str(BENCHMARKS))
    from prediction.namespaces import hosts, missing

    if reason := missing():
        pytest.skip(reason)
    with hosts((RATE_BITS_PER_S, RATE_BITS_PER_S)) as places:
        yield places


def gathered(out: Path) -> Path:
    """One directory with what all hosts recorded, as a user would copy it together."""
    whole = out / "whole"
    shutil.copytree(out / "0", whole)
    for number in sorted(one for one in os.listdir(out) if one.isdecimal() and one != "0"):
        for file in (out / number).glob("rank-*.jsonl"):
            shutil.copy(file, whole)
    return whole
