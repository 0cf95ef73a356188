"""Random numbers by counter: each is a function of (seed, rank, step) alone, whoever asks and when.

Philox (Salmon et al., SC 2011) turns a counter into numbers. Knows no cluster; keeps no state.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BLOCK_STEPS = 256
_WORDS_PER_STEP = 4
_STREAM_STEPS, _STREAM_GROUPS, _STREAM_LINKS = 0, 1, 2
"""Third word of the counter: each kind of event draws from a stream of its own."""


def step_draws(seed: int, rank: int, block: int) -> tuple[Floats, Floats]:
    """Exp(1) and uniform [0, 1) numbers of the ``BLOCK_STEPS`` steps of ``block``.

    A block at a time, because that makes one call cheap and leaves no second way to compute the
    same number.
    """
    uniform = _uniform(seed, rank, block, _STREAM_STEPS)
    return -np.log1p(-uniform[:, 0]), uniform[:, 1]


@lru_cache(maxsize=256)
def step_draws_as_lists(seed: int, rank: int, block: int) -> tuple[list[float], list[float]]:
    """:func:`step_draws`, for those who want one number at a time."""
    extra, chance = step_draws(seed, rank, block)
    return extra.tolist(), chance.tolist()


def link_draws(seed: int, rank: int, block: int) -> Floats:
    """Exp(1) numbers, shape (``BLOCK_STEPS``, 3): of each window's push, pull, and collective."""
    uniform = _uniform(seed, rank, block, _STREAM_LINKS)[:, :3]
    exponential: Floats = -np.log1p(-uniform)
    return exponential


@lru_cache(maxsize=256)
def link_draws_as_lists(seed: int, rank: int, block: int) -> list[list[float]]:
    """:func:`link_draws`, for those who want one number at a time."""
    draws: list[list[float]] = link_draws(seed, rank, block).tolist()
    return draws


@lru_cache(maxsize=1024)
def chosen(seed: int, group: int, *, count: int, of: int) -> tuple[int, ...]:
    """``count`` different numbers below ``of``: those whose draws in ``group`` are the smallest."""
    counter = np.array([group * of, 0, _STREAM_GROUPS, 0], dtype=np.uint64)
    raw = np.random.Philox(counter=counter, key=_key(seed)).random_raw(of)
    return tuple(np.argsort(raw, kind="stable")[:count].tolist())


def _uniform(seed: int, rank: int, block: int, stream: int) -> Floats:
    """Uniform [0, 1) numbers, shape (``BLOCK_STEPS``, ``_WORDS_PER_STEP``)."""
    counter = np.array([block * BLOCK_STEPS, rank, stream, 0], dtype=np.uint64)
    bits = np.random.Philox(counter=counter, key=_key(seed))
    raw = bits.random_raw(BLOCK_STEPS * _WORDS_PER_STEP).reshape(BLOCK_STEPS, _WORDS_PER_STEP)
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


@lru_cache(maxsize=16)
def _key(seed: int) -> npt.NDArray[np.uint64]:
    return np.asarray(np.random.SeedSequence(seed).generate_state(2, np.uint64), dtype=np.uint64)
