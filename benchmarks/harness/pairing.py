"""Interleaved pairs of blocks of two sides, one of which always sleeps: the heart of the benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from harness.bench import Bench
from harness.figures import ratios, step_s, steps_for
from harness.results import Row
from harness.sides import Side

PROBE_STEPS = 3
Answers = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Series:
    """Step times of both sides, pair by pair. ``our_blocks``: all answers, warm-up included.

    ``updates``: how many steps of each worker every side has made.
    """

    ours_s: list[float]
    peer_s: list[float]
    our_blocks: list[Answers]
    updates: int

    @property
    def ratios(self) -> list[float]:
        return ratios(self.ours_s, self.peer_s)

    def row(self, key: str, *, note: str = "", failure: str = "") -> Row:
        """The series as a row of the table."""
        return Row(
            key=key,
            value=median(self.ratios),
            values=self.ratios,
            ours_s=median(self.ours_s),
            peer_s=median(self.peer_s),
            note=note,
            failure=failure,
        )


def in_pairs(ours: Side, peer: Side, bench: Bench, title: str) -> Series:
    """Two warm-up blocks of each side, then ``bench.pairs`` pairs whose order alternates.

    All blocks of a pair have the same number of steps, so both sides train equally long.
    """
    probe = [_block(side, PROBE_STEPS) for side in (peer, ours)]
    warm_steps = steps_for(bench.block_s / 2, step_s(probe[0]))  # first steps are slow
    warm = [_block(side, warm_steps) for side in (peer, ours)]
    steps = steps_for(bench.block_s, step_s(warm[0]))
    blocks: dict[Side, list[Answers]] = {ours: [], peer: []}
    for number in range(bench.pairs):
        for side in (ours, peer) if number % 2 == 0 else (peer, ours):
            blocks[side].append(_block(side, steps))
        ratio = step_s(blocks[ours][-1]) / step_s(blocks[peer][-1])
        bench.say(f"{title}: pair {number + 1} of {bench.pairs}, ratio {ratio:.3f}")
    return Series(
        ours_s=[step_s(block) for block in blocks[ours]],
        peer_s=[step_s(block) for block in blocks[peer]],
        our_blocks=[probe[1], warm[1], *blocks[ours]],
        updates=PROBE_STEPS + warm_steps + steps * bench.pairs,
    )


def _block(side: Side, steps: int) -> Answers:
    return side.ask("block", steps=steps)
