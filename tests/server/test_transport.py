"""Frames, channels and regions: what arrives is what was sent, or a clear error."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
import torch

from paceline.errors import UsageError
from paceline.transport.channel import Channel, ChannelClosedError, connect
from paceline.transport.framing import FrameDecoder, FrameError, frame
from paceline.transport.messages import Abort, Gather, Gone
from paceline.transport.shared_memory import Region


def pair() -> tuple[Channel, Channel, socket.socket]:
    left, right = socket.socketpair()
    return Channel(left), Channel(right), left


def test_frames_survive_any_cutting() -> None:
    bodies = [b"", b"a", b"b" * 300, b"c" * 70000]
    stream = b"".join(map(frame, bodies))
    for cut in (1, 3, 4, 5, 1000, len(stream)):
        decoder, got = FrameDecoder(limit_bytes=10**6), []
        for start in range(0, len(stream), cut):
            decoder.feed(stream[start : start + cut])
            while (body := decoder.next_frame()) is not None:
                got.append(body)
        assert got == bodies


def test_a_frame_that_claims_too_much_is_refused_before_it_takes_memory() -> None:
    decoder = FrameDecoder(limit_bytes=100)
    decoder.feed(b"\x00\x00\x00\x65")
    with pytest.raises(FrameError, match="101"):
        decoder.next_frame()


def test_messages_arrive_whole_and_in_order() -> None:
    one, other, _ = pair()
    large = Gather(tag="t", payload=os.urandom(3_000_000))
    sender = threading.Thread(target=lambda: (one.send(large), one.send(Gone())))
    sender.start()
    assert other.receive() == large
    assert other.receive(1.0) == Gone()
    sender.join()
    one.close()
    with pytest.raises(ChannelClosedError):
        other.receive()
    with pytest.raises(ChannelClosedError):
        other.send(Gone())
    other.close()


def test_bytes_that_are_no_message_are_an_error_not_a_guess() -> None:
    _, other, raw = pair()
    for garbage in (b"", b"\xc1", b"\x93\xa4Nope\x01\x02", b"\x92\xa5Abort\x01"):
        raw.sendall(frame(garbage))
        with pytest.raises(FrameError, match="no message"):
            other.receive()
    raw.sendall(frame(b"\x92\xa5Abort\xa2ok"))
    assert other.receive() == Abort(text="ok")


def test_a_receive_can_be_given_a_limit_and_can_be_woken() -> None:
    _, other, _ = pair()
    with pytest.raises(TimeoutError):
        other.receive(0.01)
    woken = threading.Timer(0.05, other.close)
    woken.start()
    with pytest.raises(ChannelClosedError):
        other.receive()
    woken.join()


def test_nobody_there_and_too_long_a_path_are_said_clearly(tmp_path: Path) -> None:
    with pytest.raises(ChannelClosedError, match="no server at"):
        connect(str(tmp_path / "x"))
    with pytest.raises(UsageError, match="shorter"):
        connect("/tmp/" + "x" * 200)


def test_a_region_is_seen_through_the_process_that_holds_it() -> None:
    before = len(os.listdir("/proc/self/fd"))
    mine = Region.create(10_000)
    theirs = Region.open(os.getpid(), mine.fd, 10_000)
    mine.memory[9_999] = 7
    assert theirs.memory[9_999] == 7
    assert mine.memory.data_ptr() % 4096 == 0
    view = mine.memory[:4].view(torch.float32)
    for region in (mine, theirs, mine):
        region.close()
    assert view.item() == 0.0
    del view
    assert len(os.listdir("/proc/self/fd")) == before


def test_only_a_region_of_the_right_size_is_mapped() -> None:
    region = Region.create(4096)
    with pytest.raises(UsageError, match="4096 bytes; expected the layout's 8192"):
        Region.open(os.getpid(), region.fd, 8192)
    with pytest.raises(UsageError, match="expected a paceline region"):
        Region.open(os.getpid(), 0, 4096)
    with pytest.raises(OSError, match="Operation not permitted"):
        os.ftruncate(region.fd, 0)
    region.close()
