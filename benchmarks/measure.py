"""``make bench-measure``: does ``paceline measure`` find what four hosts' links were set to?

Four network namespaces of this machine joined by a bridge, each port a token-bucket filter (``tc tbf``):

1. all at 1 Gb/s: nobody is named, bandwidth of every link within 10 % of the configured;
2. rank 2's port at 200 Mb/s: it is named, and only it; both bandwidths within 10 %;
3. links that take 5 ms one way (a relay of ours between tun devices: this kernel may have no netem): latency
   within 10 %;
4. as 3, but rank 1's take 15 ms more: it is named by latency.

Needs root, ip and tc; elsewhere it says so and ends. Latency is a busy machine's first victim: let
nothing else run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from prediction.delays import delayed_hosts
from prediction.namespaces import Host, hosts, missing

WITHIN = 0.10
PATIENCE_S = 300.0
EPILOG = """\
exit status: 0; 1 if a goal was missed; 3 where there can be no namespaces. About two minutes."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """``rates``: bits a second of the ports, ``delays_s``: of each host's half of a way; one of the two."""

    name: str
    make: Callable[[], AbstractContextManager[list[Host]]]
    figure: str
    expected: np.ndarray
    named: list[tuple[str, str, list[int]]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=int, metavar="N", help="one scene, 1 to 4")
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="heat maps go there")
    args = parser.parse_args()
    if reason := missing():
        print(f"left out: {reason}")
        return 3
    missed = 0
    for number, scene in enumerate(scenes(), start=1):
        if args.only in (None, number):
            missed += not reached(number, scene, args.pictures)
    return int(missed > 0)


def scenes() -> list[Scene]:
    """The four of above."""
    even, slow_port = (1e9,) * 4, (1e9, 1e9, 2e8, 1e9)
    same, far = (2.5e-3,) * 4, (2.5e-3, 17.5e-3, 2.5e-3, 2.5e-3)
    return [
        Scene(name="1 Gb/s", make=lambda: hosts(even), figure="bytes_per_s",
              expected=np.minimum.outer(even, even) / 8, named=[]),
        Scene(name="rank 2's port 200 Mb/s", make=lambda: hosts(slow_port), figure="bytes_per_s",
              expected=np.minimum.outer(slow_port, slow_port) / 8,
              named=[("bandwidth", "port", [2])]),
        Scene(name="5 ms one way", make=lambda: delayed_hosts(same), figure="alpha_s",
              expected=np.add.outer(same, same), named=[]),
        Scene(name="rank 1 15 ms further away", make=lambda: delayed_hosts(far), figure="alpha_s",
              expected=np.add.outer(far, far), named=[("latency", "port", [1])]),
    ]  # fmt: skip


def reached(number: int, scene: Scene, pictures: Path | None) -> bool:
    """Measure ``scene``, print what came of it; whether all is as it should be."""
    with scene.make() as places:
        seen = measured(places, None if pictures is None else pictures / f"measure-{number}.svg")
    found = np.full((4, 4), np.nan)
    for link in seen["links"]:
        found[link["rank"], link["to"]] = link[scene.figure]
    errors = found / scene.expected - 1
    named = [(one["what"], one["kind"], one["ranks"]) for one in seen["slow"]]
    if scene.figure == "alpha_s":
        named = [one for one in named if one[0] == "latency"]
    worst = float(np.nanmax(np.abs(errors)))
    good = worst <= WITHIN and named == scene.named
    print(f"{number}. {scene.name}: {'reached' if good else 'MISSED'}")
    print(f"   {scene.figure} off by {np.nanmin(errors):+.1%} to {np.nanmax(errors):+.1%}, "
          f"median {np.nanmedian(errors):+.1%}")  # fmt: skip
    print(f"   named: {named or 'nobody'}")
    print("   " + seen["verdict"].replace("\n", "\n   "), flush=True)
    return good


def measured(places: Sequence[Host], picture: Path | None) -> dict[str, Any]:
    """What ``paceline measure --json``, started on each host, printed on rank 0."""
    with tempfile.TemporaryDirectory(prefix="bench-measure-") as directory:
        out = str(Path(directory) / "cluster.toml")
        words = [sys.executable, "-m", "paceline.cli", "measure", "--json", "--algorithms", "none",
                 "--out", out, *([] if picture is None else ["--picture", str(picture)])]  # fmt: skip
        started = [
            subprocess.Popen(
                host.command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(len(places)),
                     "MASTER_ADDR": places[0].address, "MASTER_PORT": "29578",
                     "GLOO_SOCKET_IFNAME": "port0"},
            )
            for rank, host in enumerate(places)
        ]  # fmt: skip
        try:
            said = [process.communicate(timeout=PATIENCE_S) for process in started]
        finally:
            for process in started:
                process.kill()
                process.wait()
    if not said[0][0]:
        raise RuntimeError("\n".join(stderr[-1500:] for _, stderr in said))
    found: dict[str, Any] = json.loads(said[0][0])
    return found


if __name__ == "__main__":
    sys.exit(main())
