"""Clocks and throttle reasons are read through injectable roots, and never get in training's way."""

from __future__ import annotations

import time
from types import SimpleNamespace

from paceline.recorder import Recorder
from paceline.runs import read_records
from paceline.trace import Clocks
from paceline.worker.clock_rates import (
    SAMPLE_EVERY_S,
    ClockSampler,
    Rate,
    cpu_source,
    nvidia_source,
)


def core(root, number, *, khz, throttled=0):
    for name, value in (
        ("cpufreq/scaling_cur_freq", khz), ("cpufreq/cpuinfo_max_freq", 3_000_000),
        ("thermal_throttle/core_throttle_count", throttled),
    ):  # fmt: skip
        path = root / f"cpu{number}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")


def test_the_processors_clock_is_the_mean_of_the_cores_one_may_use(tmp_path):
    core(tmp_path, 0, khz=1_000_000, throttled=3)
    core(tmp_path, 1, khz=2_000_000, throttled=4)
    core(tmp_path, 2, khz=9_000_000)
    read = cpu_source(tmp_path, [0, 1])
    assert read() == Rate(device="cpu", hz=1.5e9, top_hz=3e9, throttled=7)
    core(tmp_path, 1, khz=1_000_000, throttled=9)
    assert (read().hz, read().throttled) == (1e9, 12)


def test_where_the_files_are_absent_there_is_nothing(tmp_path):
    assert cpu_source(tmp_path, [0, 1]) is None


def nvml(bits=0x24):
    return SimpleNamespace(
        NVML_CLOCK_SM=1, nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: {"GPU-ab": "card"}[uuid],
        nvmlDeviceGetClockInfo=lambda card, kind: 1100,
        nvmlDeviceGetMaxClockInfo=lambda card, kind: 1980,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda card: bits,
    )  # fmt: skip


def test_a_card_says_why_it_is_held_back():
    rate = nvidia_source(nvml(), "ab", "cuda:0")()
    assert rate == Rate(
        device="cuda:0", hz=1.1e9, top_hz=1.98e9, reasons=("power limit", "too hot (driver)")
    )
    assert nvidia_source(nvml(bits=1), "ab", "cuda:0")().reasons == (), "idle is no reason"


def test_without_the_package_or_the_card_there_is_nothing():
    assert nvidia_source(None, "ab", "cuda:0") is None
    assert nvidia_source(nvml(), "another", "cuda:0") is None


def test_a_sample_every_few_seconds_and_none_of_a_sensor_that_fails(tmp_path):
    now_s, path = [0.0], tmp_path / "rank-0.jsonl"
    recorder = Recorder(path, lambda: now_s[0], rank=0)

    def broken():
        raise RuntimeError("the card fell off the bus")

    beat = ClockSampler(
        [broken, lambda: Rate(device="cpu", hz=1e9, top_hz=0.0)], recorder, lambda: now_s[0]
    )
    for second in range(12):
        now_s[0] = float(second)
        beat()
    found = [one for one in read_records(path) if isinstance(one, Clocks)]
    assert [one.time_s for one in found] == [0.0, SAMPLE_EVERY_S, 2 * SAMPLE_EVERY_S]


def test_nothing_to_sample_costs_a_beat_nothing(tmp_path):
    beat = ClockSampler([], Recorder(None, time.monotonic), time.monotonic)
    began_s = time.thread_time()
    for _ in range(100):
        beat()
    assert (time.thread_time() - began_s) / 100 < 1e-4
