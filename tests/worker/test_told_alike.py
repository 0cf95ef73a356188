"""Workers that were told different things end at the start, with what differs in the sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from paceline.errors import MismatchError
from paceline.launch.context import Launch
from precision.ranks import Rank, run_ranks


@pytest.mark.parametrize("strategy", ["sync", "sync:allreduce", "local:2"])
def test_a_rates_factor_on_one_host_only(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _refusals(strategy, {"lr_factor": 3.0}, monkeypatch) == 2 * [
        "Ranks 0 and 1 differ: option --lr-factor is '1.0' against '3.0'"
    ]


def _refusals(strategy: str, other: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    def on(launch: Launch) -> str:
        model = nn.Linear(2, 1)
        launch = replace(launch, **other) if launch.rank else launch
        with pytest.raises(MismatchError) as caught:
            Rank(model, torch.optim.SGD(model.parameters(), lr=0.1), launch, strategy=strategy)
        return str(caught.value).split(". ")[0]

    return run_ranks(2, on, monkeypatch)
