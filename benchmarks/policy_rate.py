"""How many facts a second the policy core decides on one core: ``python benchmarks/policy_rate.py``.

Every worker pulls and pushes in turn, heartbeats included as a real run has them (one a second at
100 windows a second). What is timed, in processor seconds: constructing the fact, feeding it,
receiving the orders. The best of five rounds is printed: the others measure what else the machine
was doing.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Iterator
from time import process_time

from paceline.events import Join, Pull, Push, Request, Tick
from paceline.policy import Coordinator
from paceline.strategies import parse_strategy

STRATEGIES = ("async", "ssp:3", "sync:server", "backup:1")
SIZES = (8, 1024)
FACTS = 200_000
ROUNDS = 5


def opened(strategy: str, world_size: int) -> Coordinator:
    """A coordinator whose workers have joined and opened an endless pass."""
    coordinator = Coordinator(
        strategy=parse_strategy(strategy), world_size=world_size, evict_after_s=10.0
    )
    for rank in range(world_size):
        coordinator.feed(Join(time_s=0.0, rank=rank))
    for rank in range(world_size):
        request = Request(
            time_s=0.0, rank=rank, pass_id=0, total=None, window=1, depth=2, weight=8.0
        )
        coordinator.feed(request)
    return coordinator


def drive(coordinator: Coordinator, world_size: int, windows: int) -> int:
    """Every worker computes ``windows`` windows, in turn; how many facts that took."""
    feed = coordinator.feed
    for window in range(windows):
        now_s = window * 0.01
        for rank in range(world_size):
            feed(Pull(time_s=now_s, rank=rank))
        for rank in range(world_size):
            feed(Push(time_s=now_s, rank=rank, weight=8.0, unit=8.0))
        if window % 100 == 99:
            for rank in range(world_size):
                feed(Tick(time_s=now_s, rank=rank))
    return windows * world_size * 2 + windows // 100 * world_size


def rates(strategy: str, world_size: int) -> Iterator[float]:
    """Facts a second, once a round."""
    for _ in range(ROUNDS):
        coordinator = opened(strategy, world_size)
        gc.collect()
        started = process_time()
        facts = drive(coordinator, world_size, FACTS // (2 * world_size))
        yield facts / (process_time() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="*", default=SIZES)
    parser.add_argument("--json", action="store_true", help="of one number of workers: all rounds")
    args = parser.parse_args()
    if args.json:
        print(json.dumps({word: list(rates(word, args.workers[0])) for word in STRATEGIES}))
        return
    print(f"{'strategy':<12} {'workers':>7} {'facts/s':>9}")
    for strategy in STRATEGIES:
        for world_size in args.workers:
            rate = max(rates(strategy, world_size))
            print(f"{strategy:<12} {world_size:>7} {rate:>9,.0f}")


if __name__ == "__main__":
    main()
