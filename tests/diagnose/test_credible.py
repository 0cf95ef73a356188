"""A link is not accused where waiting for processors costs more."""

from __future__ import annotations

from paceline.diagnose.findings import Finding
from paceline.diagnose.verdict import credible


def finding(cause: str, cost: float) -> Finding:
    return Finding(
        cause=cause, ranks=(0,), cost=cost, severity="major", sentence="", evidence=(), action="", figures={},
    )  # fmt: skip


def test_a_link_that_costs_less_than_waiting_for_processors_is_not_accused() -> None:
    link, rank = finding("slow-link", 0.29), finding("slow-rank", 0.29)
    assert credible([link, rank], [finding("not-scheduled", 0.55)]) == [rank]
    assert credible([link, rank], [finding("not-scheduled", 0.1)]) == [link, rank]
    assert credible([link, rank], []) == [link, rank]
