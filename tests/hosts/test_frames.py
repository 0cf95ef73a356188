"""Frames and handshakes without a network: any cutting, every truncation, random mutations."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from paceline.transport.frames import HEADER_BYTES, Came, FrameReader, Kind, header
from paceline.transport.framing import FrameError
from paceline.transport.handshake import CallersHandshake, ServersHandshake

ALL = frozenset(Kind)
TENSOR = bytes(range(200)) * 3
FRAMES = [
    (Kind.HANDSHAKE, 0, b"n" * 32),
    (Kind.MESSAGE, 0, b"a"),
    (Kind.TENSOR, 3, TENSOR),
    (Kind.MESSAGE, 0, b"b" * 700),
    (Kind.TENSOR, 4, b""),
]
STREAM = b"".join(header(kind, len(body), number) + body for kind, number, body in FRAMES)
ENDS = {0}
for _, _, one in FRAMES:
    ENDS.add(max(ENDS) + HEADER_BYTES + len(one))


class Places:
    """Room for tensors 3 and 4, as the manifest of a model would give it."""

    def __init__(self) -> None:
        self.memory = {3: bytearray(len(TENSOR)), 4: bytearray()}

    def room(self, number: int, length: int) -> memoryview:
        if number not in self.memory or len(self.memory[number]) != length:
            raise FrameError(f"tensor {number} of {length} bytes has no place in the model")
        return memoryview(self.memory[number])


def reader(places: Places) -> FrameReader:
    return FrameReader(kinds=ALL, limit_bytes=1000, rooms=places.room)


def read(frames: FrameReader, stream: bytes, most: int = 10**9) -> Iterator[Came]:
    """What comes of ``stream``, taken in pieces of at most ``most`` bytes."""
    at = 0
    while at < len(stream):
        room = frames.room
        assert room.nbytes > 0
        count = min(room.nbytes, most, len(stream) - at)
        room[:count] = stream[at : at + count]
        at += count
        came = frames.wrote(count)
        if came is not None:
            yield came


@pytest.mark.parametrize("most", [1, 2, 3, 15, 16, 17, 1000])
def test_frames_survive_any_cutting(most: int) -> None:
    places = Places()
    came = list(read(reader(places), STREAM, most))
    assert [(one.kind, one.number) for one in came] == [(kind, n) for kind, n, _ in FRAMES]
    assert [one.body for one in came] == [b"" if k is Kind.TENSOR else b for k, _, b in FRAMES]
    assert places.memory[3] == TENSOR


def test_every_truncation_is_known_for_one() -> None:
    for stop in range(len(STREAM) + 1):
        frames = reader(Places())
        list(read(frames, STREAM[:stop]))
        assert frames.between_frames == (stop in ENDS), stop


def test_every_damaged_header_is_refused_or_read_as_what_it_says() -> None:
    """Nothing but FrameError ever comes of any bytes, and no memory of their choosing is taken."""
    generator = random.Random(7)
    for _ in range(4000):
        damaged = bytearray(STREAM)
        for _ in range(generator.randint(1, 4)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        places = Places()
        try:
            for came in read(reader(places), bytes(damaged)):
                assert len(came.body) <= 1000
        except FrameError:
            pass
        assert [len(memory) for memory in places.memory.values()] == [len(TENSOR), 0]


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"GET / HTTP/1.1\r\n", "no frames of paceline's"),
        (header(Kind.MESSAGE, 1001), "claims 1001 bytes; 1 to 1000"),
        (header(Kind.MESSAGE, 0), "claims 0 bytes"),
        (header(Kind.MESSAGE, 2**63), "claims"),
        (header(Kind.HANDSHAKE, 65), "claims 65 bytes; 1 to 64"),
        (header(Kind.TENSOR, 599, 3), "no place in the model"),
        (header(Kind.TENSOR, 2**40, 5), "no place in the model"),
        (header(Kind.MESSAGE, 1)[:4] + b"\x09" + header(Kind.MESSAGE, 1)[5:], "version 9"),
        (header(Kind.MESSAGE, 1)[:5] + b"\x09" + header(Kind.MESSAGE, 1)[6:], "kind 9"),
    ],
)
def test_a_header_is_judged_before_anything_follows(first: bytes, words: str) -> None:
    with pytest.raises(FrameError, match=words):
        list(read(reader(Places()), first))


def test_only_expected_kinds_are_taken() -> None:
    frames = FrameReader(kinds=frozenset({Kind.HANDSHAKE}), limit_bytes=1000)
    with pytest.raises(FrameError, match="not expected now"):
        list(read(frames, header(Kind.MESSAGE, 1)))
    with pytest.raises(FrameError, match="none is expected"):
        list(read(FrameReader(kinds=ALL, limit_bytes=9), header(Kind.TENSOR, 10**12)))


# -------------------------------------------------------------------------------- the handshake


def shake(callers: bytes, servers: bytes) -> bool:
    """Whether the server takes the caller, who has taken the server."""
    caller = CallersHandshake(key=callers, nonce=b"c" * 32)
    server = ServersHandshake(key=servers, nonce=b"s" * 32)
    reply = server.hear(caller.begin())
    assert reply is not None
    assert server.hear(caller.answer(reply)) is None
    return server.done


def test_who_has_the_key_is_taken_and_takes() -> None:
    assert shake(b"k" * 32, b"k" * 32)


def test_a_server_with_another_key_is_not_believed() -> None:
    with pytest.raises(FrameError, match="the server has another key"):
        shake(b"k" * 32, b"x" * 32)


def test_a_caller_without_the_key_gets_nowhere() -> None:
    right = CallersHandshake(key=b"k" * 32, nonce=b"c" * 32)
    earlier = ServersHandshake(key=b"k" * 32, nonce=b"1" * 32)
    recorded = right.answer(earlier.hear(right.begin()) or b"")
    reflected = ServersHandshake(key=b"k" * 32, nonce=b"2" * 32).hear(b"s" * 32)
    assert reflected is not None
    for proof in (b"", b"p" * 32, recorded, reflected[32:], reflected):
        server = ServersHandshake(key=b"k" * 32, nonce=b"s" * 32)
        server.hear(right.begin())
        with pytest.raises(FrameError, match="another key"):
            server.hear(proof)
        assert not server.done


def test_what_is_no_handshake_is_refused_on_both_ends() -> None:
    with pytest.raises(FrameError, match="no handshake"):
        ServersHandshake(key=b"", nonce=b"s" * 32).hear(b"short")
    with pytest.raises(FrameError, match="no handshake"):
        CallersHandshake(key=b"", nonce=b"c" * 32).answer(b"short")
