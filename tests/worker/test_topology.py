"""Where each strategy can run: the rule by which a plane is chosen."""

from __future__ import annotations

import pytest
import torch

from paceline.errors import UsageError
from paceline.strategies import parse_strategy
from paceline.worker.topology import topology

CPU = torch.device("cpu")


def test_several_workers_on_windows_are_refused_in_one_sentence() -> None:
    with pytest.raises(UsageError, match="WSL"):
        topology(parse_strategy("sync"), 2, CPU, platform="win32")
    assert topology(parse_strategy("sync"), 1, CPU, platform="win32") == "local"


@pytest.mark.parametrize("word", ["async", "sync:server", "ssp:3", "backup:1"])
def test_the_server_plane_is_refused_on_macos_with_the_remedy(word: str) -> None:
    with pytest.raises(UsageError, match="sync:allreduce"):
        topology(parse_strategy(word), 2, CPU, platform="darwin")


def test_plain_sync_chooses_by_rule() -> None:
    sync = parse_strategy("sync")
    assert topology(sync, 2, CPU, platform="linux") == "server"
    assert topology(sync, 2, CPU, platform="darwin") == "allreduce"
    assert topology(sync, 2, torch.device("cuda"), platform="linux") == "allreduce"
