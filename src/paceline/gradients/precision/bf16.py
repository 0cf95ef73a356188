"""``precision="bf16"``: forward under bf16 autocast. Parameters and gradients stay float32, and as bf16
has float32's range nothing flushes or overflows that would not there: no loss scale."""

from __future__ import annotations

from functools import partial

import torch

from paceline.gradients.precision.mode import Mode, refusal_of_autocast

MODE = Mode(name="bf16", autocast=torch.bfloat16, refusal=partial(refusal_of_autocast, "bf16"))
