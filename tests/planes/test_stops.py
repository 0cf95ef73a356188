"""A worker that dies, fails or falls silent stops the others, with its rank in what they raise."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from planes.crew import Crew, answer
from planes.toy import UNIT

CELL = {"optimizer": ["SGD", {"lr": 0.1}], "window": 1, "total": 12, "unit": UNIT}
PLANES = [("allreduce", "sync:allreduce"), ("server", "sync:server")]


def cell(plane: str, strategy: str, **changes: Any) -> dict[str, Any]:
    return {**CELL, "plane": plane, "strategy": strategy, **changes}


def ends(worker: subprocess.Popen[str], *, within_s: float) -> int:
    """The worker's exit status once its work is over: an exit must not wait for a lost peer."""
    assert worker.stdin is not None
    worker.stdin.close()
    worker.stdin = None
    return worker.wait(within_s)


@pytest.mark.full  # the same deaths under real Workers are in tests/deaths and tests/worker
@pytest.mark.parametrize(("plane", "strategy"), PLANES)
def test_a_killed_peer_is_named(plane: str, strategy: str) -> None:
    with Crew(2) as crew:
        survivor = crew.run(cell(plane, strategy, acts={"1": "kill"}))[0]
        assert survivor is not None
        assert survivor["error"] == "PeerLostError", survivor
        assert "rank 1" in survivor["text"]
        assert ends(crew.workers[0], within_s=10) == 0


@pytest.mark.full  # the same deaths under real Workers are in tests/deaths and tests/worker
@pytest.mark.parametrize(("plane", "strategy"), PLANES)
def test_a_failed_peer_is_named_with_its_words(plane: str, strategy: str) -> None:
    with Crew(2) as crew:
        survivor, culprit = crew.run(cell(plane, strategy, acts={"1": "raise"}))
        assert culprit is not None
        assert survivor is not None
        assert culprit["error"] == "ZeroDivisionError"
        assert survivor["error"] == "PeerFailedError", survivor
        assert "rank 1" in survivor["text"]
        assert "the loss was divided by zero" in survivor["text"]


@pytest.mark.full  # the same deaths under real Workers are in tests/deaths and tests/worker
@pytest.mark.parametrize(("plane", "strategy"), PLANES)
def test_a_stopped_peer_is_named_and_the_exit_does_not_wait_for_it(
    plane: str, strategy: str
) -> None:
    with Crew(2) as crew:
        survivor = crew.run(cell(plane, strategy, acts={"1": "stop"}, evict_after_s=4.0))[0]
        assert survivor is not None
        assert survivor["error"] == "PeerLostError", survivor
        assert "rank 1" in survivor["text"]
        assert ends(crew.workers[0], within_s=10) == 0


def test_a_worker_that_computes_on_is_ended_by_its_heartbeat(tmp_path: Path) -> None:
    """Rank 1 sleeps in its own code while rank 0 fails: it has 5 s to hear of it, then it ends."""
    with Crew(2) as crew:
        acts = {"0": "raise", "1": "sleep"}
        asleep = str(tmp_path / "asleep")
        failed = crew.run(cell("server", "async", acts=acts, asleep=asleep))[0]
        assert failed is not None
        assert failed["error"] == "ZeroDivisionError"
        assert answer(crew.workers[1]) is None
        assert crew.workers[1].wait(1) == 3
        assert "rank 0" in crew.workers[1].communicate()[1]
