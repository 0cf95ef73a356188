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
from paceline.worker.processor import ProcessorQueue


def a_window(journal):
    journal.computed()
    outcome = Outcome(applied=True, reason="", version=1, clock=0, norm=1.0)
    window = Window(clock=0, version=0, batches=(0,), unit=None)
    journal.step(window, outcome, started_s=0.0, batches=1, weight=1.0, loss=1.0)


def journal_of(tmp_path, queue=None):
    recorder = Recorder(tmp_path / "rank-0.jsonl", time.monotonic, rank=0)
    return Journal(recorder, Phases(time.monotonic), rank=0, strategy=Sync(), queue=queue)


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
    account = Account(tmp_path / "schedstat")
    journal = journal_of(tmp_path, ProcessorQueue(account.path))
    account.say(0.0004)
    a_window(journal)
    account.say(0.0304)
    journal.computed()
    account.say(0.0354)
    outcome = Outcome(applied=True, reason="", version=2, clock=1, norm=1.0)
    window = Window(clock=1, version=1, batches=(1,), unit=None)
    journal.step(window, outcome, started_s=0.0, batches=1, weight=1.0, loss=1.0)
    (found,) = closed(journal, tmp_path, trace.Unscheduled)
    assert (found.clock, found.work_s, found.exchange_s) == (1, 0.03, 0.005)


def test_where_no_account_is_kept_nothing_is_recorded(tmp_path):
    journal = journal_of(tmp_path, ProcessorQueue(tmp_path / "none"))
    a_window(journal)
    assert closed(journal, tmp_path, trace.Unscheduled) == []


@pytest.mark.skipif(not ProcessorQueue().kept, reason="no schedstat here")
def test_asking_takes_under_2_microseconds():
    queue, best_s = ProcessorQueue(), float("inf")
    for _ in range(5):
        began_s = time.thread_time()
        for _ in range(1000):
            queue.lap_s()
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
