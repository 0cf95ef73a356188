"""What a codec of the user's may get wrong, and that a sentence names the codec and the parameter."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from compress.trained import Mine
from paceline.compression import parse_compression
from paceline.errors import UsageError
from paceline.gradients.codecs.choosing import Codecs
from paceline.gradients.codecs.encoding import encode
from paceline.gradients.codecs.own import OwnCodec
from paceline.gradients.layout import layout_of
from paceline.payloads import payload_bytes

SHAPE = (40, 50)


class Longer(Mine):
    def encode(self, values: torch.Tensor, turn: int) -> torch.Tensor:
        return super().encode(values, turn)[: -4 * turn]


class Floats(Mine):
    def encode(self, values: torch.Tensor, turn: int) -> torch.Tensor:
        return self._half(values, turn)


class Square(Mine):
    def encode(self, values: torch.Tensor, turn: int) -> torch.Tensor:
        return super().encode(values, turn).view(2, -1)


class Bytes(Mine):
    def encode(self, values: torch.Tensor, turn: int) -> Any:
        return bytes(super().encode(values, turn).tolist())


class Elsewhere(Mine):
    def encode(self, values: torch.Tensor, turn: int) -> torch.Tensor:
        return super().encode(values, turn).to("meta")


class Failing(Mine):
    def encode(self, values: torch.Tensor, turn: int) -> torch.Tensor:
        raise IndexError("no such place")


class Spoiling(Mine):
    def encode(self, values: torch.Tensor, turn: int) -> torch.Tensor:
        values.mul_(2)
        return super().encode(values, turn)


class Unread(Mine):
    def decode(self, parcel: torch.Tensor, out: torch.Tensor, turn: int) -> None:
        return


class Unreadable(Mine):
    def decode(self, parcel: torch.Tensor, out: torch.Tensor, turn: int) -> None:
        out.copy_(parcel)


class Odd(Mine):
    def encode(self, values: torch.Tensor, turn: int) -> torch.Tensor:
        return torch.zeros(10, dtype=torch.uint8)

    def payload_bytes(self, shape: tuple[int, ...], item_bytes: int) -> int:
        return 10


@pytest.mark.parametrize(
    ("codec", "method", "said"),
    [
        (Longer(), "encode", "3996 bytes, and payload_bytes promised 4000"),
        (Floats(), "encode", "a tensor of float32 in 1 dimensions"),
        (Square(), "encode", "uint8 in 2 dimensions"),
        (Bytes(), "encode", "returned a bytes"),
        (Elsewhere(), "encode", "on meta.*Return it on cpu"),
        (Failing(), "encode", "failed: IndexError: no such place"),
        (Spoiling(), "encode", "changed the gradient"),
        (Unread(), "decode", "written nothing into out"),
        (Unreadable(), "decode", "failed: RuntimeError"),
        (Odd(summable=True), "summable", "a payload has 10 bytes"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Mine) else "",
)
def test_a_mistake_is_a_sentence(codec: Mine, method: str, said: str) -> None:
    where = f"compress={type(codec).__name__}: {method} of parameter layer.weight"
    with pytest.raises(UsageError, match=f"{where}.*{said}"):
        encode(OwnCodec(codec, "layer.weight"), torch.randn(SHAPE), 1)


def test_a_promise_is_a_number_of_bytes() -> None:
    codec = Mine()
    codec.payload_bytes = lambda shape, item_bytes: 4000.0  # type: ignore[method-assign, assignment, return-value]
    compression = parse_compression(codec)
    assert compression is not None
    with pytest.raises(UsageError, match=r"Mine.payload_bytes\(\(40, 50\), 4\)=4000.0"):
        payload_bytes(compression.method, SHAPE, 4)


def test_the_payload_is_not_the_gradients_memory() -> None:
    """Mine sends a view of it, of which what was sent is then taken out."""
    gradient = torch.randn(SHAPE)
    before = gradient.clone().view(-1)
    encoded = encode(OwnCodec(Mine(), "w"), gradient, 1)
    assert torch.equal(encoded.piece.view(torch.float32), before[:1000])
    assert not gradient.view(-1)[:1000].any()
    assert torch.equal(gradient.view(-1)[1000:], before[1000:])


def test_every_parameter_has_a_codec_that_knows_its_name() -> None:
    slots = layout_of(
        [("a", SHAPE, (50, 1), torch.float32), ("b", (8,), (1,), torch.float32)]
    ).slots
    compression = parse_compression(Failing())
    assert compression is not None
    first, second = Codecs(compression, slots).at(1.0)
    assert second is None
    assert first is not None
    with pytest.raises(UsageError, match="Failing: encode of parameter a"):
        first.encode(torch.zeros(SHAPE), 0)
