"""The trace stays within its bounds: 400 bytes and 20 microseconds of CPU per worker-step."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from paceline import events, trace
from paceline.recorder import Recorder
from synthetic_runs import step

RANK, CLOCK, VERSION, BATCH = 12, 12_345, 98_765, 123_456
NOW_S = 86_400.123_456_7


def records_of_a_step() -> list[trace.Record]:
    """All that is recorded about one window of a long async run, by the worker and the server."""
    own = replace(
        step(), time_s=NOW_S, clock=CLOCK, version=VERSION, gate_s=0.0000731, pull_s=0.0001891,
        data_s=0.0003883, forward_s=0.0359271, backward_s=0.0080912, wait_s=0.0001914,
        exchange_s=0.0018771, sent_bytes=100_100_000, received_bytes=100_100_000, batches=1,
        weight=32.0, loss=2.278111219406128, norm=0.47192397713661194, lag=7,
    )  # fmt: skip
    return [
        own,
        events.Push(
            time_s=NOW_S, rank=RANK, weight=32.0, unit=32.0, gradient_norm=0.47192397713661194
        ),
        events.Update(
            ranks=(RANK,), clocks=(CLOCK,), lags=(7,), version=VERSION, divisor=1.0,
            lr_scale=1 / 4, weight=32.0, progress=BATCH, reason="applied on arrival",
        ),
        events.Lease(rank=RANK, batches=(BATCH,), last=False, reason="on demand"),
        events.Pull(time_s=NOW_S, rank=RANK),
        events.Start(
            rank=RANK, clock=CLOCK, version=VERSION, batches=(BATCH,), reason="no bound"
        ),
    ]  # fmt: skip


def test_a_step_of_before_encoding_was_recorded_is_read_with_none() -> None:
    own = replace(step(), coding_s=0.25)
    line = trace.encode(own)
    assert trace.decode(line) == own
    older = line.replace(b",0.25]", b"]")
    assert trace.decode(older) == step()


def test_a_worker_step_takes_at_most_400_bytes() -> None:
    size = sum(len(trace.encode(record)) for record in records_of_a_step())
    assert size <= 400, size


def test_writing_a_worker_step_takes_at_most_20_microseconds(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "trace.jsonl", time.monotonic)
    record = records_of_a_step()[0]
    repeats = 2000
    best_s = float("inf")
    for _ in range(5):
        began_s = time.thread_time()
        for _ in range(repeats):
            recorder.write(record)
        best_s = min(best_s, time.thread_time() - began_s)
    recorder.close()
    assert best_s / repeats <= 20e-6


def test_a_wait_for_a_processor_takes_at_most_100_bytes() -> None:
    wait = trace.Unscheduled(
        time_s=NOW_S, clock=CLOCK, between_s=0.012_345_6, data_s=0.012_345_6, forward_s=0.012_345_6,
        backward_s=0.012_345_6, exchange_s=0.012_345_6, somewhere_s=0.0,
    )  # fmt: skip
    assert len(trace.encode(wait)) <= 100


def test_times_of_buckets_take_at_most_100_bytes_a_bucket_and_are_rounded() -> None:
    late_s = tuple(123.456_789_123 + number for number in range(40))
    record = trace.Buckets(time_s=NOW_S, clock=CLOCK, ready_s=late_s, done_s=late_s)
    line = trace.encode(record)
    assert len(line) <= 100 * len(late_s)
    decoded = trace.decode(line)
    assert isinstance(decoded, trace.Buckets)
    assert decoded.done_s[1] == 124.456_789
