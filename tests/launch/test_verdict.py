"""From how processes ended to one exit code and one sentence."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from paceline.launch.verdict import WorkerEnd, judge


def ends(*returncodes: int, **of_last: Any) -> list[WorkerEnd]:
    """Workers with these return codes; ``of_last``: more about the last one."""
    found = [WorkerEnd(rank=i, pid=100 + i, returncode=code) for i, code in enumerate(returncodes)]
    last = WorkerEnd(rank=len(found) - 1, pid=1, returncode=returncodes[-1], **of_last)
    return [*found[:-1], last]


@pytest.mark.parametrize(
    ("workers", "exit_code", "sentence"),
    [
        (ends(0), 0, "the worker finished"),
        (ends(0, 0, 0), 0, "all 3 workers finished"),
        (
            ends(0, 0, 0, -9, clock=17),
            0,
            "rank 3 was killed by SIGKILL at clock 17; the other 3 went on and finished",
        ),
        (ends(0, 143), 0, "rank 1 was killed by SIGTERM; the other 1 went on and finished"),
        (
            ends(0, 0, -9, loss="evicted", ended_by_us=True, clock=9),
            0,
            "rank 2 fell silent and was evicted at clock 9; the other 2 went on and finished",
        ),
        (
            ends(0, 0, 3, loss="evicted"),
            0,
            "rank 2 fell silent and was evicted; the other 2 went on and finished",
        ),
        (ends(3, 3, -9), 3, "rank 2 was killed by SIGKILL; the other 2 stopped"),
        (
            ends(3, 3, -9, loss="halted", ended_by_us=True),
            3,
            "rank 2 fell silent and was given up; the other 2 stopped",
        ),
        (ends(3, 3, 1), 1, "rank 2 failed with exit code 1; the other 2 were stopped"),
        (
            ends(3, 3, 1, loss="halted"),
            1,
            "rank 2 failed with exit code 1; the other 2 were stopped",
        ),
        (ends(7), 1, "rank 0 failed with exit code 7"),
        (ends(-11), 3, "rank 0 was killed by SIGSEGV"),
        (ends(3, 3), 3, "rank 0 was stopped; rank 1 was stopped"),
        (ends(3, -9, ended_by_us=True), 3, "rank 0 was stopped; rank 1 was ended by the launcher"),
    ],
)
def test_the_verdict(workers, exit_code, sentence):
    verdict = judge(workers)
    assert (verdict.exit_code, verdict.sentence) == (exit_code, sentence)


def test_an_interrupted_run_says_so_whatever_its_workers_did():
    assert judge(ends(0, 143), caught=signal.SIGINT).exit_code == 130
    assert "Ctrl-C" in judge(ends(1, -9), caught=signal.SIGINT).sentence
    assert judge(ends(0), caught=signal.SIGTERM).exit_code == 143


def test_a_lost_server_is_the_cause():
    verdict = judge(ends(3, 3), server_end=-9)
    assert verdict.exit_code == 3
    assert verdict.sentence == "the server was killed by SIGKILL; the other 2 stopped"
