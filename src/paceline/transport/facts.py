"""Facts in which all ranks must agree: how they are compared, and how a difference is worded.

Used where ranks meet, and where the server compares them one by one. Knows no tensors and no state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.transport.witness_messages import Difference, Fact, Said

Facts = Mapping[str, Fact]

_NAMED = 5


def compare(everyone: Mapping[int, Facts]) -> Difference | None:
    """How the ranks' facts differ, if they do.

    A fact that only some have is a difference; a value that cannot be compared now is none.
    """
    first, *others = everyone.values()
    if all(one is first or one == first for one in others):
        return None
    subjects = {about: None for facts in everyone.values() for about in facts}
    differing = [about for about in subjects if _differs(about, everyone)]
    if not differing:
        return None
    about, *more = differing
    said = [
        Said(rank=rank, shown=facts[about].shown if about in facts else None)
        for rank, facts in everyone.items()
    ]
    return Difference(about=about, said=said, more=more)


def describe(difference: Difference) -> str:
    """Who says what: ``lr of optimizer group 0: 0.1 on ranks 0, 1; 0.2 on rank 2``."""
    ranks: dict[str, list[int]] = {}
    for one in sorted(difference.said, key=lambda one: one.rank):
        ranks.setdefault("missing" if one.shown is None else one.shown, []).append(one.rank)
    parts = [f"{shown} on {_ranks(those)}" for shown, those in ranks.items()]
    more = difference.more[:_NAMED] + ["..."] * (len(difference.more) > _NAMED)
    also = f" (also different: {', '.join(more)})" if more else ""
    return f"{difference.about}: {'; '.join(parts)}{also}"


def _differs(about: str, everyone: Mapping[int, Facts]) -> bool:
    facts = [facts.get(about) for facts in everyone.values()]
    values = {fact.value for fact in facts if fact is not None and fact.value is not None}
    return None in facts or len(values) > 1


def _ranks(those: Sequence[int]) -> str:
    return f"rank{'s' * (len(those) > 1)} {', '.join(map(str, those))}"
