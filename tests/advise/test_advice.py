"""What is advised on clusters whose answer is known, from made-up probes. No process, no model."""

from functools import cache
from math import inf

import pytest

from paceline.advise.advice import advise, course_choice, does_not_fit
from paceline.advise.outcomes import (
    Candidate,
    Outcome,
    Point,
    outcome_of,
    state_slots,
    summary_of,
    usual_target,
)
from paceline.advise.pace import Pace, crossing, knee_accumulation, knee_bound
from paceline.advise.plan import (
    FAMILIES,
    baselines,
    family_of,
    meeting_words,
    next_candidates,
)
from paceline.advise.untried import not_tried
from paceline.compare.stability import shape_of
from paceline.compare.target import parse_target
from paceline.errors import UsageError
from paceline.runs import read_run
from paceline.simulate.cluster import ClusterModel
from paceline.simulate.recorded import recorded_times
from paceline.simulate.recorded_ways import recorded_ways
from paceline.trials import Trial, parse_trial
from synthetic_runs import Ring, simulated_run

TARGET = parse_target("loss<=0.5")
WORKERS = "[workers]\ncount = 4\nstep_s = 0.04\njitter = 0.03\n"
CLUSTERS = {
    "uniform": WORKERS,
    "transient": WORKERS + "[hiccups]\nprobability = 0.1\nfactor = 4.0\n",
    "persistent": WORKERS + "[[stragglers]]\nrank = 2\nfactor = 4.0\n",
    "slow link": WORKERS
    + "[network]\nsize_bytes = 1e6\nbytes_per_s = 1e9\n[[links]]\nrank = 1\nbytes_per_s = 2e7\n",
    "small compute": WORKERS.replace("0.04", "0.01") + "[network]\ndelay_s = 0.02\n",
}
BATCH = 16
TOTAL = 8000.0


@cache
def pace_of(name):
    """One for all tests: it keeps what it has simulated."""
    model = ClusterModel.parse(CLUSTERS[name])
    return Pace(times=model, network=model.network)


def outcome(pace, candidate, *, seed=0, samples=4000.0, final=0.1, rise=False):
    """A probe whose loss falls from 2.3 and is at the target after ``samples``."""
    rate = pace.batches_per_s(candidate) * BATCH
    places = [TOTAL * (i + 1) / 40 for i in range(40)]
    points = tuple(
        Point(name="loss", time_s=at / rate, samples=at, value=0.4 if at >= samples else 1.0)
        for at in places
    )
    losses = [max(final, 2.3 - 2.3 * at / TOTAL) * (3 if rise and i % 10 == 5 else 1)
              for i, at in enumerate(places)]  # fmt: skip
    shape = shape_of(seed=seed, name="loss", samples=places, losses=losses, passes=40, first=2.3)
    return Outcome(
        candidate=candidate, seed=seed, points=points, shape=shape, batch=BATCH, parameter_bytes=10**6
    )  # fmt: skip


def advised(name, behaviour=lambda candidate: {}, seeds=3):
    """The whole dialogue: what is asked for is answered, until there is a recommendation."""
    pace = pace_of(name)
    wanted, outcomes = baselines(4), []
    while wanted:
        outcomes += [
            outcome(pace, one, seed=seed, **behaviour(one)) for one in wanted for seed in range(seeds)
        ]  # fmt: skip
        wanted = next_candidates(pace, outcomes, TARGET, workers=4)
    return advise(pace, outcomes, TARGET, own_time=True), outcomes


def tried(outcomes):
    return {str(one.candidate) for one in outcomes}


def test_uniform_stay_with_sync():
    advice, outcomes = advised("uniform")
    assert (advice.answer, str(advice.choice)) == ("Stay with sync.", "sync")
    assert tried(outcomes) == {"1 worker", "sync"}
    assert any("async was not tried: even if" in reason for reason in advice.reasons)


def test_transient_ssp_where_async_pays_for_its_old_gradients():
    def behaviour(one):
        return {"samples": 6000.0} if one.trial.strategy == "async" else {}

    advice, outcomes = advised("transient", behaviour)
    assert str(advice.choice).startswith("ssp:")
    assert not any("lr=" in name for name in tried(outcomes)), "slower is not harmed"


def test_backup_is_judged_by_rounds_for_a_smaller_round_needs_fewer_samples():
    def behaviour(one):
        return {"samples": {"sync": 4000.0, "backup:1": 3000.0}.get(one.trial.strategy, 6000.0)}

    advice, outcomes = advised("transient", behaviour)
    assert "backup:1" in tried(outcomes), (
        "no more samples a second than sync, but a third more rounds"
    )
    assert str(advice.choice) == "backup:1"


@pytest.mark.parametrize("samples", [4000.0, 5000.0, 9000.0])
def test_persistent_never_ssp(samples):
    def behaviour(one):
        return {"samples": samples} if one.trial.strategy == "async" else {}

    advice, outcomes = advised("persistent", behaviour)
    assert not any("ssp" in name for name in tried(outcomes))
    assert str(advice.choice).startswith(("async", "backup:1"))
    assert any("Slow for good: rank 2 (4.0 times" in reason for reason in advice.reasons)


def test_persistent_repair_first():
    advice, _ = advised("persistent")
    assert advice.answer.startswith("Repair rank 2 first; until then: ")


def test_a_slow_link_is_met_by_who_need_not_wait_for_it():
    def behaviour(one):
        rarer = one.trial.accumulate > 1 or family_of(one.trial) == "local"
        return {"samples": 8000.0} if rarer else {}

    advice, _ = advised("slow link", behaviour)
    assert str(advice.choice).startswith(("async", "backup:1", "ssp"))


def test_small_compute_accumulates_or_has_one_worker():
    def behaviour(one):
        return {"samples": inf} if family_of(one.trial) == "local" else {}

    advice, outcomes = advised("small compute", behaviour)
    assert str(advice.choice).startswith(("sync accumulate", "1 worker"))
    assert any(name.startswith("sync accumulate=") for name in tried(outcomes))


def test_where_exchanges_cost_replicas_that_meet_rarely_are_tried_and_may_win():
    """A window computes for 10 ms, and is on its way for far longer."""

    def behaviour(one):
        return {"samples": 6000.0} if one.trial.strategy.startswith("local") else {}

    advice, outcomes = advised("small compute", behaviour)
    locals_ = [name for name in tried(outcomes) if name.startswith("local:")]
    assert len(locals_) == 1
    assert str(advice.choice) == "diloco:50"
    assert any(reason.startswith("Meeting less often saves exchanges") for reason in advice.reasons)
    assert pace_of("small compute").gain(parse_trial(locals_[0])) > 2


def test_where_exchanges_cost_nothing_replicas_are_not_tried():
    assert meeting_words(pace_of("uniform")) == []
    assert not_tried(pace_of("uniform"), FAMILIES, cluster=[], script=["train.py"]) == []


def test_what_was_not_tried_is_said_with_the_command_that_tries_it():
    where = {"cluster": ["--virtual", "two.toml"], "script": ["train.py", "--epochs", "2"]}
    (said,) = not_tried(pace_of("small compute"), FAMILIES, **where)
    assert "Not tried: compress and hybrid" in said
    tries = "--try 'sync compress=topk:0.01' train.py --epochs 2"
    assert f"paceline compare -n 4 --virtual two.toml {tries}" in said
    only, rest = not_tried(pace_of("small compute"), ("async",), **where)
    assert only == "By --only not tried: accumulate, backup, ssp, local."
    assert "Not tried: local, diloco, compress and hybrid" in rest
    assert "--try local:8 --try diloco:50" in rest


def test_what_meetings_take_is_not_guessed_from_a_run_through_a_server(tmp_path):
    run = read_run(simulated_run(tmp_path / "run", Ring(strategy="sync", staleness=0)))
    times = recorded_times(run)
    assert meeting_words(Pace(times=times, network=recorded_ways(run, times))) == []


def test_async_that_diverges_is_tried_at_lower_rates_before_it_is_called_harmful():
    def behaviour(one):
        stale = one.trial.strategy.startswith(("async", "ssp"))
        return {"samples": inf, "final": 2.2} if stale else {}

    advice, outcomes = advised("transient", behaviour)
    assert {f"async{form}{rate}" for form in ("", " recipe=stable")
            for rate in ("", " lr=0.33x", " lr=0.1x")} <= tried(outcomes)  # fmt: skip
    assert str(advice.choice) in ("sync", "backup:1")
    assert any("Old gradients harm" in reason and "DIVERGED" in reason for reason in advice.reasons)


def test_a_lower_rate_that_works_is_recommended():
    def behaviour(one):
        stale = one.trial.strategy.startswith(("async", "ssp"))
        return {"samples": inf, "final": 2.2} if stale and one.trial.lr_factor == 1 else {}

    advice, outcomes = advised("transient", behaviour)
    assert "lr=0.33x" in str(advice.choice)
    assert not any("lr=0.1x" in name for name in tried(outcomes))


def test_ties_go_to_sync():
    def behaviour(one):
        return {"samples": 4000.0 * 0.6} if str(one) == "sync" else {}

    advice, _ = advised("transient", behaviour)
    assert str(advice.choice) == "sync"


def test_what_does_not_fit_is_said_before_anything_else():
    big = Outcome(candidate=baselines(4)[0], seed=0, state_bytes=100 * 10**9)
    advice = does_not_fit(big, 80e9)
    assert "data parallelism cannot help" in advice.answer
    assert advice.choice is None
    assert does_not_fit(big, 200e9) is None
    assert does_not_fit(big, None) is None


def test_nobody_at_the_target_is_no_recommendation():
    advice, _ = advised("uniform", lambda _: {"samples": inf})
    assert advice.choice is None
    assert "Nobody reached loss <= 0.5" in advice.answer


def test_the_network_limit_is_a_figure_with_the_one_who_wins_below_it():
    advice, _ = advised("uniform")
    assert str(advice.rival) == "1 worker"
    # Sync's round is 41 ms + 2 * 3/4 * 1 MB / B and gives four batches, one worker's step 41 ms.
    expected = 1.5e6 / (0.0412 * (4 * 1.05 - 1))
    assert advice.bandwidth_bytes_per_s == pytest.approx(expected, rel=0.15)


def test_bisection_finds_the_crossing_or_says_that_there_is_none():
    assert crossing(lambda rate: rate > 3e7) == pytest.approx(3e7, rel=0.005)
    assert crossing(lambda rate: True) is None
    assert crossing(lambda rate: False) is None


def test_few_seeds_are_never_significant():
    advice, _ = advised("transient")
    text = " ".join([advice.answer, *advice.reasons, *advice.changes])
    assert "significant" not in text
    assert any(reason.startswith("3 seeds: ") for reason in advice.reasons)
    five, _ = advised("transient", seeds=5)
    assert not any(" seeds: " in reason for reason in five.reasons)


def test_the_course_asks_only_whether_async_oscillates():
    def behaviour(one):
        return {"rise": True} if one.trial.strategy == "async" else {}

    calm, wild = advised("transient")[1], advised("transient", behaviour)[1]
    assert str(course_choice(calm, TARGET)) == "async"
    assert str(course_choice(wild, TARGET)) == "sync"
    assert str(course_choice(advised("uniform")[1], TARGET)) == "sync"


def test_time_to_target_is_the_mean_and_a_miss_counts_as_infinite():
    pace, sync = pace_of("uniform"), baselines(4)[1]
    runs = [outcome(pace, sync, seed=s, samples=samples) for s, samples in enumerate((2000, 4000))]
    summary = summary_of(sync, runs, TARGET, seconds_a_sample=0.001)
    assert summary.time_s == pytest.approx(3.0)
    assert (summary.seeds, summary.reached) == (2, 2)
    missed = summary_of(
        sync, [*runs, outcome(pace, sync, seed=2, samples=inf)], TARGET, seconds_a_sample=0.001
    )  # fmt: skip
    assert (missed.time_s, missed.reached) == (inf, 2)


def test_of_five_seeds_best_and_worst_are_dropped():
    pace, sync = pace_of("uniform"), baselines(4)[1]
    samples = (200, 2000, 4000, 6000, inf)
    runs = [outcome(pace, sync, seed=s, samples=one) for s, one in enumerate(samples)]
    assert summary_of(sync, runs, TARGET, seconds_a_sample=1.0).time_s == pytest.approx(4000)


def test_the_knee_is_where_more_gains_little():
    assert knee_accumulation(pace_of("uniform")) == 1
    assert knee_accumulation(pace_of("small compute")) >= 4
    assert knee_bound(pace_of("transient")) >= 3


def test_without_a_target_it_is_what_sync_ends_with(tmp_path):
    sync = Candidate(trial=Trial(strategy="sync"), workers=4)
    run = read_run(simulated_run(tmp_path / "run", Ring(strategy="sync", staleness=0)))
    target = usual_target([outcome_of(run, sync, took_s=1.0)])
    assert str(target) == "accuracy >= 0.98"
    with pytest.raises(UsageError, match="logs no metric"):
        usual_target([Outcome(candidate=sync, seed=0)])


def test_a_recorded_run_is_an_outcome(tmp_path):
    own = Candidate(trial=parse_trial("async"), workers=4)
    found = outcome_of(read_run(simulated_run(tmp_path / "run", Ring())), own, took_s=2.0)
    assert found.batch == 32.0
    assert found.parameter_bytes == 4000
    assert found.points[-1].value == pytest.approx(0.98)
    assert found.shape is not None


def test_optimizer_state_is_counted():
    assert state_slots("AdamW(lr=0.1)") == 2
    assert state_slots("SGD(lr=0.1)") == 0
    assert state_slots("SGD(lr=0.1, momentum=0.9)") == 1
