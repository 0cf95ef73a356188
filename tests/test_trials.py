"""A trial is one line: parsed, printed back, and refused with the list and the nearest word."""

import pytest

from paceline.errors import UsageError
from paceline.trials import Trial, as_file_name, parse_trial, trial_of


@pytest.mark.parametrize(
    ("text", "trial"),
    [
        ("sync", Trial(strategy="sync")),
        ("sync accumulate=8", Trial(strategy="sync", options=(("accumulate", 8),))),
        (
            "async clip_norm=2 lr=0.1x",
            Trial(strategy="async", options=(("clip_norm", 2.0),), lr_factor=0.1),
        ),
        (
            "ssp:3 recipe=stable precision=bf16 loss_scale=auto",
            Trial(
                strategy="ssp:3",
                options=(("recipe", "stable"), ("precision", "bf16"), ("loss_scale", "auto")),
            ),
        ),
    ],
)
def test_trials_parse_and_print_back(text, trial):
    assert parse_trial(text) == trial
    assert str(trial) == text
    assert parse_trial(str(trial)) == trial


def test_a_value_is_said_with_all_its_digits():
    trial = Trial(strategy="sync", options=(("clip_norm", 1.23456789),), lr_factor=0.123456789)
    assert parse_trial(str(trial)) == trial


def test_the_order_of_the_factor_does_not_matter():
    assert str(parse_trial("ssp:inf lr=0.1x clip_norm=2")) == "async clip_norm=2 lr=0.1x"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a strategy first"),
        ("accumulate=8", "a strategy first"),
        ("asinc", "strategy='asinc'"),
        ("sync acumulate=8", "The nearest is 'accumulate'"),
        ("sync accumulate", "NAME=VALUE"),
        ("sync accumulate=0", "whole number >= 1"),
        ("sync lr=0.1", "a factor > 0 with an x, as in lr=0.1x"),
        ("sync lr=-1x", "a factor > 0"),
        ("sync lr=e-x", "a factor > 0"),
        ("sync clip_norm=nan", "a number > 0"),
        ("sync precision=fp8", "one of fp32, bf16, fp16"),
        ("sync recipe=stabel", "recipe"),
        ("sync accumulate=2 accumulate=4", "accumulate once"),
        ("sync lr=1x lr=2x", "lr once"),
        ("sync accumulate=2 global_batch=64", "cannot work together"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(text, said):
    with pytest.raises(UsageError) as refused:
        parse_trial(text)
    assert said in str(refused.value)


def test_names_of_files_have_no_odd_characters():
    assert (
        as_file_name("async lr=0.1x clip_norm=2, 4 workers")
        == "async-lr-0.1x-clip-norm-2-4-workers"
    )


def test_a_recorded_request_is_a_trial_again():
    request = {"strategy": "async", "overrides": {"accumulate": 2}, "lr_factor": 0.5}
    assert str(trial_of(request)) == "async accumulate=2 lr=0.5x"
    assert trial_of({"strategy": None}) is None


def test_every_option_is_one_of_the_workers():
    """The words are the Worker's own keywords, or details of its Runtime."""
    import inspect
    from dataclasses import fields

    from paceline.trials import _READERS
    from paceline.worker.options import Runtime
    from paceline.worker.worker import Worker

    keywords = set(inspect.signature(Worker.__init__).parameters)
    assert set(_READERS) <= keywords | {one.name for one in fields(Runtime)}
