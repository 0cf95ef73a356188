"""Each codec alone: what it keeps, how many bytes it makes, and what it refuses to read."""

from __future__ import annotations

import struct

import pytest
import torch

from compress.models import SHAPES, WORDS, compression, layout, packer, unpacker, views
from paceline.compression import PowerSGD, RandomK, TopK, at
from paceline.gradients.codecs.codec import ParcelError
from paceline.gradients.codecs.largest import largest
from paceline.gradients.codecs.packing import Moment
from paceline.gradients.codecs.powersgd import PowerSGDCodec
from paceline.gradients.codecs.randomk import RandomKCodec
from paceline.gradients.codecs.topk import TopKCodec
from paceline.payloads import kept, push_bytes

ALL = b"\1\1\1"
pytestmark = pytest.mark.usefixtures("one_thread")
END = Moment(turn=5, share=1.0, unit=1.0)


def filled(seed: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    made = views(layout(dtype))
    for one in made:
        one.copy_(torch.randn(one.shape, generator=generator, dtype=dtype))
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("word", WORDS)
def test_bytes_are_those_of_the_formula_and_stand_for_what_was_sent(
    word: str, dtype: torch.dtype
) -> None:
    of, gradients = layout(dtype), filled(0, dtype)
    before = [one.clone() for one in gradients]
    sender = packer(word, of)
    packed = sender.pack(gradients, ALL, END)
    assert packed.parcel is not None
    method = at(compression(word), 1.0)
    assert len(packed.parcel) == push_bytes(method, [(s, dtype.itemsize) for s in SHAPES])
    out = filled(1, dtype)
    unpacker(word, of).unpack(packed.parcel.numpy().tobytes(), out, ALL)
    sender.settle(True)
    left = sender.state()["residuals"]
    for name, whole, got in zip(("p0", "p1", "p2"), before, out, strict=True):
        assert torch.allclose(got + left.get(name, torch.tensor(0.0)), whole, atol=1e-6)
    assert "p1" not in left  # one dimension: sent whole
    assert packed.squares == pytest.approx(sum(float(o.square().sum()) for o in out), rel=1e-5)


@pytest.mark.parametrize("word", WORDS)
def test_unused_parameters_do_not_travel(word: str) -> None:
    of, out = layout(), filled(1)
    sender = packer(word, of)
    packed = sender.pack(filled(0), b"\0\1\1", END)
    assert packed.parcel is not None
    unpacker(word, of).unpack(packed.parcel.numpy().tobytes(), out, b"\0\1\1")
    assert not out[0].any()
    assert out[1].any()
    with pytest.raises(ParcelError, match="bytes, expected"):
        unpacker(word, of).unpack(packed.parcel.numpy().tobytes(), out, ALL)


@pytest.mark.parametrize("count", [700, 3000, 70_000])
def test_topk_takes_exactly_the_largest(count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    values = torch.randn(300_000, generator=generator) ** 3
    chosen = largest(values, count)
    expected = torch.topk(values.abs(), count).values
    assert len(chosen.unique()) == count
    assert torch.equal(values[chosen].abs().sort(descending=True).values, expected)


@pytest.mark.parametrize(
    "values",
    [
        torch.zeros(200_000), torch.ones(200_000), torch.arange(200_000.0),
        torch.cat([torch.ones(10), torch.zeros(199_990)]),
        torch.zeros(200_000).index_fill_(0, torch.arange(0, 200_000, 1000), 2.0),
    ],
)  # fmt: skip
def test_topk_of_awkward_values_has_the_right_number(values: torch.Tensor) -> None:
    chosen = largest(values, 2000)
    assert len(chosen.unique()) == 2000
    rest = torch.ones(len(values), dtype=torch.bool).index_fill_(0, chosen, False)
    assert float(values[chosen].abs().min()) >= float(values[rest].abs().max())


def test_topk_of_everything_has_every_bit() -> None:
    values = filled(3)[0]
    values[0, 0] = -0.0
    codec, out = TopKCodec(method=TopK(density=1.0)), torch.empty(36, 40)
    codec.decode(codec.encode(values, 0), out, 0)
    assert torch.equal(out.view(torch.int32), values.view(torch.int32))


def test_randomk_draws_alike_and_anew() -> None:
    codec = RandomKCodec(method=RandomK(density=0.1), place=1)
    values, first, other = torch.ones(60, 50), torch.empty(60, 50), torch.empty(60, 50)
    codec.decode(codec.encode(values, 1), first, 1)
    codec.decode(codec.encode(values, 2), other, 2)
    assert int(first.sum()) == int(other.sum()) == kept(3000, 0.1)
    assert not torch.equal(first, other)
    seen = torch.zeros(60, 50)
    for turn in range(200):
        codec.decode(codec.encode(values, turn), first, turn)
        seen += first
    assert float(seen.min()) >= 5  # each value 20 times on average
    assert float(seen.max()) <= 45


def test_powersgd_finds_a_matrix_of_low_rank_by_and_by() -> None:
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(50, 3, generator=generator)
    matrix = left @ torch.randn(3, 40, generator=generator)
    matrix += 0.01 * torch.randn(50, 40, generator=generator)
    codec, out = PowerSGDCodec(PowerSGD(rank=3), 0), torch.empty(50, 40)
    errors = []
    for turn in range(4):
        codec.decode(codec.encode(matrix, turn), out, turn)
        codec.settle(True)
        errors.append(float((matrix - out).norm()))
    best = torch.linalg.svdvals(matrix)[3:].norm()
    assert errors[-1] == pytest.approx(float(best), rel=1e-2)


def test_powersgd_of_a_matrix_without_enough_directions() -> None:
    matrix = torch.outer(torch.arange(40.0), torch.ones(50))
    codec, out = PowerSGDCodec(PowerSGD(rank=4), 0), torch.empty(40, 50)
    codec.decode(codec.encode(matrix, 0), out, 0)
    assert torch.allclose(out, matrix, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("word", WORDS)
def test_what_no_encoder_made_is_refused(word: str) -> None:
    of, out = layout(), filled(1)
    packed = packer(word, of).pack(filled(0), ALL, END)
    assert packed.parcel is not None
    good = packed.parcel.numpy().tobytes()
    reader = unpacker(word, of)
    nan = struct.pack("<f", float("nan"))
    for bad in (b"", good[:10], good[:-8], good + bytes(8), good[:16] + nan + good[20:],
                struct.pack("<qd", 5, 2.0) + good[16:], struct.pack("<qd", -1, 1.0) + good[16:],
                struct.pack("<qd", 5, float("nan")) + good[16:]):  # fmt: skip
        with pytest.raises(ParcelError):
            reader.unpack(bad, out, ALL)


def test_an_index_out_of_range_is_refused() -> None:
    of, out = layout(), filled(1)
    packed = packer("topk:0.05", of).pack(filled(0), ALL, END)
    assert packed.parcel is not None
    count = kept(36 * 40, 0.05)
    at_index = 16 + 4 * count
    for index in (-1, 36 * 40):
        bad = bytearray(packed.parcel.numpy().tobytes())
        bad[at_index : at_index + 4] = struct.pack("<i", index)
        with pytest.raises(ParcelError, match="index"):
            unpacker("topk:0.05", of).unpack(bytes(bad), out, ALL)
