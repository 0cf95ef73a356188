"""A verdict on local SGD: workers are held against each other round by round, not window by window."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from diagnose.fabricated import Case, fabricated
from paceline.diagnose.findings import Diagnosis
from paceline.diagnose.measured import OPTIMIZER, measured
from paceline.diagnose.verdict import diagnose
from paceline.errors import UsageError
from paceline.runs import RankTrace, Run
from synthetic_runs import setup, step

WINDOWS, APART, WORKERS = 240, 8, 4
STEP_S, OPTIMIZER_S = 0.05, 0.002


def local_run(
    *,
    exchange_s: float,
    slow: Callable[[int, int], float] = lambda rank, window: 0.0,
    word: str = f"local:{APART}",
) -> Run:
    """Four workers of equal machines with 10 % jitter; ``slow``: seconds more, by rank and window."""
    rng = np.random.default_rng(0)
    steps: list[list[object]] = [[] for _ in range(WORKERS)]
    now = np.zeros(WORKERS)
    for window in range(WINDOWS):
        meets = (window + 1) % APART == 0
        work = [
            STEP_S * (1 + 0.1 * rng.exponential()) + slow(rank, window) for rank in range(WORKERS)
        ]
        arrived = now + work + OPTIMIZER_S
        ended = np.full(WORKERS, arrived.max() + exchange_s) if meets else arrived
        for rank in range(WORKERS):
            wait = float(arrived.max() - arrived[rank]) if meets else 0.0
            steps[rank].append(
                step(
                    time_s=float(now[rank]), clock=window, version=window, pull_s=0.0, data_s=0.0,
                    forward_s=work[rank] * 0.3, backward_s=work[rank] * 0.7, wait_s=wait,
                    exchange_s=OPTIMIZER_S + exchange_s * meets, sent_bytes=4000 * meets,
                )
            )  # fmt: skip
        now = ended
    head = setup(strategy=word, topology="replicas", world_size=WORKERS)
    ranks = tuple(
        RankTrace(
            rank=rank, setup=head, steps=tuple(own), passes=(), metrics=(), notes=(), close=None
        )
        for rank, own in enumerate(steps)
    )
    made = fabricated(Case(windows=1))
    return dataclasses.replace(made, ranks=ranks)


def causes(found: Diagnosis) -> list[str]:
    return [one.cause for one in found.findings]


def test_a_row_is_a_round_and_the_optimizer_is_apart_from_the_exchange() -> None:
    found = measured(local_run(exchange_s=0.1))
    assert found.windows == WINDOWS // APART - 1
    assert found.transfer_s.mean() == pytest.approx(0.1, rel=1e-6)
    assert found.phases[OPTIMIZER].mean() == pytest.approx(APART * OPTIMIZER_S, rel=1e-6)
    assert found.weight.mean() == APART * 32


def test_long_exchanges_ask_for_rarer_ones() -> None:
    (finding,) = diagnose(local_run(exchange_s=1.0)).findings
    assert finding.cause == "communication-bound"
    windows = finding.figures["windows"]
    assert windows * (STEP_S * 1.15 + OPTIMIZER_S) == pytest.approx(4.0, rel=0.1)
    assert f"local:{windows:.0f}" in finding.action


def test_advice_to_meet_less_often_keeps_what_else_the_word_says() -> None:
    """Fragments, too: one of two was exchanged after each 8 windows."""
    run = local_run(exchange_s=1.0, word="diloco:16:0.5:0.8:2")
    (finding,) = diagnose(run).findings
    windows = finding.figures["windows"]
    assert windows / 2 * (STEP_S * 1.15 + OPTIMIZER_S) == pytest.approx(4.0, rel=0.1)
    assert f"diloco:{windows:.0f}:0.5:0.8:2 computing" in finding.action


def test_a_slow_rank_is_named_and_nobody_else() -> None:
    run = local_run(exchange_s=0.02, slow=lambda rank, window: 0.03 * (rank == 2))
    (finding,) = diagnose(run).findings
    assert (finding.cause, finding.ranks) == ("slow-rank", (2,))


def test_equal_workers_are_well() -> None:
    assert diagnose(local_run(exchange_s=0.02)).status == "well"


def test_what_another_strategy_would_do_is_not_guessed_from_rounds() -> None:
    run = local_run(exchange_s=0.02)
    assert not [one for one in diagnose(run).what_if if "strategy" in one.change]
    with pytest.raises(UsageError, match="paceline simulate"):
        diagnose(run, ["strategy:ssp:3"])
