"""`paceline advise` from the command line to the recommendation; the runs themselves are made up."""

import json

import pytest
from click.testing import CliRunner

from paceline.cli.advise import command
from paceline.errors import UsageError
from paceline.launch.claim import claimed
from paceline.launch.summary import RunResult
from synthetic_runs import Ring, simulated_run

CLUSTER = "[workers]\ncount = 4\nstep_s = 0.03\n[hiccups]\nprobability = 0.1\nfactor = 4.0\n"


@pytest.fixture
def runs(monkeypatch):
    """What was asked for; each run leaves what such a run would have recorded. Pages have tests elsewhere."""
    asked = []

    def run(request, stdout, stderr):
        asked.append(request)
        if asked[-1].seed == getattr(run, "stop_at", None):
            return _result(request.out, 130)
        stale = {"sync": 0, "backup:1": 0}.get(request.strategy, 3)
        ring = Ring(
            workers=request.workers, windows=80 // request.workers, staleness=stale,
            strategy=request.strategy, seed=request.seed,
        )  # fmt: skip
        return _result(simulated_run(request.out, ring), 0)

    monkeypatch.setattr("paceline.launch.run.run", run)
    monkeypatch.setattr("paceline.report.page.render_page", lambda runs, target=None: "a page")
    run.asked = asked
    return run


def _result(out, exit_code):
    return RunResult(
        exit_code=exit_code, sentence="", out=out, wall_s=1.0, threads=1, ranks=(), notices=(),
        peak_pss_bytes=0,
    )  # fmt: skip


@pytest.fixture
def invoke(tmp_path):
    (tmp_path / "train.py").write_text("print()")
    (tmp_path / "cluster.toml").write_text(CLUSTER)

    def call(*options, args=()):
        words = ["--out", str(tmp_path / "out"), *options, str(tmp_path / "train.py"), *args]
        return CliRunner().invoke(command, words)

    call.cluster = str(tmp_path / "cluster.toml")
    call.out = tmp_path / "out"
    return call


def test_from_probes_to_an_answer_and_a_second_call_reuses_them(invoke, runs):
    first = invoke("--for", invoke.cluster, "--seeds", "2", "--target", "accuracy=0.9")
    assert first.exit_code == 0, first.output
    for part in (
        "target: accuracy >= 0.9",
        "Why:",
        "What would change it:",
        "Next:\n  paceline run -n 4",
    ):
        assert part in first.stdout
    assert "4 probes first (one worker, sync)" in first.stderr
    assert "probe 1 (of at most" in first.stderr
    assert {request.virtual for request in runs.asked} == {runs.asked[0].virtual} != {None}
    count = len(runs.asked)
    again = invoke("--for", invoke.cluster, "--seeds", "2", "--target", "accuracy=0.9")
    assert len(runs.asked) == count
    assert "there already" in again.stderr
    assert again.stdout == first.stdout


def test_another_script_is_probed_anew(invoke, runs, tmp_path):
    invoke("--for", invoke.cluster, "--seeds", "1", "--target", "accuracy=0.9")
    count = len(runs.asked)
    (tmp_path / "train.py").write_text("print(1)")
    invoke("--for", invoke.cluster, "--seeds", "1", "--target", "accuracy=0.9")
    assert len(runs.asked) == 2 * count


def test_json_has_a_schema_and_everything_that_is_printed(invoke, runs):
    done = invoke("--for", invoke.cluster, "--seeds", "1", "--target", "accuracy=0.9", "--json")
    document = json.loads(done.stdout)
    assert document["schema"] == 1
    assert document["choice"] in {row["candidate"] for row in document["rows"]}
    assert document["next"].startswith("paceline run")
    assert (invoke.out / "report.html").exists()


def test_without_a_cluster_probes_are_real_and_the_target_is_syncs(invoke, runs):
    done = invoke("-n", "4", "--seeds", "1")
    assert done.exit_code == 0, done.output
    assert "target: accuracy >= 0.98" in done.stdout
    assert all(request.virtual is None for request in runs.asked)


def test_ctrl_c_keeps_what_was_finished(invoke, runs):
    runs.stop_at = 1
    done = invoke("--for", invoke.cluster, "--seeds", "2", "--target", "accuracy=0.9")
    assert done.exit_code == 130
    assert "Interrupted" in done.stdout
    runs.stop_at = None
    before = len(runs.asked)
    done = invoke("--for", invoke.cluster, "--seeds", "2", "--target", "accuracy=0.9")
    assert done.exit_code == 0
    assert runs.asked[before].seed == 1


def test_a_model_that_does_not_fit_needs_one_probe(invoke, runs):
    done = invoke("--for", invoke.cluster, "--memory", "1000")
    assert done.exit_code == 1
    assert "data parallelism cannot help" in done.stdout
    assert len(runs.asked) == 1


@pytest.mark.parametrize(
    ("options", "args", "said"),
    [
        (("--epochs", "3"), (), "train.py --epochs {epochs}"),
        ((), ("--epochs", "{epochs}"), "needs --epochs"),
        (("--virtual",), (), "--virtual needs a cluster"),
        (("--only", "async,ssp:3"), (), "only='ssp:3': expected some of accumulate, backup"),
        (
            ("-n", "4", "--target", "f1=0.5", "--seeds", "1"),
            (),
            "the script logged no 'f1' but accuracy",
        ),
    ],
)
def test_wrong_values_are_refused_with_the_remedy(invoke, runs, options, args, said):
    done = invoke(*options, args=args)
    assert said in str(done.exception)


def test_only_what_is_asked_for_is_probed_beside_the_baselines(invoke, runs):
    words = ("--for", invoke.cluster, "--seeds", "1", "--target", "accuracy=0.9")
    done = invoke(*words, "--only", "ssp,backup")
    assert done.exit_code == 0, done.output
    kinds = {request.strategy.partition(":")[0] for request in runs.asked}
    assert kinds in ({"sync", "ssp"}, {"sync", "ssp", "backup"})
    assert "of at most 9)" in done.stderr
    assert "By --only not tried: accumulate, async, local." in done.stdout
    count = len(runs.asked)
    invoke(*words)
    assert {one.strategy for one in runs.asked[count:]} == {"async"}, "what was probed is reused"


def test_two_at_once_in_one_directory_and_what_others_wrote_there(invoke, runs):
    words = ("--for", invoke.cluster, "--seeds", "1", "--target", "accuracy=0.9")
    with claimed(invoke.out, "advise"):
        assert "another 'paceline advise'" in str(invoke(*words).exception)
    assert invoke(*words).exit_code == 0
    elsewhere = invoke.out.parent / "mine"
    elsewhere.mkdir()
    (elsewhere / "report.html").write_text("mine")
    done = invoke("--out", str(elsewhere), *words)
    assert "one of 'paceline advise'" in str(done.exception)
    assert [path.name for path in elsewhere.iterdir()] == ["report.html"]
    assert (elsewhere / "report.html").read_text() == "mine"


def test_epochs_reach_the_script(invoke, runs):
    invoke("--for", invoke.cluster, "--seeds", "1", "--epochs", "7", args=("--n", "{epochs}"))
    assert runs.asked[0].script_args() == ["--n", "7"]


def test_more_workers_than_the_cluster_has_are_refused(invoke, runs):
    done = invoke("--for", invoke.cluster, "-n", "9")
    assert "workers=9: expected 2 to 4" in str(done.exception)


def test_a_target_that_is_not_logged_is_said_after_the_first_probe(invoke, runs):
    done = invoke("--for", invoke.cluster, "--seeds", "3", "--target", "f1=0.9")
    assert isinstance(done.exception, UsageError)
    assert "the script logged no 'f1'" in str(done.exception)
    assert len(runs.asked) == 1


def test_one_seed_has_no_spread_and_says_what_would(invoke, runs):
    done = invoke("--for", invoke.cluster, "--seeds", "1", "--target", "accuracy=0.9", "--json")
    document = json.loads(done.stdout)
    assert {row["spread_s"] for row in document["rows"]} == {None}
    assert any("--seeds 3" in reason for reason in document["reasons"])
