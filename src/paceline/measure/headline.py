"""The first sentence of a measurement, links and steps together, and what to do next. Judges nothing itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.measure.sentences import Judged
from paceline.measure.steps import StepModel

CLEARLY = 1.3
"""So many times as long a step, and it is what the user came for (advise calls it slow for good)."""
KINDS = ("bandwidth", "latency")


def slow_machines(steps: StepModel | None) -> dict[int, float]:
    """Ranks whose steps take clearly longer, and how many times as long."""
    factors = {} if steps is None else steps.factors
    return {rank: factor for rank, factor in factors.items() if factor >= CLEARLY}


def headline(judged: Judged, steps: StepModel | None) -> str:
    """What is wrong with links and machines."""
    slow = slow_machines(steps)
    if not slow or steps is None:
        return judged.verdict
    named = " and ".join(
        f"rank {rank}'s {'steps take' if steps.origin else 'machine takes'} {factor:.2f} times as long"
        f"{'' if steps.origin else ' a step'}"
        for rank, factor in slow.items()
    )
    said = f"{named[0].upper()}{named[1:]}{' (emulated)' if steps.origin else ''}."
    if judged.slow or not judged.doubts:
        return f"{judged.verdict}\n{said}"
    return " ".join([said, *_of_links(judged.doubts)])


def _of_links(doubts: Sequence[str]) -> Iterator[str]:
    """What was judged first, then what was not, and why."""
    fine = [kind for kind in KINDS if not any(doubt.startswith(kind) for doubt in doubts)]
    if fine:
        yield f"By {' and '.join(fine)} no link is slow."
    yield f"Undecided: {'; '.join(doubts)}."


def next_steps(judged: Judged, steps: StepModel | None, written: str) -> list[str]:
    """What to do about it, and what the written file is for."""
    found = list(dict.fromkeys(one.action for one in judged.slow))
    slow = slow_machines(steps)
    if slow and steps is not None and not steps.origin:
        ranks = " and ".join(f"rank {rank}'s" for rank in slow)
        found.append(f"Run 'paceline doctor' on {ranks} machine: clocks, other processes, threads.")
    if slow:
        found.append("'paceline diagnose RUN' of a run says in which phase it is slow.")
    return [*found, f"paceline advise --for {written} SCRIPT: which strategy trains soonest there."]
