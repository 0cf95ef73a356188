"""One seed for every source of randomness a script usually draws from.

Every rank is seeded alike, so that replicas start equal; the Worker then gives the other ranks
streams of their own (see :mod:`paceline.worker`).
"""

from __future__ import annotations

import random


def seed_everything(seed: int) -> None:
    """Seed ``random``, numpy and torch (all devices). ``seed``: 0 to 2**32 - 1."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
