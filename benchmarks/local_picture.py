"""What meeting less often gives and costs: ``local_picture.py [--picture docs/images/local.svg]``.

Time is simulated on examples/cluster_slow_links.toml. How far replicas are apart just before they meet is
measured in virtual time: four workers train examples/digits_cnn.py, whose pass of 30 windows is a whole number
of rounds. About a minute.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paceline.report.drifts import apart
from paceline.report.svg import LINE_COLOURS
from paceline.runs import read_run
from paceline.simulate.cluster import ClusterModel
from paceline.simulate.predict import Scenario, predict
from paceline.strategies import parse_strategy

ROOT = Path(__file__).resolve().parents[1]
CLUSTER = ROOT / "examples" / "cluster_slow_links.toml"
STEPS = 4800
ROUNDS = (1, 2, 4, 8, 16, 32, 64, 128)
FRAGMENTS = (1, 2, 4, 8, 16)
WINDOWS = 48
APART = (1, 2, 5, 10, 30)
EPOCHS, BATCH = 3, 12
"""120 batches for four workers: 30 windows a pass."""


def window_s(word: str) -> float:
    """What a window takes on average, exchanges included, in simulated seconds."""
    cluster = ClusterModel.load(CLUSTER)
    scenario = Scenario(cluster=cluster, steps=STEPS, network=cluster.network)
    return predict(parse_strategy(word), scenario)[0].time_s / STEPS


def exchange_s(fragments: int) -> float:
    """How long the links are busy at a time, in simulated seconds."""
    cluster = ClusterModel.load(CLUSTER)
    assert cluster.network is not None
    return cluster.network.in_parts(fragments).all_reduce_s(workers=cluster.count, number=0)


def drift(word: str) -> float:
    """Distance from the mean over its size as the last pass ended, mean over the workers."""
    with tempfile.TemporaryDirectory(prefix="local-picture-") as name:
        subprocess.run(
            [
                sys.executable, "-m", "paceline.cli", "run", "-n", "4", "--virtual", str(CLUSTER),
                "--strategy", word, "--seed", "0", "--out", f"{name}/run",
                str(ROOT / "examples" / "digits_cnn.py"),
                "--epochs", str(EPOCHS), "--batch", str(BATCH),
            ],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        return statistics.fmean(apart(rank)[-1][1] for rank in read_run(f"{name}/run").ranks)


def drawn(axes: Axes, title: str, xlabel: str, places: list[int]) -> None:
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(xlabel)
    axes.set_xscale("log")
    axes.set_xticks(places, [str(one) for one in places])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def picture(
    times: dict[int, float], sync_s: float, parts: dict[int, tuple[float, float]],
    drifts: dict[int, float], path: Path,
) -> None:  # fmt: skip
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    first, second = LINE_COLOURS[:2]
    left.plot(list(times), list(times.values()), "o-", color=first)
    left.axhline(sync_s, color=second, linestyle="--")
    left.text(max(times), sync_s, "sync", ha="right", va="bottom", fontsize=9)
    drawn(left, "a window of local:H, s (simulated)", "H", list(times))
    both = list(zip(*parts.values(), strict=True))
    middle.plot(list(parts), both[0], "o-", color=first, label="an exchange")
    middle.plot(list(parts), both[1], "s--", color=second, label="a window, on average")
    middle.legend(frameon=False, fontsize=9)
    drawn(middle, f"diloco:{WINDOWS} in P fragments, s (simulated)", "P", list(parts))
    right.plot(list(drifts), [100 * one for one in drifts.values()], "o-", color=first)
    drawn(right, "apart before they meet, % (measured)", "H of local:H", list(drifts))
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path, default=ROOT / "docs" / "images" / "local.svg")
    args = parser.parse_args()
    sync_s = window_s("sync")
    times = {windows: window_s(f"local:{windows}") for windows in ROUNDS}
    print(f"sync       {sync_s:.3f} s a window", flush=True)
    for windows, took_s in times.items():
        print(f"local:{windows:<4} {took_s:.3f} s a window", flush=True)
    parts = {}
    for count in FRAGMENTS:
        parts[count] = exchange_s(count), window_s(f"diloco:{WINDOWS}:0.7:0.9:{count}")
        print(
            f"{count:2} fragments: an exchange {parts[count][0]:.3f} s, a window {parts[count][1]:.3f} s"
        )
    drifts = {}
    for windows in APART:
        drifts[windows] = drift(f"local:{windows}")
        print(f"local:{windows:<3} {drifts[windows]:.3%} apart before they meet", flush=True)
    with rc_context({"svg.hashsalt": "paceline", "svg.fonttype": "none"}):
        picture(times, sync_s, parts, drifts, args.picture)


if __name__ == "__main__":
    main()
