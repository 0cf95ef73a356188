"""The timing of a cluster, as a user writes it down in ``cluster.toml``: how long each step takes.

    [workers]
    count = 8
    step_s = 0.05        # one micro-batch, forward and backward
    jitter = 0.1         # share of the step; the extra time is exponential
    seed = 0

    [hiccups]            # transient: now and then one step takes much longer
    probability = 0.05
    factor = 3.0

    [[stragglers]]       # persistent: always slow
    rank = 2
    factor = 4.0         # or: added_s = 0.1

    [[bursts]]           # bursty: slow for a while
    rank = 1
    start = 100          # its step number
    length = 50          # steps
    factor = 3.0

    [late]               # in every step some are late by so much
    count = 2
    added_s = 0.1
    pattern = "random"   # or "same", or "every:50": who they are changes every 50 steps

    [network]            # every worker's link, and what is behind it
    size_bytes = 100e6   # of the parameters; needed where there is a bandwidth
    delay_s = 50e-6      # one way, each time
    jitter_s = 20e-6     # exponential, on top
    bytes_per_s = 125e6
    algorithm = "ring"   # of all-reduce: or "tree", "halving-doubling", "hierarchical"
    per_node = 1         # workers of a node
    inside_bytes_per_s = 10e9  # hierarchical: within a node; and inside_delay_s
    server_bytes_per_s = 1.25e9
    shards = 1

    [[links]]            # another link; what is not said is as in [network]
    rank = 2             # or: node = 1
    delay_s = 0.02

The model only says how long things take. It does not know who sleeps (emulation) or who adds up
(simulation), nor which strategy runs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from paceline.errors import UsageError, bad_value
from paceline.simulate.draws import BLOCK_STEPS, Floats, chosen, step_draws, step_draws_as_lists
from paceline.simulate.late import Late, late_from
from paceline.simulate.network import Network, network_from
from paceline.simulate.tables import Table


@dataclass(frozen=True, kw_only=True, slots=True)
class Hiccups:
    """With ``probability`` a step takes ``factor`` times as long."""

    probability: float = 0.0
    factor: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Straggler:
    """``rank`` is always slow: its steps take ``factor`` times as long, and ``added_s`` more."""

    rank: int
    factor: float = 1.0
    added_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Burst:
    """Steps ``start`` to ``start + length`` of ``rank`` take ``factor`` times as long."""

    rank: int
    start: int
    length: int
    factor: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterModel:
    """A cluster of ``count`` workers whose step takes ``step_s`` seconds, more or less.

    time = step_s * (1 + jitter * Exp(1)) * (factors of hiccup, burst, straggler) + (seconds added)

    Every time is a function of (seed, rank, step) alone, whoever asks and in whatever order: the
    random numbers come from a counter, not from a state.
    """

    count: int
    step_s: float
    jitter: float = 0.0
    seed: int = 0
    hiccups: Hiccups = Hiccups()
    stragglers: tuple[Straggler, ...] = ()
    bursts: tuple[Burst, ...] = ()
    late: Late | None = None
    network: Network | None = None

    @staticmethod
    def load(path: str | Path, *, seed: int | None = None) -> ClusterModel:
        """The model in the file at ``path``; ``seed`` replaces the file's own.

        Raises :class:`UsageError` that names the file, the key, the allowed range and the remedy.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise UsageError(
                f"{path}: cannot be read as a cluster file: {why}. 'paceline measure' writes one."
            ) from error
        return ClusterModel.parse(text, source=str(path), seed=seed)

    @staticmethod
    def parse(text: str, *, source: str = "cluster.toml", seed: int | None = None) -> ClusterModel:
        """The model in ``text``; ``source`` is what error messages call it."""
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{source}: not valid TOML: {error}.") from error
        return _model(document, source=source, seed=seed)

    @staticmethod
    def of(document: Mapping[str, Any], *, source: str) -> ClusterModel:
        """The model in ``document``, which has the tables of a file; ``source`` as in :meth:`parse`."""
        return _model(document, source=source, seed=None)

    @property
    def regular_s(self) -> float:
        """The expectation of a step in which nothing goes wrong."""
        return self.step_s * (1.0 + self.jitter)

    def step_time_s(self, *, rank: int, step: int) -> float:
        """Seconds that micro-batch number ``step`` (0, 1, ...) of ``rank`` takes."""
        self._check_rank(rank)
        block, within = divmod(step, BLOCK_STEPS)
        extra, chance = step_draws_as_lists(self.seed, rank, block)
        slow = self._straggler(rank)
        time_s = self.step_s * (1.0 + self.jitter * extra[within])
        if chance[within] < self.hiccups.probability:
            time_s *= self.hiccups.factor
        for burst in self._bursts(rank):
            if burst.start <= step < burst.start + burst.length:
                time_s *= burst.factor
        time_s = time_s * slow.factor + slow.added_s
        if self.late is not None and rank in self._late_ranks(self.late, step):
            time_s += self.late.added_s
        return time_s

    def step_times_s(self, steps: int) -> Floats:
        """All times of the first ``steps`` steps, shape (count, steps), in seconds.

        Equal to :meth:`step_time_s` bit for bit.
        """
        times_s = np.stack([self._row(rank, steps) for rank in range(self.count)])
        if self.late is not None:
            for group, own in self.late.groups(steps):
                ranks = chosen(self.seed, group, count=self.late.count, of=self.count)
                times_s[list(ranks), own] += self.late.added_s
        return times_s

    def mean_step_s(self, rank: int) -> float:
        """The expectation of :meth:`step_time_s` over all steps outside bursts.

        Where who is late changes, each rank is so equally often.
        """
        self._check_rank(rank)
        slow = self._straggler(rank)
        hiccup = 1.0 + self.hiccups.probability * (self.hiccups.factor - 1.0)
        return (
            self.step_s * (1.0 + self.jitter) * hiccup * slow.factor
            + slow.added_s
            + self._mean_late_s(rank)
        )

    def _mean_late_s(self, rank: int) -> float:
        if self.late is None:
            return 0.0
        if self.late.every is None:
            return self.late.added_s * (rank in self._late_ranks(self.late, 0))
        return self.late.added_s * self.late.count / self.count

    def _row(self, rank: int, steps: int) -> Floats:
        blocks = range(-(-steps // BLOCK_STEPS))
        draws = [step_draws(self.seed, rank, block) for block in blocks]
        extra = np.concatenate([np.empty(0), *[extra for extra, _ in draws]])[:steps]
        chance = np.concatenate([np.empty(0), *[chance for _, chance in draws]])[:steps]
        slow = self._straggler(rank)
        times_s = self.step_s * (1.0 + self.jitter * extra)
        times_s[chance < self.hiccups.probability] *= self.hiccups.factor
        for burst in self._bursts(rank):
            times_s[burst.start : burst.start + burst.length] *= burst.factor
        return times_s * slow.factor + slow.added_s

    def _bursts(self, rank: int) -> list[Burst]:
        return [burst for burst in self.bursts if burst.rank == rank]

    def _late_ranks(self, late: Late, step: int) -> tuple[int, ...]:
        return chosen(self.seed, late.group(step), count=late.count, of=self.count)

    def _straggler(self, rank: int) -> Straggler:
        for straggler in self.stragglers:
            if straggler.rank == rank:
                return straggler
        return Straggler(rank=rank)

    def _check_rank(self, rank: int) -> None:
        if not 0 <= rank < self.count:
            raise bad_value(
                "rank",
                rank,
                f"0 to {self.count - 1}",
                f"The cluster file describes {self.count} workers; raise [workers] count.",
            )


# -------------------------------------------------------------------------------------- the file


def _model(document: Mapping[str, Any], *, source: str, seed: int | None) -> ClusterModel:
    root = Table(document, name="", source=source)
    root.only("workers", "hiccups", "stragglers", "bursts", "late", "network", "links")
    workers = root.table("workers", required=True)
    workers.only("count", "step_s", "jitter", "seed")
    count = workers.whole("count", low=1, high=1_000_000)
    own_seed = workers.whole("seed", low=0, default=0)
    seed = own_seed if seed is None else seed
    return ClusterModel(
        count=count,
        step_s=workers.number("step_s", above=0.0),
        jitter=workers.number("jitter", low=0.0, default=0.0),
        seed=seed,
        hiccups=_hiccups(root.table("hiccups")),
        stragglers=_stragglers(root.tables("stragglers"), count),
        bursts=tuple(_burst(table, count) for table in root.tables("bursts")),
        late=late_from(root.table("late"), count),
        network=network_from(root.table("network"), root.tables("links"), count=count, seed=seed),
    )


def _burst(table: Table, count: int) -> Burst:
    table.only("rank", "start", "length", "factor")
    return Burst(
        rank=table.whole("rank", low=0, high=count - 1),
        start=table.whole("start", low=0),
        length=table.whole("length", low=1),
        factor=table.number("factor", low=1.0),
    )


def _hiccups(table: Table) -> Hiccups:
    table.only("probability", "factor")
    if table.empty:
        return Hiccups()
    return Hiccups(
        probability=table.number("probability", low=0.0, high=1.0),
        factor=table.number("factor", low=1.0),
    )


def _stragglers(tables: list[Table], count: int) -> tuple[Straggler, ...]:
    found: dict[int, Straggler] = {}
    for table in tables:
        straggler = _straggler(table, count)
        if straggler.rank in found:
            raise table.wrong("rank", straggler.rank, "each rank once", "Join the two entries.")
        found[straggler.rank] = straggler
    return tuple(found.values())


def _straggler(table: Table, count: int) -> Straggler:
    table.only("rank", "factor", "added_s")
    rank = table.whole("rank", low=0, high=count - 1)
    if table.has("factor") == table.has("added_s"):
        raise UsageError(
            f"{table.label} (rank {rank}): expected either factor (times as long) or added_s "
            "(seconds more), and not both."
        )
    return Straggler(
        rank=rank,
        factor=table.number("factor", low=1.0, high=inf, default=1.0),
        added_s=table.number("added_s", low=0.0, default=0.0),
    )
