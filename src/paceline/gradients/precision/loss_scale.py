"""The number by which losses are multiplied so that fp16 gradients do not flush to zero. Pure.

As torch's ``GradScaler`` does it (torch/amp/grad_scaler.py, ``update``): begin high, halve when a
gradient overflowed, double after a long time without. Powers of two, so that scaling and unscaling
change no bit of what stays in range. Who overflowed, and who has to agree, is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

INITIAL = 2.0**16
PATIENCE = 2000
SMALLEST = 2.0**-24
LARGEST = 2.0**64
"""Without it a model whose gradients are all zero would double for ever."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossScale:
    """``value`` holds for a whole window. ``patience``: applied windows in a row until it doubles,
    0 if it is constant; ``good``: how many there have been."""

    value: float = 1.0
    patience: int = 0
    good: int = 0

    @property
    def dynamic(self) -> bool:
        """Whether windows change it."""
        return self.patience > 0

    def after(self, finite: bool) -> LossScale:
        """The scale of the next window: this one's gradients were applied, or not ``finite``."""
        if not self.dynamic:
            return self
        if not finite:
            return replace(self, value=max(SMALLEST, self.value / 2), good=0)
        if self.good + 1 < self.patience:
            return replace(self, good=self.good + 1)
        return replace(self, value=min(LARGEST, self.value * 2), good=0)


UNSCALED = LossScale()


def dynamic_scale() -> LossScale:
    """A new dynamic scale."""
    return LossScale(value=INITIAL, patience=PATIENCE)
