"""How long a strategy takes on a cluster, and where the time goes.

Chooses between the recurrence and the exact driver; the figures are the same either way. Knows no
file and prints nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from paceline.errors import UsageError
from paceline.simulate.draws import Floats
from paceline.simulate.driver import Costs, Work, no_costs, simulate
from paceline.simulate.grouped import GroupTimes, GroupWays, check_groups, of_members
from paceline.simulate.network import over_network
from paceline.simulate.recurrence import Times, bounded, in_rounds, with_backups
from paceline.simulate.timing import Exchanges, StepTimes, window_times
from paceline.simulate.windows import Wholes, Windows
from paceline.strategies import (
    SSP,
    Backup,
    Hybrid,
    Strategy,
    Sync,
    drifts,
    fragments_of,
    is_joint,
    windows_apart,
)

MARGIN_STEPS = 64
SHORTEST_S = 1e-9
SHORT_WINDOWS = 20_000
"""Up to here the exact driver simulates what is handed out on demand: the recurrences leave out that
the last windows may be a slow worker's, which is up to a fifth of a run of 160 windows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """``steps``: windows of each worker on average; ``accumulate``: micro-batches of a window.
    ``group_size``: workers of a group, under strategies that have any."""

    cluster: StepTimes
    steps: int
    accumulate: int = 1
    network: Exchanges | None = None
    group_size: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """What a strategy makes of a scenario.

    ``busy``: share of all workers' time spent on computing what was applied; a straggler's extra time
    counts as work. ``useful``: the same, each window counted as one of a worker that nothing is wrong
    with. ``efficiency``: throughput over that of the same workers if nobody ever waited.
    ``windows_per_s``: applied. ``wait_s[i]``: worker i's waiting and exchanging. ``dropped``: pushes.
    ``lags``: how many windows had version lag 0, 1, 2, ...
    """

    strategy: str
    workers: int
    time_s: float
    busy: float
    useful: float
    efficiency: float
    windows_per_s: float
    wait_s: tuple[float, ...]
    dropped: int
    lags: tuple[int, ...]

    @property
    def speed_up(self) -> float:
        """Throughput over that of one worker alone that nothing is wrong with."""
        return self.useful * self.workers

    @property
    def mean_lag(self) -> float:
        """Mean version lag of what was applied."""
        total = sum(self.lags)
        return sum(lag * count for lag, count in enumerate(self.lags)) / total if total else 0.0


def check_pairing(strategy: Strategy, workers: int, group_size: int | None = None) -> None:
    """Raises UsageError for a strategy that so many workers, in such groups, cannot run."""
    if isinstance(strategy, Hybrid):
        check_groups(workers, group_size)
    if isinstance(strategy, Backup) and strategy.spares >= workers:
        raise UsageError(
            f"{strategy} and {workers} workers cannot work together: an update needs at least one "
            "push. Name the --strategies without it."
        )


def predict(strategy: Strategy, scenario: Scenario) -> tuple[Prediction, Windows]:
    """The figures, and the windows they were taken from. A worker alone exchanges nothing."""
    if scenario.cluster.count == 1:
        scenario = replace(scenario, network=None)
    if scenario.network is not None and scenario.network.over_network:
        strategy = over_network(strategy)
    with np.errstate(over="ignore", invalid="ignore"):  # absurd times become inf: refused below
        windows = _run(strategy, scenario)
    return figures(str(strategy), scenario, windows), windows


def figures(name: str, scenario: Scenario, windows: Windows) -> Prediction:
    """The figures of ``windows``."""
    workers, time_s = windows.workers, windows.total_s
    if not SHORTEST_S <= time_s < inf:
        raise UsageError(
            f"the run would take {time_s} s: give step times between 1 ns and 30 years."
        )
    took_s = windows.end_s - windows.start_s
    done = windows.applied
    regular_s = scenario.cluster.regular_s * scenario.accumulate
    spent_s = np.bincount(windows.rank, weights=took_s, minlength=workers).astype(np.float64)
    applied = int(done.sum())
    return Prediction(
        strategy=name,
        workers=workers,
        time_s=time_s,
        busy=float(took_s[done].sum()) / (workers * time_s),
        useful=regular_s * applied / (workers * time_s),
        efficiency=applied / time_s / _free_rate(windows, spent_s),
        windows_per_s=applied / time_s,
        wait_s=tuple((time_s - spent_s).tolist()),
        dropped=len(done) - applied,
        lags=tuple(np.bincount(windows.lag[done], minlength=1).tolist()),
    )


def _free_rate(windows: Windows, spent_s: Floats) -> float:
    """Windows a second of all workers together if nobody ever waited."""
    counts = np.bincount(windows.rank, minlength=windows.workers)
    worked = counts > 0
    return float((counts[worked] / spent_s[worked]).sum())


def _run(strategy: Strategy, scenario: Scenario) -> Windows:
    network = scenario.network
    if isinstance(strategy, Hybrid):
        return _in_groups(strategy, scenario)
    if drifts(strategy):
        return _now_and_then(strategy, scenario)
    if isinstance(strategy, Sync) and strategy.topology == "allreduce":
        return _sync(scenario, collective=True)
    if network is not None and network.serving_s > 0:
        return _exactly(strategy, scenario)
    if is_joint(strategy) and not isinstance(strategy, Backup):
        return _sync(scenario, collective=False)
    if scenario.steps * scenario.cluster.count <= SHORT_WINDOWS:
        return _exactly(strategy, scenario)
    if isinstance(strategy, Backup):
        return _exactly(strategy, scenario) if network is not None else _backup(strategy, scenario)
    assert isinstance(strategy, SSP)
    return _handed_out(strategy, scenario)


def _in_groups(strategy: Hybrid, scenario: Scenario) -> Windows:
    """What the groups do, as workers under the strategy between them; then of each member."""
    size = check_groups(scenario.cluster.count, scenario.group_size)
    groups = GroupTimes(cluster=scenario.cluster, size=size, accumulate=scenario.accumulate)
    network = scenario.network
    ways = None if network is None else GroupWays(ways=network, size=size)
    between = Scenario(cluster=groups, steps=scenario.steps, network=ways)
    return of_members(_run(strategy.outer, between), groups)


def costs_of(network: Exchanges | None, windows: int, workers: int) -> Costs:
    """What exchanges with a server cost."""
    if network is None:
        return no_costs((windows, workers))
    return Costs(
        pull_s=network.pull_times_s(workers=workers, windows=windows),
        push_s=network.push_times_s(workers=workers, windows=windows),
        apply_s=network.serving_s,
    )


def _sync(scenario: Scenario, *, collective: bool) -> Windows:
    network, workers = scenario.network, scenario.cluster.count
    window_s = window_times(scenario.cluster, scenario.steps, scenario.accumulate)
    costs = costs_of(None if collective else network, scenario.steps, workers)
    push_s = costs.push_s
    if collective and network is not None:
        push_s = network.all_reduce_times_s(workers=workers, rounds=scenario.steps)[:, np.newaxis]
    times = bounded(window_s, 0, push_s=push_s, pull_s=costs.pull_s)
    return _windows(times, float(times.decided_s[-1].max()))


def _now_and_then(strategy: Strategy, scenario: Scenario) -> Windows:
    """Rounds of several windows, at whose end parameters are summed by all-reduce: a fragment of them, but
    all after the last window."""
    network, workers = scenario.network, scenario.cluster.count
    window_s = window_times(scenario.cluster, scenario.steps, scenario.accumulate)
    exchange_s = np.zeros(scenario.steps)
    if network is not None:
        whole_s, exchange_s = (
            network.in_parts(parts).all_reduce_times_s(workers=workers, rounds=scenario.steps)
            for parts in (1, fragments_of(strategy))
        )
        exchange_s[-1] = whole_s[-1]
    times = in_rounds(window_s, windows_apart(strategy), exchange_s)
    return _windows(times, float(times.decided_s[-1].max()))


def _backup(strategy: Backup, scenario: Scenario) -> Windows:
    """Rounds until as many windows are decided, in time or not, as there are in all."""
    workers = scenario.cluster.count
    quorum = max(1, workers - int(strategy.spares))
    total = scenario.steps * workers
    rounds = -(-total // quorum)
    window_s = window_times(scenario.cluster, rounds, scenario.accumulate)
    times = with_backups(window_s, int(strategy.spares))
    decided_s = np.sort(times.decided_s[~np.isnan(times.decided_s)])
    return _windows(times, float(decided_s[total - 1]))


def _handed_out(strategy: SSP, scenario: Scenario) -> Windows:
    """Whoever is ready gets the next window: until as many are decided as there are in all."""
    workers = scenario.cluster.count
    total = scenario.steps * workers
    steps = scenario.steps + MARGIN_STEPS
    while True:
        window_s = window_times(scenario.cluster, steps, scenario.accumulate)
        costs = costs_of(scenario.network, steps, workers)
        times = bounded(window_s, strategy.staleness, push_s=costs.push_s, pull_s=costs.pull_s)
        last_s = float(np.partition(times.decided_s, total - 1, axis=None)[total - 1])
        if times.decided_s[-1].min() >= last_s:
            return _windows(times, last_s, lags(times))
        steps *= 2


def _exactly(strategy: Strategy, scenario: Scenario) -> Windows:
    workers = scenario.cluster.count
    total = scenario.steps * workers
    steps = scenario.steps + MARGIN_STEPS
    while True:
        window_s = window_times(scenario.cluster, steps, scenario.accumulate)
        costs = costs_of(scenario.network, steps, workers)
        try:
            return simulate(strategy, window_s, Work(windows=total), costs)
        except IndexError:
            steps *= 2


def _windows(times: Times, total_s: float, lag: Wholes | None = None) -> Windows:
    """What was decided by ``total_s``."""
    part = times.decided_s <= total_s
    rank = np.broadcast_to(np.arange(part.shape[1]), part.shape)
    return Windows(
        workers=part.shape[1], total_s=total_s, rank=rank[part], start_s=times.start_s[part],
        end_s=times.finish_s[part], applied=times.applied[part],
        lag=np.zeros(int(part.sum()), dtype=np.int64) if lag is None else lag[part],
    )  # fmt: skip


def lags(times: Times) -> Wholes:
    """Each push's version lag where every push is an update, shape as ``times``.

    That is the number of pushes decided between its pull and itself. Of those at the same time the
    one of the earlier window, then of the lower rank, comes first.
    """
    decided_s = times.decided_s
    order = np.argsort(decided_s, axis=None, kind="stable")
    places = np.empty(decided_s.size, dtype=np.int64)
    places[order] = np.arange(decided_s.size)
    place = places.reshape(decided_s.shape)
    seen = np.searchsorted(decided_s.ravel()[order], times.pulled_s, side="right")
    at_once = times.pulled_s[1:] == decided_s[:-1]  # not held: its own push was the last
    seen[1:][at_once] = place[:-1][at_once] + 1
    seen[0] = 0
    lag: Wholes = np.maximum(place - seen, 0)
    return lag
