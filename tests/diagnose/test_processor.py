"""Waiting for a processor is the machine's doing: it is set apart, said, and accuses no worker."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from diagnose.fabricated import Case, fabricated
from paceline import trace
from paceline.diagnose.measured import FORWARD, measured
from paceline.diagnose.queueing import without_queueing
from paceline.diagnose.verdict import diagnose

NOWHERE = dict.fromkeys(
    ("between_s", "data_s", "forward_s", "backward_s", "exchange_s", "somewhere_s"), 0.0
)


def stalled(case, stalls_s, *, summary=None, where="forward_s"):
    """``case`` with ``stalls_s[k, i]`` more in forward of window k of rank i, and the record of it."""
    faults = tuple((rank, "forward", stalls_s[:, rank]) for rank in range(case.workers))
    run = fabricated(replace(case, faults=(*case.faults, *faults), summary=summary or {}))
    ranks = tuple(
        replace(
            rank,
            unscheduled=tuple(
                trace.Unscheduled(time_s=0.0, clock=k, **{**NOWHERE, where: float(s)})
                for k, s in enumerate(stalls_s[:, rank.rank])
                if s >= 1e-3
            ),
        )
        for rank in run.ranks
    )
    return replace(run, ranks=ranks)


def random_stalls(shape, *, chance, size_s, seed=3):
    draw = np.random.default_rng(seed)
    return (draw.random(shape) < chance) * draw.exponential(size_s, shape)


def test_what_was_interrupted_is_what_lasted_longer_than_usual():
    forward, backward = np.full((9, 1), 0.01), np.full((9, 1), 0.02)
    backward[4] += 0.05
    left = without_queueing({"f": forward, "b": backward}, np.full((9, 1), 0.03))
    assert left["b"][4] == pytest.approx(0.04)
    assert np.array_equal(left["f"], forward)
    assert np.delete(left["b"], 4) == pytest.approx(0.02), "elsewhere nothing was longer than usual"


@pytest.mark.parametrize("where", ["forward_s", "somewhere_s"])
@pytest.mark.parametrize("plane", ["allreduce", "server", "async"])
def test_a_worker_that_the_machine_neglects_is_not_called_slow(plane, where):
    stalls_s = np.zeros((120, 4))
    stalls_s[:, 2] = random_stalls(120, chance=0.4, size_s=0.1)
    found = diagnose(stalled(Case(plane=plane), stalls_s, where=where)).findings
    assert [one.cause for one in found] == ["not-scheduled"]
    assert found[0].ranks == (2,), "only its machine is busy"
    assert found[0].sentence.startswith("Rank 2 was not given the processor")


def test_a_busy_machine_is_nobodys_fault():
    stalls_s = random_stalls((120, 4), chance=0.5, size_s=0.05)
    stalls_s[:, 1] *= 2
    run = stalled(Case(), stalls_s, summary={"host": {"cores": 2}})
    (finding,) = diagnose(run).findings
    assert (finding.cause, finding.ranks) == ("not-scheduled", ())
    assert "4 workers x 1 threads share 2 cores" in finding.evidence


def test_who_is_slow_is_named_on_a_busy_machine_too():
    stalls_s = random_stalls((120, 4), chance=0.3, size_s=0.06)
    case = Case(faults=((1, "forward", np.full(120, 0.03)),))
    diagnosis = diagnose(stalled(case, stalls_s))
    assert (diagnosis.findings[0].ranks, diagnosis.findings[0].phase) == ((1,), FORWARD)
    assert any("not given the processor" in one for one in diagnosis.remarks)


def test_nothing_is_lost_by_setting_it_apart():
    run = stalled(Case(plane="server"), random_stalls((120, 4), chance=0.3, size_s=0.06))
    unaware = replace(run, ranks=tuple(replace(rank, unscheduled=()) for rank in run.ranks))
    one, other = measured(run), measured(unaware)
    total = one.own_s + one.transfer_s, other.own_s + other.transfer_s
    assert np.allclose(*total)
    assert one.queued_s.sum() > 0 == other.queued_s.sum()


def test_a_little_is_not_worth_a_word():
    stalls_s = random_stalls((120, 4), chance=0.05, size_s=0.01)
    assert diagnose(stalled(Case(), stalls_s)).status == "well"
