"""Causes that are no single worker's fault: each is found where it is, and only there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from diagnose.fabricated import Case, fabricated
from paceline.diagnose.verdict import diagnose


def causes(run):
    return [one.cause for one in diagnose(run).findings]


def test_a_worker_with_more_to_do_is_not_slow():
    def twice(_, shape):
        weight = np.full(shape, 32.0)
        weight[:, 1] = 64.0
        return weight

    (finding,) = diagnose(fabricated(Case(weights=twice, weighted_time=True))).findings
    assert (finding.cause, finding.ranks) == ("uneven-work", (1,))
    assert "100 % more work" in finding.sentence


def test_unequal_batches_of_a_round_are_found_by_their_weights():
    def lengths(rng, shape):
        return rng.uniform(100, 1000, shape)

    case = Case(weights=lengths, weighted_time=True, windows=200)
    (finding,) = diagnose(fabricated(case)).findings
    assert (finding.cause, finding.ranks) == ("uneven-work", ())


@pytest.mark.parametrize(
    ("threads", "cores", "found"), [(4, 8, True), (2, 8, False), (4, 0, False)]
)
def test_more_threads_than_cores(threads, cores, found):
    summary = {"host": {"cores": cores}} if cores else {}
    run = fabricated(Case(changes={"threads": threads}, summary=summary))
    assert causes(run) == ["too-many-threads"] * found


def test_threads_of_other_hosts_are_on_their_cores():
    request = {"workers": 1, "hosts": {"count": 2}}
    summary = {"host": {"cores": 2}, "request": request}
    assert causes(fabricated(Case(workers=2, changes={"threads": 2}, summary=summary))) == []


@pytest.mark.parametrize(
    ("plane", "exchange_s", "cause"),
    [
        ("allreduce", 0.02, None),
        ("allreduce", 0.06, "communication-bound"),
        ("server", 0.06, "server-bound"),
        ("allreduce", 0.3, "batch-too-small"),
    ],
)
def test_what_the_exchange_costs(plane, exchange_s, cause):
    found = diagnose(fabricated(Case(plane=plane, exchange_s=exchange_s))).findings
    assert [one.cause for one in found] == ([cause] if cause else [])


def test_the_break_even_batch_is_where_the_group_gets_faster_than_one():
    """Own work 50 ms (60 the slowest) of 32 samples, exchange 300 ms, 4 workers: T_c > T_x / 3."""
    (finding,) = diagnose(fabricated(Case(exchange_s=0.3, jitter=0.0))).findings
    assert finding.figures["break_even_batch"] / 4 == pytest.approx(32 * (0.3 / 3) / 0.05, abs=1)


def test_the_servers_queue():
    run = fabricated(Case(plane="async"))
    queued = tuple(
        replace(rank, steps=tuple(replace(step, wait_s=0.05) for step in rank.steps))
        for rank in run.ranks
    )
    assert causes(replace(run, ranks=queued)) == ["server-bound"]


def test_accumulation_that_exchanges_every_micro_batch():
    run = fabricated(Case(exchange_s=0.03))

    def sent(times):
        return replace(run, ranks=tuple(
            replace(rank, steps=tuple(
                replace(step, batches=4, sent_bytes=4000 * times) for step in rank.steps
            ))
            for rank in run.ranks
        ))  # fmt: skip

    assert causes(sent(4)) == ["exchange-every-micro-batch"]
    assert causes(sent(1)) == []


def rising(rng, windows):
    return np.exp(-1 + 0.8 * np.sin(np.arange(windows) / windows * 20)) + 0.02 * rng.random(windows)


def noisy(rng, windows):
    return np.exp(-np.arange(windows) / 60) + 0.3 + 0.6 * rng.random(windows)


@pytest.mark.parametrize(
    ("case", "cause"),
    [
        (Case(losses=rising), "unstable-rate"),
        (Case(losses=rising, plane="async"), "unstable-lag"),
        (Case(losses=lambda rng, n: np.where(np.arange(n) > 80, np.nan, 1.0)), "unstable-rate"),
        (Case(losses=rising, lost_share=0.2), "skipped-steps"),
        (Case(lost_share=0.2), "skipped-steps"),
        (Case(losses=noisy), None),
        (Case(losses=noisy, plane="async"), None),
        (Case(lost_share=0.005), None),
    ],
)
def test_an_unstable_loss_is_explained(case, cause):
    assert causes(fabricated(replace(case, windows=160))) == ([cause] if cause else [])


def test_without_a_workers_trace_nobody_is_named():
    run = fabricated(Case(faults=((1, "forward", np.full(120, 0.2)),)))
    diagnosis = diagnose(replace(run, ranks=run.ranks[:3]))
    assert diagnosis.status == "undecided"
    assert "rank 3" in diagnosis.verdict


def test_who_waits_in_a_collective_shows_full_utilisation():
    run = fabricated(Case(faults=((1, "forward", np.full(120, 0.2)),)))
    (remark,) = diagnose(run).remarks
    assert "100 % utilisation" in remark
    assert diagnose(fabricated(Case())).remarks == ()


def test_of_several_workers_in_one_script_the_last_is_judged():
    early = fabricated(Case(plane="server", windows=60))
    late = fabricated(Case(plane="async", windows=60, faults=((1, "forward", np.full(60, 0.1)),)))

    def later(record):
        return replace(record, time_s=record.time_s + 1e6)

    def joined(first, second):
        setups = (first.setup, replace(second.setup, time_s=1e6 - 1))
        steps = (*first.steps, *map(later, second.steps))
        return replace(first, setups=setups, steps=steps)

    both = tuple(joined(*pair) for pair in zip(early.ranks, late.ranks, strict=True))
    diagnosis = diagnose(replace(early, ranks=both))
    (finding,), (alone,) = diagnosis.findings, diagnose(late).findings
    assert (finding.cause, finding.ranks) == (alone.cause, (1,))
    assert finding.cost == pytest.approx(alone.cost)
    assert "2 Workers" in diagnosis.remarks[-1]


def test_where_the_loss_was_lost_is_said():
    """A version: what ``paceline replay --until`` wants."""
    lost = Case(losses=lambda rng, n: np.where(np.arange(n) > 80, np.nan, 1.0), windows=160)
    (finding,) = diagnose(fabricated(lost)).findings
    assert "the first at version 81" in finding.sentence


@pytest.mark.parametrize(("plane", "said"), [("allreduce", True), ("server", False)])
def test_a_slow_ring_points_to_measure(plane, said):
    """The trace of a collective cannot tell which link is slow."""
    (finding,) = diagnose(fabricated(Case(plane=plane, exchange_s=0.06))).findings
    assert ("paceline measure" in finding.action) == said
