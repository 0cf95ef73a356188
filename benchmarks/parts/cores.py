"""Parts that are scripts of their own, in a process of their own: policy core, latency, simulation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from statistics import median
from typing import Any

from harness.bench import Bench
from harness.results import Row
from harness.sides import HOME

LATENCY = "latency"
SIMULATION = {
    "simulate recurrence": ("worker_steps_per_s", "/s", "worker-steps, ssp:3, 128 workers"),
    "simulate driver": ("facts_per_s", "/s", "facts, async, 128 workers"),
    "simulate memory": ("peak_bytes", "bytes", "10,000 workers x 1,000 steps"),
}


def measure(bench: Bench) -> Iterator[Row]:
    """``latency``, ``policy N=8``, ``policy N=1024`` and those of ``simulate``."""
    if bench.wants(LATENCY):
        yield _latency(bench)
    for size in (8, 1024):
        if bench.wants(f"policy N={size}"):
            yield _policy(bench, size)
    if any(map(bench.wants, SIMULATION)):
        yield from _simulation(bench)


def _simulation(bench: Bench) -> Iterator[Row]:
    bench.say("simulation: recurrence, exact driver, memory")
    said, failure = _ask("simulation_rate.py")
    for key, (name, unit, note) in SIMULATION.items():
        if failure:
            yield Row(key=key, value=None, unit=unit, failure=failure)
            continue
        values = said[name] if isinstance(said[name], list) else [said[name]]
        yield Row(key=key, value=median(values), values=values, unit=unit, note=note)


def _latency(bench: Bench) -> Row:
    bench.say("latency: push + decision + pull of one client")
    said, failure = _ask("server_latency.py")
    if failure:
        return Row(key=LATENCY, value=None, unit="ms", failure=failure)
    return Row(
        key=LATENCY,
        value=said["round"]["median"],
        values=[said["round"]["p10"], said["round"]["p90"]],
        unit="ms",
        note=", ".join(f"{name} {one['median']:.3f}" for name, one in said.items()),
    )


def _policy(bench: Bench, size: int) -> Row:
    bench.say(f"policy core, N={size}")
    key = f"policy N={size}"
    said, failure = _ask("policy_rate.py", "--workers", str(size))
    if failure:
        return Row(key=key, value=None, unit="/s", failure=failure)
    slowest = min(said, key=lambda word: median(said[word]))
    best = {word: f"{median(rates):,.0f}" for word, rates in said.items()}
    return Row(
        key=key,
        value=median(said[slowest]),
        values=said[slowest],
        unit="/s",
        note="slowest strategy; " + ", ".join(f"{word} {rate}" for word, rate in best.items()),
    )


def _ask(script: str, *arguments: str) -> tuple[dict[str, Any], str]:
    """What the script says as JSON, or why it failed."""
    done = subprocess.run(
        [sys.executable, str(HOME / script), "--json", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return {}, f"{script}: " + done.stderr.strip()[-600:]
    return json.loads(done.stdout), ""
