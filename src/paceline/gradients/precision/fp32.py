"""``precision="fp32"``: nothing is cast. The model computes in its parameters' own types, whatever
they are: float32, float64, or 16 bits with float32 masters (:mod:`.masters`)."""

from __future__ import annotations

from paceline.gradients.precision.mode import Mode

MODE = Mode(name="fp32", autocast=None, refusal=lambda types: "")
