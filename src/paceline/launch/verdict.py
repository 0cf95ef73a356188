"""What became of a run, from how its processes ended: one exit code and one sentence.

Decides only; it signals nothing and reads nothing.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from paceline.launch.bootstrap import EXIT_STOPPED, EXIT_TERMINATED

Fate = Literal["finished", "raised", "killed", "stopped", "evicted", "ended"]
Loss = Literal["evicted", "halted", "followed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerEnd:
    """How a worker ended.

    ``returncode``: negative for a signal. ``loss``: the server had given the worker up for silence
    (``"evicted"``: the others went on; ``"halted"``: they were stopped), or for one lost of its group
    (``"followed"``). ``ended_by_us``: it was
    still running when the launcher ended it. ``clock``: where the server last saw it, if it did.
    """

    rank: int
    pid: int
    returncode: int
    loss: Loss | None = None
    ended_by_us: bool = False
    clock: int | None = None

    @property
    def fate(self) -> Fate:
        """``stopped``: it ended because another process was lost; ``ended``: by the launcher."""
        if self.loss is not None and (self.ended_by_us or self.returncode == EXIT_STOPPED):
            return "evicted"
        if self.ended_by_us:
            return "ended"
        if self.returncode == 0:
            return "finished"
        if self.returncode == EXIT_STOPPED:
            return "stopped"
        return "killed" if self._signal else "raised"

    def describe(self) -> str:
        """The worker's end as a clause: ``rank 2 was killed by SIGKILL at clock 17``."""
        at = "" if self.clock is None else f" at clock {self.clock}"
        if self.fate == "killed":
            return f"rank {self.rank} was killed by {_signal_name(self._signal)}{at}"
        if self.fate == "evicted" and self.loss == "followed":
            return f"rank {self.rank} left with its group{at}"
        if self.fate == "evicted":
            verb = "evicted" if self.loss == "evicted" else "given up"
            return f"rank {self.rank} fell silent and was {verb}{at}"
        if self.fate == "raised":
            return f"rank {self.rank} failed with exit code {self.returncode}"
        return f"rank {self.rank} {_PLAIN[self.fate]}"

    @property
    def _signal(self) -> int:
        """The signal it died of, 0 if none. Our bootstrap turns SIGTERM into an orderly exit."""
        if self.returncode == EXIT_TERMINATED:
            return signal.SIGTERM
        return max(0, -self.returncode)


_PLAIN = {"finished": "finished", "stopped": "was stopped", "ended": "was ended by the launcher"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """``exit_code``: 0 finished, 1 a worker failed, 3 stopped, 128 + signal: interrupted."""

    exit_code: int
    sentence: str


def judge(
    ends: Sequence[WorkerEnd],
    *,
    caught: signal.Signals | None = None,
    server_end: int | None = None,
) -> Verdict:
    """The verdict on a run. ``server_end``: the server's exit code if it ended before its workers."""
    if caught is not None:
        return Verdict(exit_code=128 + caught, sentence=_interrupted(caught))
    lost = [end for end in ends if end.fate in ("killed", "evicted")]
    if failed := [end for end in ends if end.fate == "raised"]:
        return Verdict(exit_code=1, sentence=_failed(failed, others=len(ends) - len(failed)))
    finished = sum(end.fate == "finished" for end in ends)
    if finished + len(lost) == len(ends) and finished:
        return Verdict(exit_code=0, sentence=_finished(lost, finished))
    return Verdict(exit_code=3, sentence=_stopped(lost, ends, server_end))


def _interrupted(caught: signal.Signals) -> str:
    how = "Ctrl-C" if caught == signal.SIGINT else caught.name
    return f"stopped by {how}; what was recorded is kept"


def _failed(failed: Sequence[WorkerEnd], *, others: int) -> str:
    clauses = "; ".join(end.describe() for end in failed)
    return f"{clauses}; the other {others} were stopped" if others else clauses


def _finished(lost: Sequence[WorkerEnd], finished: int) -> str:
    if not lost:
        return "the worker finished" if finished == 1 else f"all {finished} workers finished"
    clauses = "; ".join(end.describe() for end in lost)
    return f"{clauses}; the other {finished} went on and finished"


def _stopped(lost: Sequence[WorkerEnd], ends: Sequence[WorkerEnd], server_end: int | None) -> str:
    causes = [end.describe() for end in lost]
    if server_end is not None:
        causes.insert(0, f"the server {_process_end(server_end)}")
    if not causes:
        return "; ".join(end.describe() for end in ends)
    others = len(ends) - len(lost)
    return f"{'; '.join(causes)}; the other {others} stopped" if others else "; ".join(causes)


def _process_end(returncode: int) -> str:
    if returncode < 0:
        return f"was killed by {_signal_name(-returncode)}"
    return f"ended with exit code {returncode}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
