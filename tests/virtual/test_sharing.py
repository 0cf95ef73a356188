"""Equal arrays of several workers are kept once, and nobody can tell."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from paceline.virtual.sharing import Sharing, _private_ranges

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are shared on Linux only")
MEBIBYTE = 2**20


def numbers(count: int = 3 * MEBIBYTE) -> torch.Tensor:
    return torch.arange(count, dtype=torch.float32)


def resident_private_bytes() -> int:
    """Memory that is this process's alone."""
    text = Path("/proc/self/smaps_rollup").read_text()
    line = next(line for line in text.splitlines() if line.startswith("Anonymous:"))
    return int(line.split()[1]) * 1024


def as_a_script(sharing: Sharing, held: object) -> None:
    """A function of a script that holds something while its worker joins."""
    sharing.look_through(sys._getframe())


def test_equal_data_of_many_workers_takes_the_room_of_one() -> None:
    sharing = Sharing()
    loaders = []
    before = resident_private_bytes()
    for _ in range(6):
        loaders.append(DataLoader(TensorDataset(numbers()), batch_size=4))
        as_a_script(sharing, loaders[-1])
    grown = resident_private_bytes() - before
    assert grown < 2 * 12 * MEBIBYTE, f"{grown / MEBIBYTE:.0f} MiB for six times 12"
    assert all(torch.equal(one.dataset.tensors[0], numbers()) for one in loaders)


def test_what_one_worker_writes_no_other_sees() -> None:
    sharing = Sharing()
    first, second, other = numbers(), numbers(), np.arange(MEBIBYTE)
    as_a_script(sharing, [first, {"deep": (second,)}, other])
    second[5:9] = -1.0
    assert torch.equal(first, numbers())
    assert second[4:10].tolist() == [4, -1, -1, -1, -1, 9]
    assert np.array_equal(other, np.arange(MEBIBYTE))


def test_memory_that_others_see_is_left_alone() -> None:
    shared = numbers().share_memory_()
    sharing = Sharing()
    as_a_script(sharing, [shared, numbers()])
    address = shared.data_ptr()
    assert not any(start <= address < stop for start, stop in _private_ranges())
    text = Path("/proc/self/maps").read_text().splitlines()
    bounds = [line.split()[0].split("-") + line.split()[1:2] for line in text]
    inside = [p for a, b, p in bounds if int(a, 16) <= address < int(b, 16)]
    assert inside == ["rw-s"]


def test_what_cannot_be_read_is_left_alone() -> None:
    odd = [
        np.array(["2026-01-01"] * MEBIBYTE, dtype="datetime64[D]"),
        np.ma.zeros(MEBIBYTE),
        torch.nn.LazyLinear(3),
        np.array(["a", None] * 4, dtype=object),
        torch.empty(MEBIBYTE, device="meta"),
        torch.zeros(3).to_sparse(),
    ]
    as_a_script(Sharing(), odd)
