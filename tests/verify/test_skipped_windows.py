"""Windows of several workers that stay not finite end the run on all of them, and name a parameter."""

from __future__ import annotations

import pytest

from verify.troupe import Answer, Troupe

pytestmark = pytest.mark.xdist_group("troupe")

LIMIT = 4


def played(troupe: Troupe, strategy: str, spoiled: list[int]) -> list[Answer]:
    return troupe.play(
        {
            "strategy": strategy, "optimizer": "SGD", "every": 3, "steps": 24,
            "pause_s": 0.005, "max_skips": LIMIT, "spoiled": spoiled,
        }
    )  # fmt: skip


@pytest.mark.parametrize("strategy", ["sync:allreduce", "sync:server", "ssp:2", "async"])
def test_a_row_ends_the_run_everywhere(troupe: Troupe, strategy: str) -> None:
    answers = played(troupe, strategy, spoiled=list(range(3, 3 + LIMIT)))
    # Who hears of another's error before raising its own says that.
    assert "NonFiniteError" in {answer.get("error") for answer in answers}, answers
    for answer in answers:
        assert answer.get("error") in ("NonFiniteError", "PeerFailedError"), answer
        assert f"{LIMIT} windows in a row were skipped" in answer["text"]
        assert "branch" in answer["text"], answer  # the first parameter


@pytest.mark.parametrize("strategy", ["sync:allreduce", "sync:server", "async"])
def test_a_good_window_ends_the_row(troupe: Troupe, strategy: str) -> None:
    for answer in played(troupe, strategy, spoiled=[1, 2, 3, 5, 6, 7]):
        assert "steps" in answer, answer
