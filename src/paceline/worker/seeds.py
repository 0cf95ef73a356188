"""Random streams: rank 0 keeps the script's, every other rank gets one of its own (dropout)."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import torch


def reseed(seed: int, *, rank: int) -> None:
    """Seed torch, random and numpy for ``rank`` of the run that has ``seed``. Rank 0: untouched."""
    if rank == 0:
        return
    digest = hashlib.sha256(f"rank {seed} {rank}".encode()).digest()
    own = int.from_bytes(digest[:7], "little")
    torch.manual_seed(own)
    random.seed(own)
    np.random.seed(own % 2**32)
