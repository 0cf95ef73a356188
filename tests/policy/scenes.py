"""Hypothesis strategies for scenes and tapes, and how many of them the quick and the full run take."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from policy.world import Scene

PER_PUSH = ("async", "ssp:1", "ssp:2", "ssp:3", "ssp:1:sum", "async:sum")
JOINT = ("sync:server", "sync:server:continue", "ssp:0", "backup:1", "backup:2")

QUICK = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
FULL = settings(QUICK, max_examples=10_000)

# Short tapes shrink well; only long ones, which Hypothesis rarely makes by itself, go deep.
short_tapes = st.lists(st.integers(0, 2**16 - 1), max_size=60)
long_tapes = st.builds(
    lambda seed, length: Random(seed).choices(range(2**16), k=length),
    st.integers(0, 2**32),
    st.integers(40, 200),
)
tapes = short_tapes | long_tapes
speeds = st.lists(st.sampled_from([1, 1, 1, 4]), min_size=6, max_size=6)


def scenes(*strategies: str) -> st.SearchStrategy[Scene]:
    """Scenes under one of ``strategies``."""
    return st.builds(
        Scene,
        strategy=st.sampled_from(strategies),
        world_size=st.integers(1, 4),
        window=st.sampled_from([1, 1, 2, 3]),
        depth=st.integers(3, 6),
        end=st.integers(0, 30),
        known=st.booleans(),
        split=st.sampled_from([True, True, True, False]),
        passes=st.integers(1, 3),
        extra=st.integers(0, 1),
    )
