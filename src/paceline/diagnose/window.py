"""One window of one worker as a verdict sees it, and the windows of a round of local SGD as one.

Knows records; compares no workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from paceline.runs import RankTrace
from paceline.trace import Unscheduled

_WAITS = ("between_s", "data_s", "forward_s", "backward_s", "exchange_s", "somewhere_s")


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """One window of one worker. ``exchange_s``: all of its exchange but waiting that was recorded.

    ``queued``: its record of waiting for a processor, ``queued_before``: that of the window before.
    """

    clock: int
    phases: dict[str, float]
    ready_s: float
    wait_s: float
    exchange_s: float
    weight: float
    lag: float
    queued: Unscheduled | None
    queued_before: Unscheduled | None


def rounds_of(windows: Sequence[Window], rank: RankTrace, *, step: str) -> list[Window]:
    """The ``rank``'s windows from one exchange to the next as one each, without a first, partial one.

    What a window without an exchange spends there is its own optimizer, the phase called ``step``; an
    exchange has as much of it.
    """
    ends = {one.clock for one in rank.steps if one.sent_bytes}
    alone = [window.exchange_s for window in windows if window.clock not in ends]
    usual_s = median(alone) if alone else 0.0
    rounds: list[list[Window]] = [[]]
    for window in windows:
        own_s = min(usual_s, window.exchange_s) if window.clock in ends else window.exchange_s
        phases = {**window.phases, step: own_s}
        rounds[-1].append(replace(window, phases=phases, exchange_s=window.exchange_s - own_s))
        if window.clock in ends:
            rounds.append([])
    return [_joined(own) for own in rounds[1:-1]]


def _joined(windows: Sequence[Window]) -> Window:
    """Several windows in a row as one."""
    last = windows[-1]
    return replace(
        last,
        phases={name: sum(window.phases[name] for window in windows) for name in last.phases},
        wait_s=sum(window.wait_s for window in windows),
        exchange_s=sum(window.exchange_s for window in windows),
        weight=sum(window.weight for window in windows),
        queued=_waited([window.queued for window in windows]),
        queued_before=_waited([window.queued_before for window in windows]),
    )


def _waited(records: Sequence[Unscheduled | None]) -> Unscheduled | None:
    """What several windows have waited for a processor in all."""
    known = [one for one in records if one is not None]
    if not known:
        return None
    return replace(known[-1], **{name: sum(getattr(one, name) for one in known) for name in _WAITS})
