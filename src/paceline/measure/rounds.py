"""Who measures with whom, when: a tournament in which no rank is in two links of a round."""

from __future__ import annotations

Pair = tuple[int, int]


def tournament(ranks: int) -> list[list[Pair]]:
    """Rounds of disjoint pairs (low, high) in which every pair of ``ranks`` meets once.

    The circle method (Kirkman 1847): ``ranks - 1`` rounds, ``ranks`` if that is odd (one rests).
    """
    places = list(range(ranks + ranks % 2))
    half = len(places) // 2
    rounds = []
    for _ in range(len(places) - 1):
        facing = zip(places[:half], reversed(places[half:]), strict=True)
        pairs = [(min(a, b), max(a, b)) for a, b in facing]
        rounds.append(sorted(pair for pair in pairs if pair[1] < ranks))
        places = [places[0], places[-1], *places[1:-1]]
    return rounds


def partner(pairs: list[Pair], rank: int) -> int | None:
    """Whom ``rank`` meets in this round; None if it rests."""
    for low, high in pairs:
        if rank in (low, high):
            return high if rank == low else low
    return None
