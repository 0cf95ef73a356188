"""Whatever a worker is told is compared with what the others were told, or known to be its own affair."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from paceline.compression import parse_compression
from paceline.gradients.precision.choice import Choice
from paceline.launch.context import Launch
from paceline.recipes import Stable
from paceline.strategies import Async, DiLoCo
from paceline.worker.manifest import trainable
from paceline.worker.options import Options, Runtime
from paceline.worker.said import said
from paceline.worker.training import Training

OPTIONS = Options(
    strategy=DiLoCo(windows=8), accumulate=1, global_batch=None, clip_norm=None,
    runtime=Runtime(), overridden={},
)  # fmt: skip
MODEL = nn.Linear(2, 1)
_OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.1)
TRAINING = Training(
    model=MODEL, optimizer=_OPTIMIZER, trainables=trainable(MODEL, _OPTIMIZER), strategy=Async()
)
OTHER_OPTIONS: dict[str, Any] = {
    "strategy": DiLoCo(windows=8, outer_lr=0.7000000000000001), "accumulate": 2, "global_batch": 64,
    "clip_norm": 1 / 3, "batch_norm": "sync", "types": Choice(loss_scale=1024.5), "recipe": Stable(),
    "compress": parse_compression("topk:0.0100000001"), "group_size": 2,
}  # fmt: skip
OTHER_RUNTIME: dict[str, Any] = {"evict_after_s": 10.5, "max_skips": 21}
OWN_OPTIONS = {"overridden", "health"}
OWN_RUNTIME = {"out", "key"}
OTHER_LAUNCH: dict[str, Any] = {
    "lr_factor": 1 + 1e-15, "replay": Path("run"), "until": 3, "shards": 2,
}  # fmt: skip
OWN_LAUNCH = {
    "rank", "world_size", "local_rank", "server", "out", "overrides", "seed", "launcher_pid", "virtual",
    "key", "local_world_size", "master_addr", "resume", "emulate",
}  # fmt: skip
"""The last two by what they lead to: below."""


def differences(
    options: Options = OPTIONS, launch: Launch | None = None, training: Training = TRAINING
) -> list[str]:
    usual = said(OPTIONS, Launch(), TRAINING)
    told = said(options, launch or Launch(), training)
    return [name for name in usual if usual[name] != told[name]]


@pytest.mark.parametrize(
    ("kind", "others", "own"),
    [
        (Options, OTHER_OPTIONS | {"runtime": OTHER_RUNTIME}, OWN_OPTIONS),
        (Runtime, OTHER_RUNTIME, OWN_RUNTIME),
        (Launch, OTHER_LAUNCH, OWN_LAUNCH),
    ],
)
def test_it_is_known_of_each_field_whether_it_must_be_equal(
    kind: Any, others: dict[str, Any], own: set[str]
) -> None:
    assert {field.name for field in fields(kind)} == others.keys() | own


def test_what_must_be_equal_is_compared_to_the_last_digit() -> None:
    for name, value in OTHER_OPTIONS.items():
        assert differences(replace(OPTIONS, **{name: value})) == [name]
    for name, value in OTHER_RUNTIME.items():
        runtime = replace(Runtime(), **{name: value})
        assert differences(replace(OPTIONS, runtime=runtime)) == [name]
    for name, value in OTHER_LAUNCH.items():
        (found,) = differences(launch=replace(Launch(), **{name: value}))
        assert found.strip("-").replace("-", "_") == name


def test_files_are_compared_by_what_is_in_them(tmp_path: Path) -> None:
    here, there, other = (tmp_path / name for name in ("here.toml", "there.toml", "other.toml"))
    for path, text in ((here, "[workers]"), (there, "[workers]"), (other, "[network]")):
        path.write_text(text)
    told = [said(OPTIONS, Launch(emulate=path), TRAINING) for path in (here, there, other)]
    assert told[0] == told[1] != told[2]
    assert differences(launch=Launch(emulate=here)) == ["--emulate"]


def test_a_checkpoint_is_compared_by_where_it_stands() -> None:
    assert differences(training=replace(TRAINING, version=7)) == ["--resume"]
    assert differences(training=replace(TRAINING, progress=7)) == ["--resume"]
    assert said(OPTIONS, Launch(), TRAINING)["--resume"] == "from the beginning"
