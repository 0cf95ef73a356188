"""A checksum is of bits, of a position, and of nothing else."""

from __future__ import annotations

import pytest
import torch

from paceline.gradients.checksum import checksums

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8,
    torch.complex64,
]  # fmt: skip
SIZES = [1, 7, 2048, 2049, 70_001]


def checksum(tensor: torch.Tensor) -> str:
    return checksums([tensor])[0]


def bits_of(dtype: torch.dtype, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    data = torch.randint(0, 256, (count * dtype.itemsize,), generator=generator, dtype=torch.uint8)
    return data.view(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", SIZES)
def test_every_bit_counts_and_a_copy_is_equal(dtype: torch.dtype, count: int) -> None:
    tensor = bits_of(dtype, count)
    before = checksum(tensor)
    assert checksum(tensor.clone()) == before
    data = tensor.view(torch.uint8)
    for place in {0, len(data) // 2, len(data) - 1}:
        for bit in (1, 128):
            data[place] ^= bit
            assert checksum(tensor) != before
            data[place] ^= bit
    assert checksum(tensor) == before


def test_signs_of_zeros_do_not_cancel() -> None:
    tensor = torch.zeros(64, 1024)
    before = checksum(tensor)
    flat = tensor.view(-1)
    for places in ([1], [1, 3], [1, 1025 * 2], [0, 2048], [5, 7, 9, 11], list(range(65536))):
        flat[places] = -0.0
        assert checksum(tensor) != before, places
        flat[places] = 0.0


def test_places_count() -> None:
    tensor = bits_of(torch.int64, 5000).clone()
    swapped = tensor.clone()
    swapped[[3, 4000]] = tensor[[4000, 3]]
    assert checksum(swapped) != checksum(tensor)
    rolled = tensor.roll(1024)
    assert checksum(rolled) != checksum(tensor)


def test_strides_and_offsets_do_not() -> None:
    tensor = torch.randn(70, 90)
    assert checksum(tensor.t().contiguous().t()) == checksum(tensor)
    moved = torch.empty(6301)[1:].view(70, 90).copy_(tensor)
    assert checksum(moved) == checksum(tensor)
    images = torch.randn(3, 8, 20, 20)
    assert checksum(images.to(memory_format=torch.channels_last)) == checksum(images)
    assert checksums([torch.empty(0), torch.empty(0, 3)])[0] == checksum(torch.empty(0))


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def test_devices_agree(device: str) -> None:
    tensors = [bits_of(torch.float32, 5000), torch.randn(3)]
    assert checksums([tensor.to(device) for tensor in tensors]) == checksums(tensors)
