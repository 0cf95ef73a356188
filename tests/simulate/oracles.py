"""Synchronisation by the book: a list of times for each worker, and nothing clever."""

from __future__ import annotations

from math import inf


def ssp(
    window_s: list[list[float]],
    staleness: float,
    push_s: list[list[float]] | None = None,
    pull_s: list[list[float]] | None = None,
) -> list[list[float]]:
    """When each worker finishes each of its windows (``window_s[i][k]``): step by step, worker by
    worker, from the definition of the bound. Its parameters come ``pull_s[i][k]`` after it was let
    through, its push is there ``push_s[i][k]`` after it has finished."""
    workers, windows = range(len(window_s)), len(window_s[0])
    nothing = [[0.0] * windows for _ in workers]
    push_s, pull_s = push_s or nothing, pull_s or nothing
    finish: list[list[float]] = [[] for _ in workers]
    there: list[list[float]] = [[] for _ in workers]
    for k in range(windows):
        for i in workers:
            start = there[i][k - 1] if k else 0.0
            if staleness != inf and k - staleness - 1 >= 0:
                start = max([start, *(there[j][k - int(staleness) - 1] for j in workers)])
            finish[i].append(start + pull_s[i][k] + window_s[i][k])
            there[i].append(finish[i][k] + push_s[i][k])
    return finish


def backup(window_s: list[list[float]], spares: int, rounds: int) -> list[float]:
    """When each round is decided: event by event, the earliest first."""
    workers = len(window_s)
    begun = [0] * workers
    busy: dict[int, tuple[float, int]] = {}  # worker -> (when it will be through, its round)
    free = dict.fromkeys(range(workers), 0.0)
    decided: list[float] = []
    now = 0.0
    while len(decided) < rounds:
        for i in list(free):
            del free[i]
            busy[i] = (now + window_s[i][begun[i]], len(decided))
            begun[i] += 1
        here: list[int] = []
        while len(here) < workers - spares:
            i = min(set(busy) - set(here), key=lambda j: busy[j][0])
            now, own_round = busy[i]
            if own_round == len(decided):
                here.append(i)
            else:  # too late: dropped; it goes on with the round that is open
                busy[i] = (now + window_s[i][begun[i]], len(decided))
                begun[i] += 1
        for i in here:
            del busy[i]
            free[i] = now
        decided.append(now)
    return decided


def busy_share(finish: list[list[float]], window_s: list[list[float]]) -> float:
    """Computing time over all workers' time until the last one has finished."""
    end = max(own[-1] for own in finish)
    return sum(map(sum, window_s)) / (len(finish) * end)
