"""Is it the exchange that takes the time: the links, the server, or batches too small to pay for it?

With T_c a window's own work and T_x its exchange, N workers do N windows in T_c + T_x, one alone
needs N T_c. So they are faster than one as soon as T_c > T_x / (N - 1): the break-even batch. Four
fifths of the time are spent computing when T_c >= 4 T_x (FORMULAS: "Accumulation": A T_c + T_comm).
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np

from paceline.compare.units import duration, share
from paceline.diagnose.findings import Finding, severity_of
from paceline.diagnose.measured import Measured
from paceline.runs import Run
from paceline.strategies import DiLoCo, Local, drifts, fragments_of, is_joint, windows_apart

BOUND = 0.4
"""From two fifths of the time on, the exchange is what to improve; below, workers are."""
QUEUEING = 0.25
"""A quarter of the time in the server's queue, where nobody waits for other workers."""
LINK_SHARE = 0.25
"""On the server plane: if pulling, which waits for nothing, takes that share of it, it is the way."""
GOOD_SHARE = 0.8
REPEATED = 0.9


def about_exchange(found: Measured, whose: str = "communication-bound") -> list[Finding]:
    """What the exchange costs, if it costs much; ``whose``: the cause's word if it is not the batch's."""
    if not found.windows or found.workers < 2:
        return []
    bound = _bound(found, whose)
    return [] if bound is None else [bound]


def about_server(run: Run, found: Measured) -> list[Finding]:
    """What only a run's own records can tell: exchanges inside a window, and the server's queue."""
    if not found.windows or found.workers < 2:
        return []
    return [one for one in (_every_micro_batch(run), _queueing(run, found)) if one is not None][:1]


def _every_micro_batch(run: Run) -> Finding | None:
    """Accumulation that exchanges more than once a window."""
    steps = [step for rank in run.ranks for step in rank.steps if step.batches >= 2]
    size_bytes = run.setup.parameter_bytes
    if not steps or not size_bytes:
        return None
    exchanges = float(np.median([step.sent_bytes / size_bytes for step in steps]))
    batches = float(np.median([step.batches for step in steps]))
    if exchanges < REPEATED * batches:
        return None
    exchange_s = sum(step.exchange_s for step in steps)
    work_s = sum(step.data_s + step.forward_s + step.backward_s for step in steps)
    part = exchange_s / max(exchange_s + work_s, 1e-9)
    return every_micro_batch(exchanges=exchanges, batches=batches, part=part)


def every_micro_batch(*, exchanges: float, batches: float, part: float) -> Finding:
    """``exchanges`` a window of ``batches`` micro-batches, which take ``part`` of the time."""
    cost = part * (1.0 - 1.0 / batches)
    return Finding(
        cause="exchange-every-micro-batch", cost=cost, severity=severity_of(cost),
        sentence=f"Gradients are exchanged {exchanges:.0f} times a window: accumulation saves nothing.",
        evidence=(f"an update has {batches:.0f} micro-batches and as many exchanges",),
        action="Exchange once a window: Worker(accumulate=k) does, or DDP's no_sync round forward "
        "and backward of all micro-batches but the last.",
        figures={"exchanges": exchanges, "batches": batches},
    )  # fmt: skip


def _queueing(run: Run, found: Measured) -> Finding | None:
    """Where every push is applied on arrival, waiting after it is the server's queue."""
    if is_joint(found.strategy):
        return None
    waits = [step.wait_s for rank in run.ranks for step in rank.steps]
    waited_s = float(np.mean(waits)) if waits else 0.0
    part = waited_s / found.cycle_s
    if part < QUEUEING:
        return None
    return Finding(
        cause="server-bound", cost=part, severity=severity_of(part),
        sentence=f"The server is the bottleneck: pushes wait in its queue for {share(part)} of the time.",
        evidence=(f"a push waits {duration(waited_s)} until its update begins, though nobody waits "
                  "for other workers here",),
        action="Push less often (--accumulate), use fewer workers, or give the server more cores.",
        figures={"queue_s": waited_s},
    )  # fmt: skip


def _bound(found: Measured, whose: str) -> Finding | None:
    coding_s = float(found.coding_s.max(axis=1).mean())
    moved_s = float(found.transfer_s.mean()) + coding_s
    work_s = float((found.own_s - found.coding_s).max(axis=1).mean())
    part = moved_s / found.cycle_s
    if part < BOUND:
        return None
    if drifts(found.strategy):
        return _meets_too_often(found, moved_s, work_s, part)
    batch = float(np.median(found.weight))
    even = ceil(batch * moved_s / (found.workers - 1) / max(work_s, 1e-9))
    good = ceil(batch * GOOD_SHARE / (1 - GOOD_SHARE) * moved_s / max(work_s, 1e-9))
    slower = work_s * (found.workers - 1) < moved_s
    cause = "batch-too-small" if slower else whose
    if coding_s > moved_s - coding_s:
        cause = "encoding-bound"
    return Finding(
        cause=cause, cost=part, severity=severity_of(part),
        sentence=f"{_WORDS[cause]}: exchanging takes {share(part)} of the time.",
        evidence=(
            f"a window's own work takes {duration(work_s)}, its exchange {duration(moved_s)}"
            + (f", of which encoding and decoding {duration(coding_s)}" if coding_s else ""),
            f"{found.workers} workers are faster than one from a global batch of "
            f"{even * found.workers} on (now {round(batch) * found.workers}), if a batch's time grows "
            "with its size",
        ),
        action=f"Larger batches, or --accumulate {max(2, ceil(good / max(batch, 1)))}: at "
        f"{good * found.workers} samples an update, computing takes {share(GOOD_SHARE)} of the time."
        + (_WHICH_LINK if found.topology == "allreduce" and cause != "encoding-bound" else ""),
        figures={
            "work_s": work_s, "exchange_s": moved_s, "break_even_batch": even * found.workers,
            "coding_s": coding_s,
        },
    )  # fmt: skip


def _meets_too_often(found: Measured, moved_s: float, work_s: float, part: float) -> Finding:
    """Of replicas: a round of more windows pays for the same exchange."""
    apart = windows_apart(found.strategy)
    needed = ceil(apart * GOOD_SHARE / (1 - GOOD_SHARE) * moved_s / max(work_s, 1e-9))
    assert isinstance(found.strategy, Local | DiLoCo)
    rarer = replace(found.strategy, windows=needed * fragments_of(found.strategy))
    return Finding(
        cause="communication-bound", cost=part, severity=severity_of(part),
        sentence=f"{_WORDS['communication-bound']}: exchanging takes {share(part)} of the time.",
        evidence=(
            f"the {apart:.0f} windows of a round take {duration(work_s)}, its exchange {duration(moved_s)}",
        ),
        action=f"Meet less often: at {rarer} computing takes {share(GOOD_SHARE)} of the time "
        "('paceline compare' shows what that does to the loss)." + _WHICH_LINK,
        figures={"work_s": work_s, "exchange_s": moved_s, "windows": float(rarer.windows)},
    )  # fmt: skip


_WHICH_LINK = (
    " One slow link or port slows every all-reduce, equally for all, and no trace can tell which: "
    "'paceline measure' times each."
)
_WORDS = {
    "batch-too-small": "The batch is too small to pay: the group is slower than one worker",
    "encoding-bound": "Encoding is the bottleneck, more than the link",
    "server-bound": "The server is the bottleneck",
    "communication-bound": "Communication is the bottleneck",
}


def whose_time(run: Run) -> str:
    """Whether an exchange's time is the server's or the way's: pulling waits for no sum."""
    if run.setup.topology != "server":
        return "communication-bound"
    steps = [step for rank in run.ranks for step in rank.steps]
    pulled_s, moved_s = (sum(getattr(s, f) for s in steps) for f in ("pull_s", "exchange_s"))
    return "communication-bound" if pulled_s >= LINK_SHARE * moved_s else "server-bound"
