"""What encoding costs: ``make bench-encoding``, 25 million values, one thread, every codec.

Top-k is held against ``torch.topk`` of the same values, taking turns in this call; the goal is 0.12 of
its time. A push is what a worker does with a whole gradient: residuals added, encoded, residuals kept. Times
are of the processor that the one thread had: other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from rich import box
from rich.table import Table

from paceline.compression import parse_compression
from paceline.cost import ring
from paceline.gradients.codecs.choosing import Codecs
from paceline.gradients.codecs.feedback import feedback_for
from paceline.gradients.codecs.packing import Moment, Packer, Unpacker
from paceline.gradients.codecs.topk import TopKCodec
from paceline.gradients.layout import FlatLayout, layout_of
from paceline.terminal import as_text

WORDS = ("topk:0.01", "randomk:0.01", "powersgd:4", "int8", "sign")
SHAPES = {"one matrix": [(5000, 5000)], "25 matrices": [(1000, 1000)] * 25}
GOAL = 0.12
"""Of ``torch.topk``'s time, for top-k of 1 %."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="Of each; the median counts.")
    parser.add_argument("--json", action="store_true", help="Print all figures as JSON.")
    parser.add_argument("--picture", type=Path, help="Draw where each codec pays (SVG).")
    args = parser.parse_args()
    torch.set_num_threads(1)
    figures = {"topk": against_torch(args.rounds), "pushes": list(pushes(args.rounds))}
    if args.json:
        print(json.dumps(figures))
    else:
        report(figures)
    if args.picture is not None:
        draw(figures["pushes"], args.picture)
    return 0


def against_torch(rounds: int) -> dict[str, float]:
    """Seconds of encoding 1 % of 25 million values, and of ``torch.topk`` of the same; and the ratio."""
    method = parse_compression("topk:0.01")
    assert method is not None
    codec: Any = TopKCodec(method=method.method)
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(25_000_000, generator=generator)
    mine, theirs = [], []
    for _ in range(rounds):
        theirs.append(seconds(lambda: torch.topk(values.abs(), 250_000, sorted=False)))
        mine.append(seconds(lambda: codec.encode(values, 0)))
    ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
    return {
        "encode_s": statistics.median(mine),
        "torch_topk_s": statistics.median(theirs),
        "ratio": statistics.median(ratios),
    }


def pushes(rounds: int) -> Any:
    """For each codec and shape: bytes, and seconds of making a push and of reading it."""
    for name, shapes in SHAPES.items():
        layout = layout_of([(f"{n}", s, (s[1], 1), torch.float32) for n, s in enumerate(shapes)])
        gradients = layout.views(torch.zeros(layout.total_bytes, dtype=torch.uint8))
        for word in WORDS:
            yield {"values": name, "codec": word, **_push(word, layout, gradients, rounds)}


def _push(
    word: str, layout: FlatLayout, gradients: list[torch.Tensor], rounds: int
) -> dict[str, float]:
    compression = parse_compression(word)
    assert compression is not None
    feedback = feedback_for(compression, layout.slots, None)
    packer = Packer(layout.slots, Codecs(compression, layout.slots), feedback)
    reader = Unpacker(compression, layout.slots)
    used, generator = bytes([1] * len(layout.slots)), torch.Generator().manual_seed(0)
    made, read, size = [], [], 0
    for turn in range(rounds + 1):  # the first one makes residuals, and does not count
        for gradient in gradients:
            gradient.normal_(generator=generator)
        moment = Moment(turn=turn, share=1.0, unit=1.0)
        began_s = time.thread_time()
        parcel = packer.pack(gradients, used, moment).parcel
        made.append(time.thread_time() - began_s)
        assert parcel is not None
        packer.settle(True)
        data = parcel.numpy().tobytes()
        read.append(seconds(lambda data=data: reader.unpack(data, gradients, used)))
        size = len(data)
    return {
        "bytes": size,
        "push_s": statistics.median(made[1:]),
        "read_s": statistics.median(read[1:]),
    }


def seconds(work: Callable[[], object]) -> float:
    began_s = time.thread_time()
    work()
    return time.thread_time() - began_s


def report(figures: dict[str, Any]) -> None:
    topk = figures["topk"]
    verdict = "ok" if topk["ratio"] <= GOAL else "MISSED"
    print(
        f"1 % of 25,000,000 values: {1e3 * topk['encode_s']:.0f} ms to encode, "
        f"{1e3 * topk['torch_topk_s']:.0f} ms for torch.topk: {topk['ratio']:.3f} of it "
        f"(goal {GOAL}: {verdict})\n"
    )
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("values", "codec", "MB of 100", "push, ms", "read, ms"):
        table.add_column(name, justify="left" if name in ("values", "codec") else "right")
    for one in figures["pushes"]:
        times = [f"{1e3 * one[key]:.0f}" for key in ("push_s", "read_s")]
        table.add_row(one["values"], one["codec"], f"{one['bytes'] / 1e6:.2f}", *times)
    print(as_text(table))


def draw(pushes: list[dict[str, Any]], path: Path) -> None:
    """Seconds from a gradient of 25 matrices to the sum of two hosts', over the wire's bandwidth: coding
    as measured here, the wire by the formulas of :mod:`paceline.cost`."""
    plt.rcParams["svg.hashsalt"] = "paceline"
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    rates = [1e6 * 10 ** (tenth / 10) for tenth in range(10, 41)]  # bytes a second
    whole = [ring(2, 100e6, rate, 0.0) for rate in rates]
    axes.loglog([8 * rate for rate in rates], whole, "k", label="none")
    for one in pushes:
        if one["values"] == "25 matrices":
            coding_s = one["push_s"] + one["read_s"]
            times = [coding_s + ring(2, one["bytes"], rate, 0.0) for rate in rates]
            axes.loglog([8 * rate for rate in rates], times, label=one["codec"])
    axes.set(xlabel="wire, bit/s", ylabel="coding and wire, s", title="100 MB, two hosts")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    sys.exit(main())
