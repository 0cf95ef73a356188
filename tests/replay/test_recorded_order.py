"""The recorded order on a real server: played by chance, then again by chance, to the same bits."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.encounters import Differs
from paceline.events import Push, Release, Start, Update
from replay.cast import Play, Played, perform

pytestmark = pytest.mark.usefixtures("one_thread")
KILLED = Play(strategy="async", killed=(1, 1))
PLAYS = [
    Play(strategy="async"),
    Play(strategy="ssp:3"),
    Play(strategy="ssp:1", breaks=1),
    Play(strategy="backup:1"),
    Play(strategy="sync:server"),
    Play(strategy="ssp:0", generations=2),
    Play(strategy="async", generations=2, passes=1),
    KILLED,
    replace(KILLED, strategy="ssp:3"),
    replace(KILLED, strategy="backup:1"),
    replace(KILLED, strategy="sync:server"),
    Play(strategy="async", silent=(2, 1), evict_after_s=0.8),
]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a name short enough for a socket in it."""
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        yield Path(name)


def assert_equal(before: Played, after: Played) -> None:
    assert not any(isinstance(one, Differs) for one in after.records())
    assert after.decisions() == before.decisions()
    assert after.parameters == before.parameters
    for rank, seen in before.seen.items():
        whole = rank in before.parameters
        common = None if whole else min(len(seen), len(after.seen[rank]))
        assert after.seen[rank][:common] == seen[:common]  # an answer may reach the dying or not
    assert sorted(after.writers) == sorted(before.writers)


@pytest.mark.parametrize("play", PLAYS, ids=str)
def test_a_replay_has_the_order_and_the_bits_of_the_record(play: Play, place: Path) -> None:
    before = perform(play, place / "a")
    for struck in filter(None, (play.killed, play.silent)):
        assert struck[0] not in before.parameters
    again = replace(play, killed=None, silent=None)  # deaths come from the record
    assert_equal(before, perform(again, place / "b", again=before))


def test_a_worker_that_kills_itself_again_is_waited_for_if_it_does_so_late(place: Path) -> None:
    before = perform(KILLED, place / "a")
    assert_equal(before, perform(KILLED, place / "b", again=before))


def test_a_worker_that_has_just_killed_itself_need_not_be_ended(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_late(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        raise ProcessLookupError

    before = perform(KILLED, place / "a")
    monkeypatch.setattr("replay.cast._kill", too_late)
    assert_equal(before, perform(replace(KILLED, killed=None), place / "b", again=before))


@pytest.mark.full
@pytest.mark.parametrize("number", range(20))
@pytest.mark.parametrize("strategy", ["async", "ssp:3"])
def test_20_of_20(strategy: str, number: int, place: Path) -> None:
    play = Play(strategy=strategy, workers=4, killed=(number % 4, number % 2))
    before = perform(play, place / "a")
    assert_equal(before, perform(replace(play, killed=None), place / "b", again=before))


def test_a_changed_gradient_is_named_at_its_push(place: Path) -> None:
    play = Play(strategy="async")
    before = perform(play, place / "a")
    after = perform(replace(play, perturbed=(1, 2)), place / "b", again=before)
    [differs] = [one for one in after.records() if isinstance(one, Differs)]
    pushes = [one for one in before.records() if isinstance(one, Push) and one.rank == 1]
    starts = [one for one in before.records() if isinstance(one, Start) and one.rank == 1]
    assert (differs.rank, differs.clock) == (1, starts[1].clock)
    assert differs.field == "gradient_norm of its push"
    assert differs.recorded == repr(pushes[1].gradient_norm)
    assert set(after.stops) == {0, 1, 2}
    assert all(str(differs) in text for text in after.stops.values())
    line = (place / "a" / "server.jsonl").read_text().splitlines()[differs.line - 1]
    assert line.startswith('["push"')
    assert repr(pushes[1].gradient_norm) in line


def test_it_stops_when_a_version_is_made(place: Path) -> None:
    play = Play(strategy="async")
    before = perform(play, place / "a")
    after = perform(play, place / "b", again=before, until=5)
    made = [one.version for one in after.records() if isinstance(one, Update)]
    assert made == [1, 2, 3, 4, 5]
    assert set(after.stops.values()) == {"version 5 is made"}


def test_what_was_torn_off_the_record_is_not_missed(place: Path) -> None:
    play = Play(strategy="async")
    before = perform(play, place / "a")
    path = place / "a" / "server.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]) + lines[len(lines) // 2][:7])
    after = perform(play, place / "b", again=before)
    kept = before.decisions()
    assert after.decisions()[: len(kept)] == kept
    assert set(after.stops.values()) == {"the record ends here"}


def test_a_death_that_was_not_recorded_is_named(place: Path) -> None:
    play = replace(KILLED, killed=None)
    before = perform(play, place / "a")
    after = perform(KILLED, place / "b", again=before)
    [differs] = [one for one in after.records() if isinstance(one, Differs)]
    assert (differs.rank, differs.now) == (1, "its process ended")


def test_a_worker_that_does_something_else_is_named(place: Path) -> None:
    before = perform(Play(strategy="async"), place / "a")
    after = perform(Play(strategy="async", passes=1), place / "b", again=before)
    [differs] = [one for one in after.records() if isinstance(one, Differs)]
    assert differs.field == "what it did"
    assert differs.now != differs.recorded
    assert not any(isinstance(one, Release) for one in after.records())
