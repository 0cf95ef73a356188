"""The recommendation: which candidate, why, what would change it. Each rule returns its reason.

The simplest candidate whose predicted time to target ties with the best one's is recommended. What ties:
5 %, or the standard error of the difference where that is larger, but at most 10 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, isfinite, sqrt

from paceline.advise.outcomes import Candidate, Outcome, Summary, is_sync, summary_of
from paceline.advise.pace import Pace, accumulating, knee_accumulation, loses_below
from paceline.advise.plan import HARMFUL, WORTH, stale_words
from paceline.compare.target import Target
from paceline.compare.units import duration, share
from paceline.strategies import Backup, drifts, is_joint, parse_strategy
from paceline.trials import Trial

TIE, LARGEST_TIE = 0.05, 0.10
SURE_SEEDS = 5
REPAIR_PAYS = 1.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """``answer``: in a sentence. ``choice``: what to run; None if nothing can be said. ``rows``: every
    candidate, fastest first. ``changes``: what would change the answer. ``bandwidth_bytes_per_s``:
    below it ``rival`` is faster, as far as known."""

    answer: str
    target: Target | None
    choice: Candidate | None
    rows: tuple[Summary, ...] = ()
    reasons: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    bandwidth_bytes_per_s: float | None = None
    rival: Candidate | None = None


def does_not_fit(outcome: Outcome, memory_bytes: float | None) -> Advice | None:
    """The answer where parameters, gradients and optimizer state exceed one device; None if they fit."""
    if memory_bytes is None or outcome.state_bytes <= memory_bytes:
        return None
    return Advice(
        answer="Parameters and optimizer do not fit one device: data parallelism cannot help.",
        target=None, choice=None,
        reasons=(
            f"Parameters, gradients and optimizer state are {outcome.state_bytes / 1e9:.3g} GB, a device has "
            f"{memory_bytes / 1e9:.3g} GB, and every strategy here keeps all of it on each worker. Shard the "
            "model (FSDP, tensor or pipeline parallelism), or take an optimizer with less state.",
        ),
    )  # fmt: skip


def advise(
    pace: Pace, outcomes: Sequence[Outcome], target: Target, *, own_time: bool
) -> Advice:  # fmt: skip
    """What the probes say. ``own_time``: their time is the time of the cluster that is meant."""
    rows = summaries(pace, outcomes, target, own_time=own_time)
    usable = [row for row in rows if row.usable]
    if not usable:
        return Advice(
            answer=f"Nobody reached {target}: nothing can be said.", target=target, choice=None,
            rows=tuple(rows), reasons=("Train longer (--epochs), or aim lower (--target).",),
        )  # fmt: skip
    chosen = _simplest_of(usable)
    others = [row for row in usable if row.candidate != chosen.candidate]
    rival, bandwidth = _network_limit(pace, chosen, others, outcomes)
    return Advice(
        answer=_answer(pace, chosen),
        target=target,
        choice=chosen.candidate,
        rows=tuple(rows),
        reasons=tuple(_reasons(pace, chosen, rows)),
        changes=tuple(_changes(pace, chosen, rival, bandwidth)),
        bandwidth_bytes_per_s=bandwidth,
        rival=rival,
    )


def summaries(
    pace: Pace, outcomes: Sequence[Outcome], target: Target, *, own_time: bool
) -> list[Summary]:
    """Every candidate that was probed, the fastest first."""
    found = []
    for candidate in dict.fromkeys(one.candidate for one in outcomes):
        batch = next(one.batch for one in outcomes if one.candidate == candidate)
        a_sample_s = None if own_time else 1.0 / (pace.batches_per_s(candidate) * batch)
        found.append(summary_of(candidate, outcomes, target, seconds_a_sample=a_sample_s))
    return sorted(found, key=lambda row: (row.time_s, complexity(row.candidate)))


def complexity(candidate: Candidate) -> int:
    """How much there is to know about it: sync least of all, then one worker."""
    strategy, trial = parse_strategy(candidate.trial.strategy), candidate.trial
    if candidate.workers == 1:
        return 1
    family = 0 if trial.strategy == "sync" else 2 if isinstance(strategy, Backup) else 3
    return 10 * family + 2 * (len(trial.options) + (trial.lr_factor != 1.0))


def course_choice(outcomes: Sequence[Outcome], target: Target) -> Candidate | None:
    """What the course's probe alone would say: async if its loss does not oscillate, else sync."""
    by_name = {str(one.candidate): one.candidate for one in outcomes}
    sync, other = by_name.get("sync"), by_name.get("async")
    if other is None:
        return sync
    stability = summary_of(other, outcomes, target, seconds_a_sample=None).stability
    harmed = stability is None or stability.word in HARMFUL
    return sync if harmed else other


def _simplest_of(usable: Sequence[Summary]) -> Summary:
    best = usable[0]
    return min(
        (row for row in usable if row.time_s <= best.time_s * (1 + _tie(best, row))),
        key=lambda row: (complexity(row.candidate), row.time_s),
    )


def _tie(best: Summary, row: Summary) -> float:
    if best.spread_s is None or row.spread_s is None:
        return TIE
    error_s = hypot(best.spread_s, row.spread_s) / sqrt(min(best.seeds, row.seeds))
    return min(LARGEST_TIE, max(TIE, error_s / best.time_s))


# ------------------------------------------------------------------------------------ in words


def _answer(pace: Pace, chosen: Summary) -> str:
    slow = pace.slow_ranks()
    if slow and pace.repaired() >= REPAIR_PAYS * _throughput(pace, chosen):
        ranks = " and ".join(f"rank {rank}" for rank in slow)
        return f"Repair {ranks} first; until then: {chosen.candidate}."
    if is_sync(chosen.candidate):
        return "Stay with sync."
    return f"Use {chosen.candidate}."


def _throughput(pace: Pace, row: Summary) -> float:
    """Over sync's."""
    if row.candidate.workers == 1:
        return 0.0
    return pace.gain(row.candidate.trial)


def _reasons(pace: Pace, chosen: Summary, rows: Sequence[Summary]) -> list[str]:
    rules = (
        _why_it_is_chosen(chosen, rows), _about_slow_ranks(pace), _about_old_gradients(pace, rows),
        _about_accumulation(pace), _about_meetings(pace, rows), _about_one_worker(chosen, rows),
        _about_certainty(rows),
    )  # fmt: skip
    return [reason for reason in rules if reason]


def _why_it_is_chosen(chosen: Summary, rows: Sequence[Summary]) -> str:
    others = [row for row in rows if row.candidate != chosen.candidate and row.usable]
    if not others:
        return f"{chosen.candidate} alone reached the target."
    best = others[0]
    if best.time_s < chosen.time_s:
        return (
            f"{chosen.candidate} is within {share(chosen.time_s / best.time_s - 1)} of {best.candidate}, "
            f"the fastest, which is a tie with {chosen.seeds} seed{'s' * (chosen.seeds > 1)}; "
            "the simpler one wins ties."
        )
    return (
        f"{chosen.candidate} reaches the target in {duration(chosen.time_s)}, the next ({best.candidate}) in "
        f"{duration(best.time_s)}."
    )


def _about_slow_ranks(pace: Pace) -> str:
    slow = pace.slow_ranks()
    if not slow:
        return ""
    who = ", ".join(f"rank {rank} ({factor:.1f} times as slow)" for rank, factor in slow.items())
    return (
        f"Slow for good: {who}. Any bound of ssp ends at that pace, so ssp is not offered. As fast as "
        f"the others, sync would be {pace.repaired():.2f} times as fast as it is."
    )


def _about_old_gradients(pace: Pace, rows: Sequence[Summary]) -> str:
    gain = pace.gain(Trial(strategy="async"))
    if not stale_words(pace):
        return (
            f"async was not tried: even if it needed no more samples, it would be {gain:.2f} times as fast "
            f"as sync, and below {WORTH:g} old gradients are not worth it."
        )
    harmed = [
        row for row in rows if _is_stale(row) and row.stability and row.stability.word in HARMFUL
    ]
    if not harmed:
        return ""
    said = ", ".join(f"{row.candidate}: {row.stability}" for row in harmed)
    return f"Old gradients harm (final loss / sync's at equal samples): {said}."


def _is_stale(row: Summary) -> bool:
    return not is_joint(parse_strategy(row.candidate.trial.strategy))


def _about_accumulation(pace: Pace) -> str:
    k = knee_accumulation(pace)
    if k == 1:
        return ""
    return (
        f"Exchanging costs much against computing: windows of {k} micro-batches give "
        f"{pace.gain(accumulating(k)):.2f} times sync's throughput."
    )


def _about_meetings(pace: Pace, rows: Sequence[Summary]) -> str:
    met = [row.candidate for row in rows if drifts(parse_strategy(row.candidate.trial.strategy))]
    gains = ", ".join(f"{one} has {pace.gain(one.trial):.2f}" for one in met)
    return f"Meeting less often saves exchanges: {gains} times sync's throughput." if met else ""


def _about_one_worker(chosen: Summary, rows: Sequence[Summary]) -> str:
    alone = next((row for row in rows if row.candidate.workers == 1), None)
    if alone is None or not alone.usable or alone.candidate == chosen.candidate:
        return "" if alone is None or alone.usable else "One worker did not reach the target."
    return f"Against one worker the time to target is {alone.time_s / chosen.time_s:.2f} times shorter."


def _about_certainty(rows: Sequence[Summary]) -> str:
    seeds = min(row.seeds for row in rows)
    if seeds >= SURE_SEEDS:
        return ""
    if seeds == 1:
        return (
            "1 seed shows no spread: any difference may be chance. --seeds 3 shows which are not."
        )
    return f"{seeds} seeds: differences below the spread may be chance."


def _changes(
    pace: Pace, chosen: Summary, rival: Candidate | None, bandwidth: float | None
) -> list[str]:
    found = []
    if bandwidth is not None and rival is not None:
        found.append(f"A network below {_rate(bandwidth)} for each worker: then {rival} is faster.")
    if pace.slow_ranks():
        found.append("Repairing who is slow: then ask again, sync may do.")
    elif is_sync(chosen.candidate):
        found.append(
            "Workers that stall now and then, or differ in speed: then ssp or async may pay."
        )
    found.append("A larger model, batch or learning rate: old gradients cost more or less then.")
    return found


def _rate(bytes_per_s: float) -> str:
    bits = 8 * bytes_per_s
    return f"{bits / 1e9:.3g} Gb/s" if bits >= 1e9 else f"{bits / 1e6:.3g} Mb/s"


def _network_limit(
    pace: Pace, chosen: Summary, others: Sequence[Summary], outcomes: Sequence[Outcome]
) -> tuple[Candidate | None, float | None]:
    """The largest bandwidth below which one worker, or the next best, is faster; and which of them."""
    size = max(one.parameter_bytes for one in outcomes)
    limits = [
        (found, row.candidate)
        for row in dict.fromkeys([*others[:1], *(row for row in others if row.candidate.workers == 1)])
        if (found := loses_below(
            pace, chosen.candidate, row.candidate,
            best_s=chosen.time_s, other_s=max(row.time_s, chosen.time_s), size_bytes=size,
        )) is not None and isfinite(found)
    ]  # fmt: skip
    if not limits:
        return None, None
    bandwidth, rival = max(limits, key=lambda limit: limit[0])
    return rival, bandwidth
