"""What cannot work is refused before anything starts; a run's directory is never overwritten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paceline.errors import UsageError
from paceline.launch.hosts import Hosts
from paceline.launch.request import RunRequest, _host_names, checked, choose_out, core_count
from paceline.transport.addresses import Remote


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


IN_NODES = "[workers]\ncount = 6\nstep_s = 0.1\n[network]\nper_node = 4\ndelay_s = 1e-3\n"


@pytest.mark.parametrize(
    ("strategy", "overrides", "said"),
    [
        ("hybrid:async", {"group_size": 3}, "Use a divisor of 4"),
        ("async", {"group_size": 2}, "group_size=2 and async"),
        ("local:8", {"compress": "topk:0.01"}, "compress='topk:0.01' and local:8"),
        ("ssp:3", {"batch_norm": "sync"}, "ssp:3 and batch_norm='sync'"),
        ("backup:4", {}, "at most backup:3"),
    ],
)
def test_what_the_command_line_shows_to_be_impossible_starts_nothing(
    request_, strategy, overrides, said
):
    with pytest.raises(UsageError, match=said):
        checked(replace(request_, strategy=strategy, overrides=overrides))
    checked(replace(request_, strategy=None, overrides=overrides))  # the script may know better


def test_groups_are_nodes_of_the_cluster_that_is_emulated(request_):
    Path("nodes.toml").write_text(IN_NODES)
    emulated = replace(request_, workers=6, emulate=Path("nodes.toml"), strategy="hybrid:ssp:0")
    with pytest.raises(UsageError, match="groups of 2 and 4 workers"):
        checked(emulated)
    checked(replace(emulated, overrides={"group_size": 3}))
    checked(replace(emulated, workers=4))


def test_sync_over_an_emulated_network_is_by_all_reduce(request_):
    Path("nodes.toml").write_text(IN_NODES)
    pulled = replace(request_, strategy="sync", overrides={"compress": "topk:0.1,pull=int8"})
    checked(pulled)
    with pytest.raises(UsageError, match="sync:allreduce by all-reduce"):
        checked(replace(pulled, emulate=Path("nodes.toml")))
    checked(replace(pulled, virtual=Path("nodes.toml")))


def test_groups_do_not_span_hosts_that_share_a_key(request_):
    there = Remote(host="10.0.0.1", port=29500)
    Path("key").write_text("0" * 64)
    hosts = Hosts(count=2, number=0, server=there, key=Path("key"))
    apart = replace(request_, workers=3, strategy="hybrid:async", overrides={"group_size": 2})
    assert _host_names(replace(apart, hosts=hosts), None) == ["host 0"] * 3 + ["host 1"] * 3
    assert len(set(_host_names(replace(apart, hosts=replace(hosts, key=None)), None))) == 1
