"""``paceline simulate``: what it prints, what it refuses, and where its cluster may come from."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from paceline.cli.simulate import command
from paceline.errors import UsageError
from paceline.runs import read_run
from paceline.simulate.lanes import lanes
from paceline.simulate.predict import Scenario, predict
from paceline.simulate.recorded import counted, recorded_times
from paceline.simulate.recorded_ways import recorded_ways
from paceline.strategies import parse_strategy
from synthetic_runs import Ring, setup, simulated_run, step, write_run

SMALL = ["--workers", "8", "--step", "1.0", "--steps", "60"]


def said(*arguments):
    result = CliRunner().invoke(command, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_patterns_are_shown_side_by_side_if_nobody_says_which():
    shown = said(*SMALL, "--late", "1x3.0", "--strategies", "sync,ssp:3")
    lines = [line.split()[:2] for line in shown.split("\n\n")[0].splitlines()[2:]]
    assert lines == [[p, s] for p in ("same", "every:50", "random") for s in ("sync", "ssp:3")]
    assert "every:50" not in said(*SMALL, "--late", "1x3.0", "--pattern", "same")


def test_a_row_that_cannot_be_is_refused_before_any_is_simulated(monkeypatch):
    monkeypatch.setattr("paceline.simulate.predict.predict", lambda *_: pytest.fail("simulated"))
    sweep = ["--workers", "4,6", "--step", "1", "--strategies", "hybrid:async", "--group-size", "4"]
    with pytest.raises(UsageError, match="a divisor of 6"):
        said(*sweep)


def test_json_has_every_figure_in_si_units():
    figures = json.loads(said(*SMALL, "--strategies", "async", "--json"))
    assert figures["schema"] == 1
    (one,) = figures["predictions"]
    assert one["time_s"] == pytest.approx(60.0)
    assert one["busy"] == pytest.approx(1.0)
    assert len(one["wait_s"]) == one["workers"] == 8
    assert sum(one["lags"]) == 480


def test_a_sweep_has_a_row_for_each_number_of_workers():
    shown = said("--workers", "2,4,8", "--step", "1", "--steps", "20", "--strategies", "sync")
    assert [line.split()[0] for line in shown.split("\n\n")[0].splitlines()[2:]] == ["2", "4", "8"]


def test_the_same_call_gives_the_same_answer():
    arguments = [*SMALL, "--jitter", "0.3", "--hiccups", "0.1x4", "--seed", "3", "--json"]
    assert said(*arguments) == said(*arguments)


def test_a_file_says_everything_that_a_command_line_can(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text(
        "[workers]\ncount = 8\nstep_s = 1.0\n[late]\ncount = 1\nadded_s = 3.0\npattern = 'same'\n"
        "[network]\nsize_bytes = 1e6\nserver_bytes_per_s = 1e9\n"
    )
    shown = said(str(path), "--shards", "1,2", "--strategies", "sync:server", "--steps", "20")
    assert len(shown.splitlines()) == 2 + 2 * 3


def test_lanes_show_who_waits():
    cluster = _cluster()
    _, windows = predict(parse_strategy("sync"), Scenario(cluster=cluster, steps=4))
    slow, fast = lanes(windows, until_s=8.0, columns=16)
    assert slow == "████▓▓▓▓████▓▓▓▓"
    assert fast == "██··▓▓··██··▓▓··"
    assert "█▓ computing" in said(*SMALL, "--timeline", "3")


def _cluster():
    from paceline.simulate.cluster import ClusterModel, Straggler

    return ClusterModel(count=2, step_s=1.0, stragglers=(Straggler(rank=0, factor=2.0),))


def test_recorded_step_times_are_drawn_again(tmp_path):
    run = simulated_run(tmp_path / "run", Ring(windows=40))
    times = recorded_times(read_run(run), seed=1)
    steps_s = times.step_times_s(500)
    for rank, own_s in enumerate(times.own_s):
        assert set(steps_s[rank]) <= set(own_s)
        assert steps_s[rank].mean() == pytest.approx(np.mean(own_s), rel=0.1)
    shown = said("--from", str(run), "--workers", "4,16", "--steps", "30", "--strategies", "sync")
    assert [line.split()[0] for line in shown.split("\n\n")[0].splitlines()[2:]] == ["4", "16"]


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        ([], "Give a cluster.toml, --from RUN, or at least --workers and --step"),
        (["--workers", "8"], "--step"),
        (["--workers", "0", "--step", "1"], "whole numbers >= 1"),
        (["--workers", "8", "--step", "1", "--late", "2"], "as in 2x3.0"),
        (["--workers", "8", "--step", "1", "--late", "9x1"], "count=9"),
        (["--workers", "8", "--step", "nan"], "step_s=nan"),
        (["--workers", "8", "--step", "1", "--jitter", "inf"], "jitter=inf"),
        (["--workers", "8", "--step", "1", "--late", "2x-1"], "added_s=-1"),
        (["--workers", "8", "--step", "1", "--hiccups", "0.1x-2"], "factor=-2"),
        (["--workers", "8", "--step", "1e-320"], "between 1 ns"),
        (["--workers", "8", "--step", "1e308", "--jitter", "1e10"], "between 1 ns"),
        (["--workers", "8", "--step", "1", "--accumulate", "100000000000"], "GB of memory"),
        (["--workers", "4", "--step", "1", "--strategies", "backup:4"], "at least one push"),
        (["--workers", "8", "--step", "1", "--pattern", "same"], "give --late too"),
        (["--workers", "8", "--step", "1", "--html", "/nowhere/x.html"], "a directory that exists"),
        (["--workers", "8", "--step", "1", "--late", "1x1", "--pattern", "often"], "'every:'"),
        (["--workers", "8", "--step", "1", "--shards", "2"], "[network]"),
        (["--workers", "8", "--step", "1", "--strategies", "fast"], "strategy='fast'"),
        (["--workers", "8", "--step", "1", "--compress", "topk:0.01"], "coding_s"),
        (["--workers", "8", "--step", "1", "--strategies", "sync compress=int8"], "push_bytes"),
        (["--workers", "8", "--step", "1", "--strategies", "sync accumulate=2"], "--accumulate"),
        (["x.toml", "--step", "1"], "cannot work together"),
        (["x.toml", "--from", "y"], "cannot work together"),
    ],
)
def test_mistakes_are_refused_with_the_remedy(arguments, remedy):
    with pytest.raises(UsageError) as caught:
        said(*arguments)
    assert remedy in str(caught.value)


def test_recorded_exchanges_come_with_the_steps(tmp_path):
    read = read_run(simulated_run(tmp_path / "run", Ring(windows=40)))
    times = recorded_times(read)
    ways = recorded_ways(read, times)
    assert ways.over_network == (read.setup.topology == "allreduce")
    server = replace_topology(read, "server")
    ways = recorded_ways(server, times)
    for rank, trace_of_rank in enumerate(server.ranks):
        steps = counted(trace_of_rank)
        windows = len(steps) + 3
        pushes_s = ways.push_times_s(workers=4, windows=windows)[:, rank]
        assert pushes_s.tolist() == [s.exchange_s for s in [*steps, *steps[:3]]], "round and round"
        pulls_s = ways.pull_times_s(workers=4, windows=windows)[:, rank]
        assert pulls_s[: len(steps)].tolist() == [s.pull_s for s in steps]
    assert ways.all_reduce_times_s(workers=4, rounds=5).tolist() == [0.0] * 5
    ring = recorded_ways(replace_topology(read, "allreduce"), times)
    assert not ring.push_times_s(workers=4, windows=9).any()
    shortest = min(rank.steps[3].exchange_s for rank in read.ranks)
    assert ring.all_reduce_times_s(workers=4, rounds=9)[2] == shortest
    plain = predict(parse_strategy("sync"), Scenario(cluster=times, steps=20))[0]
    with_ways = predict(parse_strategy("sync"), Scenario(cluster=times, steps=20, network=ways))[0]
    assert with_ways.time_s > plain.time_s


def replace_topology(run, topology):
    ranks = [replace(rank, setup=replace(rank.setup, topology=topology)) for rank in run.ranks]
    return replace(run, ranks=tuple(ranks))


def test_workers_beyond_the_recorded_ones_are_not_their_doubles(tmp_path):
    times = recorded_times(read_run(simulated_run(tmp_path / "run", Ring(windows=40)))).of(8)
    firsts = [times.order(rank, 1)[0] for rank in range(8)]
    assert firsts[:4] == [0, 0, 0, 0]
    assert len(set(firsts[4:])) > 1


def test_numbers_without_a_comma_are_said_to_lack_it():
    with pytest.raises(UsageError, match=r"as in --workers 16,64\."):
        said("--workers", "16", "64", "--step", "1.0")


def test_a_replays_times_are_refused(tmp_path):
    summary = {"request": {"replay": "runs/first"}}
    write_run(tmp_path / "again", {0: [setup(), *(step() for _ in range(9))]}, summary=summary)
    with pytest.raises(UsageError, match=r"is a replay.*--from runs/first"):
        said("--from", str(tmp_path / "again"))


def test_workers_whose_traces_are_elsewhere_are_missed(tmp_path):
    ranks = {0: [setup(world_size=2), *(step() for _ in range(9))]}
    run = write_run(tmp_path / "half", ranks, summary={})
    result = CliRunner().invoke(command, ["--from", str(run), "--steps", "9"])
    assert "the traces of 1 of 2 workers are missing (rank 1" in result.output


def test_replicas_tell_of_the_exchanges_that_they_made(tmp_path):
    took_s = {2: 0.5, 4: 0.7}
    rounds = [
        step(clock=clock, sent_bytes=8 * (clock in took_s), exchange_s=took_s.get(clock, 1e-4))
        for clock in range(5)
    ]
    head = setup(world_size=2, topology="replicas", strategy="local:2")
    run = read_run(
        write_run(tmp_path / "run", {rank: [head, *rounds] for rank in range(2)}, summary={})
    )
    ways = recorded_ways(run, recorded_times(run))
    assert ways.over_network
    assert ways.rounds_s.tolist() == [0.5, 0.7]
