"""Where exchanges take the time, every remedy that exists for the run is named, with what it comes to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnose.fabricated import Case, fabricated
from paceline.diagnose.verdict import diagnose
from paceline.errors import UsageError

BOUND = Case(exchange_s=0.12, jitter=0.0)
"""Own work 50 ms; half of the 27 ms of backward hide some of an exchange of 120 ms."""


def asked(hosts=1, **more):
    request = {"script": "train.py", "args": ["--epochs", "2"], "workers": 4 // hosts, **more}
    request["hosts"] = {"count": hosts} if hosts > 1 else None
    return {"request": request}


def bound(**changes):
    run = fabricated(replace(BOUND, **changes))
    diagnosis = diagnose(run)
    (finding,) = diagnosis.findings
    return finding, {one.change: one.time for one in diagnosis.what_if}


def test_the_h_at_which_computing_takes_four_fifths_is_named_and_answered():
    finding, what_if = bound()
    word = finding.figures["local"]
    windows = int(word.removeprefix("local:"))
    work_s, exchange_s = finding.figures["work_s"], finding.figures["exchange_s"] + 0.5 * 0.0275
    assert 4 * exchange_s / work_s <= windows < 4 * exchange_s / work_s + 1
    assert f"--strategy {word}" in finding.action
    computing = (
        work_s * 1.0 / (what_if[f"strategy {word}"] * (work_s + finding.figures["exchange_s"]))
    )
    assert computing == pytest.approx(0.8, abs=0.02)


def test_far_apart_meetings_are_diloco_s():
    finding, _ = bound(exchange_s=0.6)
    assert "or diloco:" in finding.action


def test_on_one_host_nothing_is_said_of_networks():
    finding, _ = bound(summary=asked())
    assert "--compress" not in finding.action
    assert "hybrid" not in finding.action
    word = finding.figures["local"]
    assert f"paceline compare -n 4 --try {word} train.py --epochs 2" in finding.action


def test_between_hosts_gradients_may_be_sent_smaller_and_once_a_host():
    finding, _ = bound(summary=asked(hosts=2))
    assert "--compress topk:0.01" in finding.action
    assert "once for the 2 workers of a host" in finding.action
    assert "--strategy hybrid:async" in finding.action
    assert "paceline compare" not in finding.action  # it starts its workers on one host
    alone, _ = bound(summary=asked(hosts=4))
    assert "hybrid" not in alone.action


def test_an_emulated_cluster_is_taken_along():
    finding, _ = bound(summary=asked(virtual="two.toml"))
    assert "paceline compare -n 4 --virtual two.toml --try local:" in finding.action
    assert "where several workers share a host" in finding.action


def encoding(run, coding_s, **more):
    """``run``, of whose exchanges ``coding_s`` was encoding and decoding."""
    ranks = tuple(
        replace(rank, steps=tuple(replace(step, coding_s=coding_s, **more) for step in rank.steps))
        for rank in run.ranks
    )
    return replace(run, ranks=ranks)


def test_encoding_is_told_from_the_link():
    run = encoding(fabricated(BOUND), 0.09)
    (finding,) = diagnose(run).findings
    assert finding.cause == "encoding-bound"
    assert finding.sentence.startswith("Encoding is the bottleneck, more than the link")
    assert "of which encoding and decoding 90.0 ms" in finding.evidence[0]
    assert "leave --compress out" in finding.action
    assert "slow link" not in finding.action
    assert "local" not in finding.figures  # what whole parameters would take is not on record
    with pytest.raises(UsageError, match="Run it once without --compress"):
        diagnose(run, ["strategy:local:8"])


def test_a_link_that_takes_longer_than_encoding_is_still_the_link():
    (finding,) = diagnose(encoding(fabricated(BOUND), 0.03)).findings
    assert finding.cause == "communication-bound"
    assert "of which encoding and decoding 30.0 ms" in finding.evidence[0]


def test_one_worker_that_encodes_slowly_is_named():
    run = fabricated(Case())
    slow, *rest = run.ranks
    steps = tuple(
        replace(step, coding_s=0.02, exchange_s=step.exchange_s + 0.02) for step in slow.steps
    )
    late = tuple(
        replace(rank, steps=tuple(replace(s, exchange_s=s.exchange_s + 0.02) for s in rank.steps))
        for rank in rest
    )
    ended = tuple(
        replace(rank, buckets=tuple(replace(b, done_s=tuple(t + 0.02 for t in b.done_s)) for b in rank.buckets))
        for rank in (replace(slow, steps=steps), *late)
    )  # fmt: skip
    (finding,) = diagnose(replace(run, ranks=ended)).findings
    assert (finding.cause, finding.ranks, finding.phase) == (
        "slow-rank",
        (0,),
        "encoding gradients",
    )


def test_meeting_less_often_can_be_asked_of_any_run():
    run = fabricated(Case(exchange_s=0.02, jitter=0.0))
    answers = [
        one.time for one in diagnose(run, ["strategy:local:inf", "strategy:local:4"]).what_if[:2]
    ]
    assert answers[0] < answers[1] < 1.0
