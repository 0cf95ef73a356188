"""Options: what cannot work is refused in one sentence that names the two and the remedy."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paceline.errors import UsageError
from paceline.strategies import SSP, Async, Sync
from paceline.worker.options import Options, Runtime, check_pairings, known_trouble, options_from

DEFAULTS: dict[str, Any] = {
    "strategy": "sync", "accumulate": 1, "global_batch": None, "precision": "fp32",
    "clip_norm": None, "compress": None, "batch_norm": None, "recipe": "plain", "health": False,
    "runtime": Runtime(), "group_size": None,
}  # fmt: skip


def options(overrides: dict[str, Any] | None = None, **keywords: Any) -> Options:
    return options_from({**DEFAULTS, **keywords}, overrides or {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("accumulate", 0), ("accumulate", 1.5), ("accumulate", True), ("global_batch", -1),
        ("clip_norm", 0.0), ("clip_norm", float("nan")), ("clip_norm", "1"),
        ("strategy", "bsp"), ("runtime", 10), ("recipe", "adam"), ("recipe", "stable:fast"),
        ("compress", "gzip"), ("compress", 8), ("compress", "topk:2"),
        ("batch_norm", "global"), ("batch_norm", True),
        ("precision", "fp8"), ("loss_scale", 0.0),
        ("loss_scale", "high"), ("reduce_dtype", "float16"), ("accumulate_dtype", 16),
    ],
)  # fmt: skip
def test_bad_values_name_the_field(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=name):
        options(**{name: value})


def test_runtime_names_its_field() -> None:
    with pytest.raises(UsageError, match="evict_after_s"):
        Runtime(evict_after_s=0)


def test_accumulate_and_global_batch_contradict() -> None:
    with pytest.raises(UsageError, match="accumulate=4 and global_batch=64"):
        options(accumulate=4, global_batch=64)


def test_global_batch_becomes_micro_batches() -> None:
    assert options(global_batch=256).window(batch=32, world_size=4) == 2
    with pytest.raises(UsageError, match="Nearest: 128 or 256"):
        options(global_batch=200).window(batch=32, world_size=4)
    with pytest.raises(UsageError, match="multiple of 4 workers x batch 32 = 128"):
        options(global_batch=100).window(batch=32, world_size=4)


def test_the_command_line_beats_the_script() -> None:
    chosen = options({"strategy": "ssp:1", "accumulate": 2, "evict_after_s": 3.0}, global_batch=64)
    assert chosen.strategy == SSP(staleness=1)
    assert (chosen.accumulate, chosen.global_batch) == (2, None)
    assert chosen.runtime.evict_after_s == 3.0
    assert dict(chosen.overridden) == {"strategy": "ssp:1", "accumulate": 2, "evict_after_s": 3.0}


def test_an_unknown_override_is_refused() -> None:
    with pytest.raises(UsageError, match="staleness"):
        options({"staleness": 3})


def test_pairings_that_cannot_work_are_refused() -> None:
    spared, pushed = options(strategy="backup:4"), options(strategy="async")
    with pytest.raises(UsageError, match=r"backup:4 and 4 workers.*backup:3"):
        check_pairings(spared, world_size=4, optimizer_name="SGD")
    with pytest.raises(UsageError, match="async and Rprop"):
        check_pairings(pushed, world_size=2, optimizer_name="Rprop")
    check_pairings(options(), world_size=2, optimizer_name="Rprop")
    check_pairings(spared, world_size=1, optimizer_name="SGD")


def test_momentum_under_async_is_said_once_in_words() -> None:
    weight = [torch.nn.Parameter(torch.zeros(1))]
    plain = torch.optim.SGD(weight, lr=0.1)
    heavy = torch.optim.SGD(weight, lr=0.1, momentum=0.9)
    adam = torch.optim.AdamW(weight)
    assert known_trouble(Async(), world_size=4, optimizer=plain) == ""
    assert known_trouble(Sync(), world_size=4, optimizer=heavy) == ""
    assert known_trouble(Async(), world_size=1, optimizer=heavy) == ""
    assert "momentum" in known_trouble(SSP(staleness=3), world_size=4, optimizer=heavy)
    assert "AdamW" in known_trouble(Async(), world_size=4, optimizer=adam)
