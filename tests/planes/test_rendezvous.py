"""Under torchrun, or any launcher that sets the usual variables, workers find a server of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.errors import UsageError
from paceline.launch.context import Launch
from paceline.launch.rendezvous import find_server

SCRIPT = Path(__file__).parent / "rendezvous_script.py"
MET = sorted(["rank 0 met 0 1", "rank 1 met 0 1"] * 2)


def environment(directory: Path) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(directory)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.full
def test_torchrun_starts_a_group_that_meets_and_leaves_nothing(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    torchrun += ["--master-port", str(free_port()), str(SCRIPT)]
    done = subprocess.run(
        torchrun, env=environment(tmp_path), capture_output=True, text=True, timeout=60
    )
    # Both ranks write to one pipe: where Python is unbuffered, a newline is a write of its own.
    assert all(done.stdout.count(said) == 2 for said in set(MET)), done.stderr
    assert not list(tmp_path.glob("paceline-*"))


def test_the_usual_variables_are_enough(tmp_path: Path) -> None:
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "SLURM_NTASKS": "2"}
    workers = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT)],
            env={**environment(tmp_path), **shared, "SLURM_PROCID": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [worker.communicate(timeout=60)[0] for worker in workers]
    assert sorted("".join(said).splitlines()) == MET


def test_variables_that_lead_nowhere_are_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with pytest.raises(UsageError, match=r"`paceline run` or torchrun"):
        find_server(Launch(rank=1, world_size=2))
