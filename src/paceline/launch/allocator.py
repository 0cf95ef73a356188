"""What glibc's allocator is told in the processes that `paceline run` starts.

Each step allocates and frees the same activations and gradients. By default glibc hands large blocks
back to the kernel at once and gets them again page by page, zeroed: up to 40 % of a step on the CPU
(docs/performance.md). Here freed memory is kept for the next step. A user's own setting stays.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

_KEEP_UP_TO_BYTES = 4 * 2**30
_LARGEST_BLOCK_BYTES = 32 * 2**20  # glibc takes no more; larger blocks always come from the kernel

_SETTINGS = {
    "MALLOC_TRIM_THRESHOLD_": str(_KEEP_UP_TO_BYTES),
    "MALLOC_MMAP_THRESHOLD_": str(_LARGEST_BLOCK_BYTES),
}


def allocator_environment() -> Mapping[str, str]:
    """Environment variables for a process that trains, or steps parameters."""
    return {name: os.environ.get(name, value) for name, value in _SETTINGS.items()}
