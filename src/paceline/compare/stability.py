"""Is a run's loss stable, held against sync's at equal samples? (FORMULAS, "When does the loss oscillate?")

    L = final loss / sync's;   D = largest rise of the per-epoch median of the log loss
    P = how far the loss came down / how far sync's did, both from sync's beginning
    DIVERGED    not finite, L > 2, or P < 1/2 (also: no lower than at the beginning)
    OSCILLATES  D > 0.05, and D > 2 x sync's own
    WORSE       L > 1.05, or P < 0.95, and the interval over seeds, paired, agrees; without one: "worse?"
    NOISY       high-frequency rms > 2 x sync's (harmless)
    SMOOTH      else

The loss is a held-out one that the script logs (a metric whose name ends in loss, error or perplexity), judged
by L; without one the training loss stands in for it, judged by P: once both are near 0, a multiple of sync's
training loss is harmless. Knows no file; numbers in, a word out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, log, nan
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
LARGEST_RATIO = 2.0
RISE = 0.05
RISE_OF_SYNC = 2.0
"""Evaluated once an epoch near its floor, sync's loss too rises by more than 0.05 between epochs."""
WORSE_RATIO = 1.05
LEAST_PROGRESS = 0.5
WORSE_PROGRESS = 0.95
LEAST_FALL = 0.1
"""Where sync's own training loss came down by less than a tenth, a share of that would be noise."""
NOISE_OF_SYNC = 2.0
PARTS = 10
"""A run without as many passes over the data is cut into so many parts instead of epochs."""
FEWEST_PASSES = 3
QUANTILES = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306}
"""Student's t, 97.5 %, by the number of pairs."""
MANY_PAIRS = 2.262

WORDS = ("DIVERGED", "OSCILLATES", "WORSE", "worse?", "NOISY", "SMOOTH")


@dataclass(frozen=True, kw_only=True, slots=True)
class LossShape:
    """What counts of one run's loss. ``name``: the metric, or "" for the training loss.

    ``medians``: of the log loss, an entry an epoch; ``noise``: high-frequency rms of the log loss;
    ``first``: the training loss at the beginning; ``finite``: whether every loss was.
    """

    seed: int
    name: str
    medians: tuple[float, ...]
    noise: float
    first: float
    finite: bool

    @property
    def final(self) -> float:
        """The loss at the end: of the last epoch, the median."""
        if not self.finite:
            return inf
        return exp(self.medians[-1]) if self.medians else nan

    @property
    def rise(self) -> float:
        """D: the largest from an epoch to the next; 0 if it always fell."""
        return max(0.0, *np.diff(self.medians).tolist(), 0.0) if self.finite else inf


@dataclass(frozen=True, kw_only=True, slots=True)
class Stability:
    """``word``: one of ``WORDS``. ``ratio``: L, mean over seeds; ``rise``: D, of the worst seed.
    ``progress``: P, mean over seeds; NaN for a held-out loss, or where sync's hardly came down."""

    word: str
    ratio: float
    rise: float
    name: str
    progress: float = nan

    def __str__(self) -> str:
        """What was judged is said: the ratio, or the progress in per cent."""
        if self.name:
            return f"{self.word} {self.ratio:.2f}" if isfinite(self.ratio) else self.word
        return f"{self.word} {100 * self.progress:.0f} %" if isfinite(self.progress) else self.word


def shape_of(
    *,
    seed: int,
    name: str,
    samples: Sequence[float],
    losses: Sequence[float],
    passes: int,
    first: float,
) -> LossShape | None:
    """The shape of ``losses`` at ``samples``. None if they are too few, or some are not positive."""
    finite = all(map(isfinite, losses))
    if finite and (len(losses) < 2 or min(losses) <= 0):
        return None
    logs = np.log(losses) if finite else np.empty(0)
    return LossShape(
        seed=seed, name=name, medians=_medians(samples, logs, passes) if finite else (),
        noise=_noise(logs), first=first, finite=finite,
    )  # fmt: skip


def judged(own: Sequence[LossShape], sync: Sequence[LossShape]) -> Stability | None:
    """How ``own`` runs stand against ``sync``'s of the same seeds; None if there is nothing to judge by."""
    pairs = [(one, other) for one in own for other in sync if one.seed == other.seed]
    pairs = [(one, other) for one, other in pairs if one.name == other.name and other.finite]
    if not pairs:
        return None
    ratios = [one.final / other.final for one, other in pairs]
    progress = [_progress(one, other) for one, other in pairs]
    return Stability(
        word=_word(pairs, ratios, progress), ratio=float(np.mean(ratios)), name=own[0].name,
        rise=max(one.rise for one, _ in pairs), progress=float(np.mean(progress)),
    )  # fmt: skip


Pairs = Sequence[tuple[LossShape, LossShape]]


def _word(pairs: Pairs, ratios: Sequence[float], progress: Sequence[float]) -> str:
    held_out = bool(pairs[0][0].name)
    if any(not own.finite or _learnt_nothing(own) for own, _ in pairs):
        return "DIVERGED"
    if max(ratios) > LARGEST_RATIO if held_out else min(progress) < LEAST_PROGRESS:
        return "DIVERGED"
    if any(a.rise > max(RISE, RISE_OF_SYNC * b.rise) for a, b in pairs):
        return "OSCILLATES"
    if float(np.mean(ratios)) > WORSE_RATIO if held_out else np.mean(progress) < WORSE_PROGRESS:
        behind = [log(one) for one in ratios] if held_out else [1.0 - one for one in progress]
        return "WORSE" if _surely_above_0(behind) else "worse?"
    if np.mean([a.noise for a, _ in pairs]) > NOISE_OF_SYNC * np.mean([b.noise for _, b in pairs]):
        return "NOISY"
    return "SMOOTH"


def _progress(own: LossShape, sync: LossShape) -> float:
    """Of what sync's training loss came down from its beginning, how much did this one? NaN: not to be said.

    Both began with the same parameters: sync's beginning is both's, for one batch's loss is noise.
    """
    fall = sync.first - sync.final
    if own.name or not own.finite or not fall > LEAST_FALL * sync.first:
        return nan
    return (sync.first - own.final) / fall


def _learnt_nothing(shape: LossShape) -> bool:
    """Only the training loss can be held against its own beginning."""
    return not shape.name and shape.final >= shape.first


def _surely_above_0(values: Sequence[float]) -> bool:
    """Whether the two-sided 95 % interval of the mean lies above 0 (Student's t)."""
    if len(values) < 2:
        return False
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return bool(np.mean(values) > QUANTILES.get(len(values), MANY_PAIRS) * error)


def _medians(samples: Sequence[float], logs: Floats, passes: int) -> tuple[float, ...]:
    """Of the log losses of each epoch, those without any left out."""
    parts = passes if passes >= FEWEST_PASSES else PARTS
    place = np.ceil(np.asarray(samples) / max(samples[-1], 1e-9) * parts - 1e-6)
    return tuple(float(np.median(logs[place == part])) for part in np.unique(place))


def _noise(logs: Floats) -> float:
    """Rms of what neighbours do not explain: second differences of white noise have variance 6."""
    if len(logs) < 3:
        return 0.0
    return float(np.sqrt(np.mean(np.diff(logs, 2) ** 2) / 6))
