"""A ring all-reduce over four network namespaces against the formula, with what was measured of the links.

Latency: of a small all-reduce's hop. Bandwidth: of each host's sending to the next; the slowest counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from paceline.cost import ring
from prediction.namespaces import PORT, Host, hosts, missing
from prediction.rows import Row

SCRIPT = Path(__file__).parents[1] / "scripts" / "ring.py"
SIZE_BYTES = 4_000_000
SCENES = {"1 Gb/s": (1e9,) * 4, "a port of 200 Mb/s": (1e9, 1e9, 2e8, 1e9)}
PATIENCE_S = 120.0


def rows(directory: Path, say: Callable[[str], None]) -> Iterator[Row]:
    """One row a scene; none, and why, where there can be no namespaces."""
    if reason := missing():
        say(f"ring over network namespaces left out: {reason}")
        return
    for scene, rates in SCENES.items():
        say(f"ring over four network namespaces, {scene}")
        with hosts(rates) as places:
            seen = measured(places)
        slowest = min(seen["bytes_per_s"])
        note = f"a hop {seen['hop_s'] * 1e3:.2f} ms, slowest link {slowest * 8e-6:.0f} Mb/s"
        yield Row(
            part="ring", scene=scene, strategy="all-reduce", figure="ring_s", note=note,
            predicted=ring(len(rates), SIZE_BYTES, slowest, seen["hop_s"]),
            measured=seen["all_reduce_s"],
        )  # fmt: skip


def measured(places: list[Host]) -> dict[str, Any]:
    """What rank 0 of the hosts at ``places`` printed. Raises RuntimeError if one failed."""
    started: list[subprocess.Popen[str]] = []
    try:
        for rank, host in enumerate(places):
            words = [str(rank), str(len(places)), places[0].address, "29577", str(SIZE_BYTES)]
            command = host.command("env", f"GLOO_SOCKET_IFNAME={PORT}", sys.executable, str(SCRIPT))
            started.append(
                subprocess.Popen(
                    [*command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                )
            )
        said = [process.communicate(timeout=PATIENCE_S) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    if any(process.returncode != 0 for process in started):
        raise RuntimeError("\n".join(stderr[-1000:] for _, stderr in said))
    found: dict[str, Any] = json.loads(said[0][0])
    return found
