"""What to probe next, given what is known. Sync and one worker first; nothing is called harmful untried.

A strategy is probed if the simulation says that it would be faster than sync by ``WORTH``: what cannot be
faster is not worth its old gradients or its lost batches, and the reasons say so. Faster in what it needs
no less of than sync, at best: samples, where each push is a part of an update; updates, for backup, whose
smaller rounds are batches that need fewer samples. Likewise local SGD, where exchanges take the time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from paceline.advise.outcomes import Candidate, Outcome, Summary, summary_of
from paceline.advise.pace import Pace, accumulating, knee_accumulation, knee_bound, knee_windows
from paceline.compare.target import Target
from paceline.errors import bad_value
from paceline.simulate.network import Network
from paceline.simulate.recorded_ways import RecordedWays
from paceline.trials import Trial, parse_trial

WORTH = 1.05
RATES = ("", " lr=0.33x", " lr=0.1x")
FORMS = ("", " recipe=stable")
FAMILIES = ("accumulate", "backup", "async", "ssp", "local")
"""What can be probed beside one worker and sync, which always are."""
DILOCO = "diloco:50"
HARMFUL = ("DIVERGED", "OSCILLATES", "WORSE")


def baselines(workers: int) -> list[Candidate]:
    """One worker, and sync."""
    sync = Trial(strategy="sync")
    return [Candidate(trial=sync, workers=1), Candidate(trial=sync, workers=workers)]


def most(workers: int, families: Collection[str] = FAMILIES) -> int:
    """How many candidates there can be at most, with the baselines."""
    each = {"accumulate": 2, "backup": 1, "local": 2, "async": len(RATES) * len(FORMS)}
    each["ssp"] = each["async"]
    return len(baselines(workers)) + sum(each[family] for family in families)


def family_of(trial: Trial) -> str:
    """Of which family it is; "sync" for the plain one. (DiLoCo is local SGD with an outer optimizer.)"""
    word = trial.strategy.partition(":")[0].replace("diloco", "local")
    return "accumulate" if word == "sync" and "accumulate" in trial.overrides else word


def families_from(text: str | None) -> tuple[str, ...]:
    """``async,ssp`` as families; None: all. Raises UsageError."""
    words = FAMILIES if text is None else tuple(word.strip() for word in text.split(","))
    for word in words:
        if word not in FAMILIES:
            raise bad_value(
                "only", word, f"some of {', '.join(FAMILIES)} with commas between",
                "One worker and sync are always probed; the bound of ssp follows from the cluster.",
            )  # fmt: skip
    return words


def next_candidates(
    pace: Pace,
    outcomes: Sequence[Outcome],
    target: Target,
    *,
    workers: int,
    families: Collection[str] = FAMILIES,
) -> list[Candidate]:
    """Who of these ``families`` is to be probed next, baselines excluded; empty when all is known that is
    needed."""
    tried = {one.candidate for one in outcomes}
    texts = _wanted(pace, outcomes, target, workers)
    wanted = [trial for trial in map(parse_trial, texts) if family_of(trial) in families]
    found = [Candidate(trial=trial, workers=workers) for trial in wanted]
    return [one for one in found if one not in tried]


def _wanted(pace: Pace, outcomes: Sequence[Outcome], target: Target, workers: int) -> list[str]:
    wanted = [*_accumulation(pace), *_backup(pace, workers), *meeting_words(pace)]
    for word in stale_words(pace):
        wanted += _per_push(word, outcomes, target, workers)
    return wanted


def _accumulation(pace: Pace) -> list[str]:
    k = knee_accumulation(pace)
    if k == 1:
        return []
    scaled = f"{k**0.5:.3g}"
    return [str(accumulating(k)), f"{accumulating(k)} lr={scaled}x"]


def _backup(pace: Pace, workers: int) -> list[str]:
    spares = max(1, len(pace.slow_ranks()))
    if spares >= workers:
        return []
    word = f"backup:{spares}"
    rounds_gain = pace.gain(Trial(strategy=word)) * workers / (workers - spares)
    return [word] if rounds_gain >= WORTH else []


def knows_meetings(pace: Pace) -> bool:
    """Whether it is known what replicas' meetings take: a run through a server does not tell."""
    return isinstance(pace.network, Network) or (
        isinstance(pace.network, RecordedWays) and pace.network.over_network
    )


def meeting_words(pace: Pace) -> list[str]:
    """Local SGD, and DiLoCo, where exchanges cost so much that meeting less often could be faster."""
    if not knows_meetings(pace) or pace.gain(Trial(strategy="local:inf")) < WORTH:
        return []
    return [f"local:{knee_windows(pace)}", DILOCO]


def stale_words(pace: Pace) -> list[str]:
    """The strategies with old gradients that could be faster than sync. Never SSP for a straggler that
    is slow for good: any bound ends at its pace."""
    words = ["async"] if pace.gain(Trial(strategy="async")) >= WORTH else []
    if words and not pace.slow_ranks():
        bound = f"ssp:{knee_bound(pace)}"
        words += [bound] if pace.gain(Trial(strategy=bound)) >= WORTH else []
    return words


def _per_push(
    word: str, outcomes: Sequence[Outcome], target: Target, workers: int
) -> list[str]:  # fmt: skip
    """Plain and stable at the script's rate; at a third, and a tenth of it, while both are harmed."""
    wanted: list[str] = []
    for rate in RATES:
        forms = [f"{word}{form}{rate}" for form in FORMS]
        wanted += forms
        if not all(_was_harmed(text, outcomes, target, workers) for text in forms):
            break
    return wanted


def _was_harmed(text: str, outcomes: Sequence[Outcome], target: Target, workers: int) -> bool:
    """Whether it was probed, and harmed. (One that is only slower would be slower still at a lower rate.)"""
    own = Candidate(trial=parse_trial(text), workers=workers)
    if not any(one.candidate == own for one in outcomes):
        return False
    return is_harmed(summary_of(own, outcomes, target, seconds_a_sample=None))


def is_harmed(summary: Summary) -> bool:
    """Whether the loss says that this strategy harms, or the target was missed."""
    word = summary.stability.word if summary.stability is not None else ""
    return not summary.usable or word in HARMFUL
