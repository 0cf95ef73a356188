"""The trace is written in time, can be read while it grows, and never stops training."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from paceline import events, trace
from paceline.recorder import Recorder


def records(path: Path) -> list[trace.Record]:
    with path.open("rb") as lines:
        return list(trace.decode_lines(lines))


def tick(time_s: float) -> events.Tick:
    return events.Tick(time_s=time_s)


def test_the_header_is_there_at_once_and_records_at_the_latest_a_second_later(
    tmp_path: Path,
) -> None:
    now_s, path = [5.0], tmp_path / "rank-3.jsonl"
    recorder = Recorder(path, lambda: now_s[0], role="worker", rank=3)
    [header] = records(path)
    assert isinstance(header, trace.Header)
    assert (header.rank, header.time_s) == (3, 5.0)
    recorder.write(tick(1.0))
    now_s[0] = 5.9
    recorder.flush_if_due()
    assert len(records(path)) == 1
    now_s[0] = 6.0
    recorder.flush_if_due()
    assert records(path)[1:] == [tick(1.0)]
    recorder.write(tick(2.0))
    recorder.close()
    recorder.write(tick(3.0))
    recorder.close()
    assert records(path)[1:] == [tick(1.0), tick(2.0)]


def test_threads_lose_nothing(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "t", lambda: 0.0)

    def write() -> None:
        for _ in range(500):
            recorder.write(tick(1.0))
            recorder.flush()

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()
    assert len(records(tmp_path / "t")) == 2001


def test_without_a_path_nothing_happens() -> None:
    recorder = Recorder(None, lambda: 0.0)
    recorder.write(tick(1.0))
    recorder.close()


def test_a_full_disk_is_said_once_and_training_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder(Path("/dev/full"), lambda: 0.0)
    for _ in range(3):
        recorder.write(tick(1.0))
        recorder.flush()
    recorder.close()
    assert capfd.readouterr().err.count("recording stopped: /dev/full") == 1


def test_numbers_that_decide_are_kept_exactly_and_times_to_the_microsecond() -> None:
    push = events.Push(time_s=1.23456789, rank=0, weight=1 / 3, unit=0.1 + 0.2)
    decoded = trace.decode(trace.encode(push))
    assert isinstance(decoded, events.Push)
    assert (decoded.time_s, decoded.weight, decoded.unit) == (1.234568, 1 / 3, 0.1 + 0.2)
