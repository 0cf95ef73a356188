"""``precision="fp16"``: forward under fp16 autocast. Parameters and gradients stay float32, but backward
passes through fp16, which flushes below 6e-8 and overflows above 65504: hence a loss scale."""

from __future__ import annotations

from functools import partial

import torch

from paceline.gradients.precision.mode import Mode, refusal_of_autocast

MODE = Mode(name="fp16", autocast=torch.float16, refusal=partial(refusal_of_autocast, "fp16"))
