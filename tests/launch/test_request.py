"""What cannot work is refused before anything starts; a run's directory is never overwritten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paceline.errors import UsageError
from paceline.launch.request import RunRequest, checked, choose_out, core_count


@pytest.fixture
def request_(tmp_path, monkeypatch) -> RunRequest:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    Path("two.toml").write_text("[workers]\ncount = 2\nstep_s = 0.1\n")
    return RunRequest(script=Path("train.py"), workers=4)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"script": Path("absent.py")}, "script='absent.py': expected an existing Python file"),
        ({"workers": 0}, "workers=0"),
        ({"workers": 5000}, "whole number from 1 to 1024"),
        ({"seed": -1}, "seed=-1"),
        ({"threads": 0}, "threads=0"),
        ({"lr_factor": 0.0}, "lr_factor=0.0"),
        ({"lr_factor": float("nan")}, "lr_factor=nan"),
        ({"strategy": "sspp"}, "strategy='sspp'"),
        ({"emulate": Path("two.toml")}, "describes 2 workers"),
        ({"emulate": Path("none.toml")}, "none.toml"),
    ],
)
def test_a_bad_value_is_named(request_, change, said):
    with pytest.raises(UsageError) as caught:
        checked(replace(request_, **change))
    assert said in str(caught.value)
    assert not Path("runs").exists()


def test_the_strategy_is_put_into_its_canonical_form(request_):
    assert checked(replace(request_, strategy="ssp")).strategy == "ssp:3"
    assert checked(replace(request_, strategy="ssp:inf")).strategy == "async"
    assert checked(request_).strategy is None


def test_seed_is_filled_into_the_scripts_arguments(request_):
    request = replace(request_, seed=5, args=("--name", "run-{seed}", "{other}"))
    assert request.script_args() == ["--name", "run-5", "{other}"]


def test_workers_share_the_cores(request_):
    assert replace(request_, workers=1).threads_each() == core_count()
    assert replace(request_, workers=1000).threads_each() == 1
    assert replace(request_, threads=3).threads_each() == 3


def test_each_run_gets_a_directory_of_its_own(request_):
    request = replace(request_, strategy="ssp:3")
    first = choose_out(request, stamp="20260102-030405")
    assert first == Path("runs/20260102-030405-train-ssp-3").resolve()
    assert choose_out(request, stamp="20260102-030405").name.endswith("-ssp-3-2")


def test_a_directory_that_holds_something_is_refused(request_):
    asked = replace(request_, out=Path("mine"))
    assert choose_out(asked, stamp="") == Path("mine").resolve()
    assert choose_out(asked, stamp="") == Path("mine").resolve()
    Path("mine/rank-0.jsonl").write_text("")
    with pytest.raises(UsageError, match="never overwritten"):
        choose_out(asked, stamp="")
    with pytest.raises(UsageError, match="cannot be created"):
        choose_out(replace(request_, out=Path("train.py/below")), stamp="")
