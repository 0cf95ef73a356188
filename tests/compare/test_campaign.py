"""A comparison carries out every cell, keeps what it has, and refuses seeds that change nothing."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from paceline.cli.compare import command
from paceline.cli.report import command as report_command
from paceline.compare.columns import result_columns
from paceline.compare.export import as_json
from paceline.compare.figures import figures_of
from paceline.compare.rows import Row, mean_and_spread, rows_of
from paceline.compare.table import WIDTH, render
from paceline.compare.target import parse_target
from paceline.errors import UsageError
from paceline.launch.campaign import Plan, carry_out, sizes_from, trials_from
from paceline.launch.claim import claimed
from paceline.launch.summary import RunResult
from paceline.report.speed_up import speed_up_charts
from paceline.runs import read_run
from synthetic_runs import Ring, simulated_run


def result(out, exit_code=0, sentence="all finished"):
    return RunResult(
        exit_code=exit_code, sentence=sentence, out=out, wall_s=1.0, threads=1, ranks=(), notices=(),
        peak_pss_bytes=0,
    )  # fmt: skip


def pretend(request, log):
    """Carries out nothing, but leaves what such a run would have recorded."""
    log.write("some output\n")
    staleness = {"sync": 0, "ssp:3": 3}.get(request.strategy, float("inf"))
    ring = Ring(
        workers=request.workers, windows=80 // request.workers, staleness=staleness,
        strategy=request.strategy, seed=request.seed,
    )  # fmt: skip
    return result(simulated_run(request.out, ring))


def failing(*, under, exit_code):
    """Like ``pretend``, but runs of that strategy end with ``exit_code``."""

    def execute(request, log):
        if request.strategy == under and request.workers > 1:
            log.write("Traceback: out of luck\n")
            return result(request.out, exit_code, "rank 1 failed with exit code 1")
        return pretend(request, log)

    return execute


@pytest.fixture
def plan(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    return Plan(
        script=script, args=("--seed", "{seed}"), sizes=(4,), trials=trials_from("sync,async,ssp:3", ()),
        seeds=2, emulate=None, out=tmp_path / "out",
    )  # fmt: skip


def test_each_seed_has_one_worker_first_and_then_every_strategy(plan):
    told, asked = [], []

    def execute(request, log):
        asked.append((request.seed, request.workers, request.strategy))
        return pretend(request, log)

    done = carry_out(plan, None, execute, told.append)

    one = [(1, "sync"), (4, "sync"), (4, "async"), (4, "ssp:3")]
    assert asked == [(seed, *cell) for seed in (0, 1) for cell in one]
    assert [row.label for row in done.rows()] == ["1 worker", "sync", "async", "ssp:3"]
    assert all(len(row.runs) == 2 for row in done.rows())
    assert all(figures.speed_up for row in done.rows() for figures in row.runs)
    assert told[0] == "[1/8] 1 worker, seed 0 ..."
    assert (plan.out / "ssp-3-seed-1.log").read_text() == "some output\n"
    assert not done.failed


def test_a_failed_run_is_a_row_that_says_so_and_the_others_go_on(plan):
    told = []
    done = carry_out(plan, None, failing(under="async", exit_code=1), told.append)
    assert done.failed
    assert len(done.runs) == 6
    text = render(done.rows())
    assert re.search(r"async +failed", text)
    assert "async: seed 0: rank 1 failed with exit code 1 (see " in text
    assert any("out of luck" in line for line in told)


def test_a_try_is_a_row_of_every_size_with_its_options_and_rate(plan):
    tries = ("sync accumulate=8", "async lr=0.1x clip_norm=2")
    chosen = replace(plan, trials=trials_from("sync", tries), sizes=sizes_from("4,1,2"), seeds=1)
    requests = [chosen.request(cell) for cell in chosen.cells()]
    assert [(one.workers, one.strategy, one.overrides, one.lr_factor) for one in requests] == [
        (1, "sync", {}, 1.0),
        (2, "sync", {}, 1.0), (4, "sync", {}, 1.0),
        (2, "sync", {"accumulate": 8}, 1.0), (4, "sync", {"accumulate": 8}, 1.0),
        (2, "async", {"clip_norm": 2.0}, 0.1), (4, "async", {"clip_norm": 2.0}, 0.1),
    ]  # fmt: skip
    labels = [cell.label for cell in chosen.cells()]
    assert labels[0] == "1 worker"
    assert labels[-1] == "async clip_norm=2 lr=0.1x, 4 workers"
    assert len(set(map(str, (one.out for one in requests)))) == 7


@pytest.mark.parametrize("text", ["", "0", "two", "1", "2,,4", "-2"])
def test_sizes_that_are_none_are_refused(text):
    with pytest.raises(UsageError, match="workers"):
        sizes_from(text)


def test_every_row_is_held_against_sync_and_says_by_which_loss(plan):
    rows = carry_out(plan, None, pretend, lambda _: None).rows()
    words = {row.label: row.stability and row.stability.word for row in rows}
    assert words["1 worker"] is None
    assert words["sync"] is None
    assert words["async"] is not None
    assert "Stability is judged by the training loss" in render(rows)


def test_runs_of_other_options_are_rows_of_their_own_in_a_report(tmp_path):
    for name, options in (("plain", {}), ("clipped", {"clip_norm": 2.0})):
        path = simulated_run(tmp_path / name, Ring())
        request = {"strategy": "async", "overrides": options, "lr_factor": 1.0}
        (path / "run.json").write_text(json.dumps({"request": request}))
    labels = [row.label for row in _rows([tmp_path / "plain", tmp_path / "clipped"])]
    assert labels == ["async", "async clip_norm=2"]


def test_several_sizes_have_a_speed_up_chart(tmp_path):
    runs = [simulated_run(tmp_path / str(n), Ring(workers=n, windows=12)) for n in (1, 2, 4)]
    (chart,) = speed_up_charts(_rows(runs))
    assert "each worker adds one" in chart.svg
    assert speed_up_charts(_rows(runs[:2])) == []


def test_who_of_a_cluster_is_left_out_is_said_for_each_size_and_under_the_table(plan, tmp_path):
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(
        "[workers]\ncount = 4\nstep_s = 0.03\n[[stragglers]]\nrank = 3\nfactor = 4.0\n"
    )
    told = []
    chosen = replace(plan, sizes=(2, 4), seeds=1, emulate=cluster, trials=trials_from("sync", ()))
    done = carry_out(chosen, None, pretend, told.append)
    (note,) = done.notes
    assert note.endswith(
        "2 take part: ranks 2, 3 left out, and with rank 3 what the file says of it"
    )
    assert told[0] == note
    assert note in render(done.rows(), None, done.notes)
    assert note in json.loads(as_json(done.rows(), None, report="", notes=done.notes))["remarks"]


def test_a_target_that_the_first_run_did_not_log_is_said_at_once(plan):
    told = []
    carry_out(plan, parse_target("f1=0.5"), pretend, told.append)
    assert told[2].startswith("No run logged 'f1': call worker.log(f1=...)")
    assert sum("f1" in line for line in told) == 1
    told.clear()
    carry_out(replace(plan, out=plan.out / "b"), parse_target("accuracy=0.5"), pretend, told.append)
    assert not any("No run logged" in line for line in told)


def test_ctrl_c_keeps_what_was_finished(plan):
    done = carry_out(plan, None, failing(under="async", exit_code=130), lambda _: None)
    assert (done.interrupted, done.failed) == (True, False)
    assert [row.label for row in done.rows()] == ["1 worker", "sync", "async"]
    assert len(done.runs) == 2


def test_ctrl_c_between_runs_keeps_what_was_finished(plan):
    def tell(text):
        if text.startswith("[2/8]"):
            raise KeyboardInterrupt

    done = carry_out(plan, None, pretend, tell)
    assert done.interrupted
    assert len(done.runs) == 1


def test_every_run_has_the_same_recipe(plan):
    for recipe, overrides in ((None, {}), ("stable", {"recipe": "stable"})):
        chosen = replace(plan, recipe=recipe)
        assert all(chosen.request(cell).overrides == overrides for cell in chosen.cells())
    with pytest.raises(UsageError, match="recipe"):
        carry_out(replace(plan, recipe="stabel"), None, pretend, lambda _: None)


def test_seeds_that_change_nothing_are_an_error_that_says_why(plan):
    def same(request, log):
        ring = Ring(workers=request.workers, windows=5, seed=request.seed, digest="always the same")
        return result(simulated_run(request.out, ring))

    with pytest.raises(UsageError, match="The script seeds itself"):
        carry_out(plan, None, same, lambda _: None)


def test_rows_that_cannot_be_are_refused_before_the_first_run(plan):
    tried = trials_from("sync", ["local:8 compress=topk:0.01", "hybrid:async group_size=1"])
    with pytest.raises(UsageError, match="and local:8 cannot work together"):
        carry_out(replace(plan, trials=tried), None, pretend, lambda _: None)
    assert not plan.out.exists()


def test_wrong_values_are_refused_before_the_first_run(plan, tmp_path):
    missing = Plan(
        script=tmp_path / "none.py", args=(), sizes=(4,), trials=trials_from("sync", ()), seeds=1, emulate=None,
        out=tmp_path / "out",
    )  # fmt: skip
    with pytest.raises(UsageError, match="script"):
        carry_out(missing, None, pretend, lambda _: None)
    with pytest.raises(UsageError, match="strategy"):
        trials_from("sync,asinc", ())
    with pytest.raises(UsageError, match="strategies"):
        trials_from(" , ", ())
    assert list(map(str, trials_from("ssp, ssp:3,ssp:inf", ()))) == ["ssp:3", "async"]


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("workers", [2, 8, 64])
def test_tables_fit_the_terminal(tmp_path, seeds, workers):
    target = parse_target("accuracy=0.9")
    runs = [
        simulated_run(tmp_path / f"{n}-{seed}", Ring(workers=n, windows=12, seed=seed))
        for n in (1, workers)
        for seed in range(seeds)
    ]
    text = render(_rows(runs, target), target)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "…" not in text
    assert ("±" in text) == (seeds > 1)
    assert "significant" not in text


def test_slower_than_one_worker_is_said_in_words(tmp_path):
    slow = Ring(workers=4, hiccup=0, staleness=0, slow={1: 6.0}, strategy="sync")
    runs = [
        simulated_run(tmp_path / "1", Ring(workers=1, hiccup=0)),
        simulated_run(tmp_path / "4", slow),
    ]
    assert "sync: slower than one worker." in render(_rows(runs))


def test_a_target_that_nobody_logged_is_pointed_out(tmp_path):
    runs = [simulated_run(tmp_path, Ring())]
    assert "worker.log(f1=...)" in render(_rows(runs), parse_target("f1=0.5"))


def test_a_spread_needs_two_runs(tmp_path):
    (row,) = _rows([simulated_run(tmp_path, Ring())])
    assert mean_and_spread(row.runs, lambda figures: figures.wall_s)[1] is None
    assert mean_and_spread(row.runs, lambda figures: figures.target_s) is None
    failed = Row(label="x", runs=(), failures=("no",))
    assert {column.cell(failed.runs) for column in result_columns([failed], None)} == {"–"}


def test_the_report_command_writes_the_page_and_prints_figures(tmp_path):
    for seed in range(2):
        simulated_run(tmp_path / f"async-seed-{seed}", Ring(seed=seed))
    done = CliRunner().invoke(report_command, [str(tmp_path), "--json", "--target", "accuracy=0.9"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert figures["report"] == str(tmp_path / "report.html")
    assert Path(figures["report"]).read_text().startswith("<!doctype html>")
    assert [len(row["runs"]) for row in figures["rows"]] == [2]


def test_the_compare_command_prints_the_table_and_the_report(tmp_path, plan, monkeypatch):
    def run(request, stdout, stderr):
        assert stdout is stderr
        return pretend(request, stdout)

    monkeypatch.setattr("paceline.launch.run.run", run)
    arguments = ["-n", "2", "--strategies", "sync,ssp:3", "--out", str(plan.out), str(plan.script)]
    done = CliRunner().invoke(command, [*arguments, "--epochs", "3"])
    assert done.exit_code == 0, done.output
    assert f"report: {plan.out / 'report.html'}" in done.stdout
    assert "[3/3] ssp:3, seed 0: " in done.stderr
    assert "some output" not in done.output


def _rows(directories, target=None):
    return rows_of([figures_of(read_run(path), target) for path in directories])


def test_an_earlier_comparison_is_never_gone_over_and_two_at_once_are_refused(plan):
    carry_out(plan, None, pretend, lambda _: None)
    log = next(plan.out.glob("1-worker*.log"))
    log.write_text("what was said then")
    with pytest.raises(UsageError, match="of an earlier comparison"):
        carry_out(plan, None, pretend, lambda _: None)
    assert log.read_text() == "what was said then"
    with claimed(plan.out, "compare"), pytest.raises(UsageError, match="is at work"):
        carry_out(plan, None, pretend, lambda _: None)
