"""Threads that do numbered jobs side by side. Knows nothing of what a job is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor


class Crew:
    """``threads`` in all, the caller's included. Threads start with the first shared work."""

    def __init__(self, threads: int) -> None:
        self._helpers = max(0, threads - 1)
        self._pool = ThreadPoolExecutor(max(1, self._helpers), thread_name_prefix="shard")

    def run(self, job: Callable[[int], None], numbers: Sequence[int]) -> None:
        """Call ``job`` with each of ``numbers``; return when all have ended.

        Whoever is free takes the next: with fewer cores than threads nobody waits for a slow one.
        Raises what a job raised.
        """
        left = iter(numbers)

        def work() -> None:
            for (
                number
            ) in left:  # next() of a range or list is one step under the interpreter's lock
                job(number)

        shared = [self._pool.submit(work) for _ in range(min(self._helpers, len(numbers) - 1))]
        try:
            work()
        finally:
            errors = [one.exception() for one in shared]
        for error in errors:
            if error is not None:
                raise error

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()
