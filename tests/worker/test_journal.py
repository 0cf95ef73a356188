"""What the journal records beside the steps: waiting for a processor; a diverged loss with its version."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from paceline import trace
from paceline.recorder import Recorder
from paceline.runs import read_records
from paceline.strategies import Sync
from paceline.worker.journal import Journal
from paceline.worker.phases import Phases
from paceline.worker.plane import Outcome, Window
from paceline.worker.processor import ATTENTIVE_WINDOWS, ProcessorQueue


def a_window(journal, clock=0):
    outcome = Outcome(applied=True, reason="", version=1, clock=clock, norm=1.0)
    window = Window(clock=clock, version=0, batches=(0,), unit=None)
    journal.step(window, outcome, started_s=0.0, batches=1, weight=1.0, loss=1.0)


def journal_of(tmp_path, queue=None, phases=None):
    recorder = Recorder(tmp_path / "rank-0.jsonl", time.monotonic, rank=0)
    return Journal(recorder, phases or Phases(time.monotonic), rank=0, strategy=Sync(), queue=queue)


def closed(journal, tmp_path, kind):
    journal.close(reason="finished", version=1, peak_bytes=0, digest="")
    return [one for one in read_records(tmp_path / "rank-0.jsonl") if isinstance(one, kind)]


class Account:
    """A schedstat whose second number the test writes."""

    def __init__(self, path):
        self.path = path
        self.say(0)

    def say(self, waited_s):
        self.path.write_text(f"123456789 {int(waited_s * 1e9)} 42\n")


def test_waiting_for_a_processor_is_recorded_where_it_is_worth_a_millisecond(tmp_path):
    """From then on phase by phase, until long nothing notable has been."""
    account = Account(tmp_path / "schedstat")
    queue = ProcessorQueue(account.path)
    phases = Phases(time.monotonic, queue)
    journal = journal_of(tmp_path, queue, phases)
    account.say(0.0004)
    a_window(journal, 0)
    account.say(0.0304)
    a_window(journal, 1)
    phases.enter("data")
    account.say(0.0324)
    phases.enter("forward")
    phases.enter("exchange")
    account.say(0.0374)
    a_window(journal, 2)
    for clock in range(3, 3 + ATTENTIVE_WINDOWS):
        assert queue.attentive
        a_window(journal, clock)
    assert not queue.attentive
    first, second = closed(journal, tmp_path, trace.Unscheduled)
    assert (first.clock, first.somewhere_s, first.data_s) == (1, 0.03, 0.0)
    assert (second.clock, second.data_s, second.forward_s, second.exchange_s) == (
        2,
        0.002,
        0.0,
        0.005,
    )


@pytest.mark.parametrize("content", [None, "", "odd"])
def test_where_no_account_is_kept_nothing_is_recorded(tmp_path, content):
    account = tmp_path / "schedstat"
    if content is not None:
        account.write_text(content)
    journal = journal_of(tmp_path, ProcessorQueue(account))
    a_window(journal)
    assert closed(journal, tmp_path, trace.Unscheduled) == []


@pytest.mark.skipif(not ProcessorQueue().kept, reason="no schedstat here")
def test_a_quiet_window_pays_under_2_microseconds():
    queue, best_s = ProcessorQueue(), float("inf")
    for _ in range(5):
        began_s = time.thread_time()
        for _ in range(1000):
            queue.take()
        best_s = min(best_s, time.thread_time() - began_s)
    queue.close()
    assert best_s / 1000 < 2e-6


def test_a_diverged_loss_is_said_with_its_version(tmp_path, capsys):
    """``paceline replay --until`` wants it."""
    journal = journal_of(tmp_path)
    optimizer = SimpleNamespace(param_groups=[{"lr": 0.1}])
    journal.watch(float("nan"), optimizer, version=17)
    (note,) = closed(journal, tmp_path, trace.Note)
    assert note.text.startswith("at version 17 the loss became nan: try a smaller lr")
    assert note.text in capsys.readouterr().err
