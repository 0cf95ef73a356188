"""Fixtures that many test modules use. Imports torch only when asked for it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Bits depend on the thread count: oracles compute with as many as the workers, one."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_collection_finish() -> None:
    """What was imported lives as long as the tests do: collecting garbage need not look at it again."""
    gc.collect()
    gc.freeze()
