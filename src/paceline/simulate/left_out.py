"""What of a cluster's file takes no part, where fewer workers are asked for than it describes: one sentence.

Said by every command that takes such a file and a number of workers. Knows the model, not who runs it.
"""

from __future__ import annotations

from paceline.simulate.cluster import ClusterModel


def left_out(model: ClusterModel, workers: int, source: str) -> str:
    """ "" if all take part; ``source``: what the file is called."""
    if workers >= model.count:
        return ""
    named = [rank for rank in _named(model) if rank >= workers]
    said = f", and with {_ranks(named)} what the file says of {_them(named)}" if named else ""
    return (
        f"{source} describes {model.count} workers, {workers} take{'s' * (workers == 1)} part: "
        f"{_ranks(list(range(workers, model.count)))} left out{said}"
    )


def _named(model: ClusterModel) -> list[int]:
    """Ranks that the file says something of, in order; of a node its first one."""
    own = [straggler.rank for straggler in model.stragglers]
    own += [burst.rank for burst in model.bursts]
    if model.network is not None:
        links = model.network.links
        own += [one.first_rank(links.per_node) for one in links.own]
    return sorted(set(own))


def _ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    whole = len(ranks) > 2 and ranks == list(range(ranks[0], ranks[-1] + 1))
    return f"ranks {ranks[0]} to {ranks[-1]}" if whole else f"ranks {', '.join(map(str, ranks))}"


def _them(ranks: list[int]) -> str:
    return "it" if len(ranks) == 1 else "them"
