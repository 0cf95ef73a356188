"""Two hosts (network namespaces): torchrun, deaths, wrong keys and garbage. Needs root and iproute2.

That every strategy computes what it should between them is for tests/equality.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from paceline.transport.keys import make_key
from support.hosts import PORT, Launched, two_hosts

SCRIPT = Path(__file__).parent / "script.py"
GARBAGE = """
import socket, struct, sys
for first in (b"GET / HTTP/1.1\\r\\n\\r\\n", b"PACE" + bytes(12),
              struct.pack("!4sBBHQ", b"PACE", 1, 2, 0, 2**50),
              struct.pack("!4sBBHQ", b"PACE", 1, 1, 0, 32) + b"short"):
    with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as stranger:
        stranger.sendall(first)
        stranger.shutdown(socket.SHUT_WR)
        try:
            while stranger.recv(100): pass
        except ConnectionResetError: pass
"""

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


def ends_of(said: str) -> set[str]:
    return set(
        re.findall(r"end -?\d+\.\d{12} -?\d+\.\d{12}", said)
    )  # lines may run into each other


@pytest.mark.parametrize("strategy", ["sync", "sync:server", "async", "hybrid:async"])
def test_torchrun_on_two_hosts(tmp_path: Path, strategy: str) -> None:
    key = tmp_path / "key"
    make_key(key)
    with two_hosts() as places:
        words = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"]
        words += ["--nproc-per-node", "2", "--master-addr", places[0].address]
        words += ["--master-port", str(PORT)]
        hosts = [
            subprocess.Popen(
                place.command(*words, "--node-rank", str(number), str(SCRIPT), strategy, str(key), "0"),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                env={**os.environ, "GLOO_SOCKET_IFNAME": "port0", "OMP_NUM_THREADS": "1",
                     "TMPDIR": str(tmp_path)},
            )
            for number, place in enumerate(places)
        ]  # fmt: skip
        said = [host.communicate(timeout=500)[0] for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0], said
    assert "".join(said).count("end ") == 4
    assert len(ends_of("".join(said))) == 1, said
    assert not strategy.startswith("hybrid") or "2 groups of ranks: 0,1 | 2,3" in said[0], said
    assert not list(tmp_path.glob("paceline-*"))


def test_torchrun_without_a_key_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with two_hosts() as places:
        alone = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}
        alone |= {"MASTER_ADDR": places[0].address, "MASTER_PORT": str(PORT)}
        refused = subprocess.run(
            places[0].command(sys.executable, str(SCRIPT), "async", "-", "0"),
            capture_output=True, text=True, check=False, timeout=300, env={**os.environ, **alone},
        )  # fmt: skip
    assert refused.returncode == 1
    assert "can be reached from other machines, and no key was given" in refused.stderr
    assert "paceline.Runtime(key=FILE)" in refused.stderr


def workers_of(launcher: subprocess.Popen[str]) -> list[psutil.Process]:
    """The launcher's worker processes (it may be the child of ``ip netns exec``)."""
    return [
        one
        for one in psutil.Process(launcher.pid).children(recursive=True)
        if "paceline.launch.bootstrap" in " ".join(one.cmdline())
    ]


def when_training(out: Path, act: Callable[[], object], within_s: float = 200) -> None:
    """``act()`` once rank 1 has begun some windows."""
    by_s = time.monotonic() + within_s
    record = out / "0" / "server.jsonl"
    while not (record.exists() and record.read_text().count('["update"') > 5):
        assert time.monotonic() < by_s, "nobody trains"
        time.sleep(0.2)
    act()


@pytest.mark.parametrize(("strategy", "code"), [("async", 0), ("sync:server", 3)])
def test_a_death_on_the_other_host(tmp_path: Path, strategy: str, code: int) -> None:
    with two_hosts() as places:
        run = Launched(places, SCRIPT, [strategy, "-", "0.2"], workers=1, out=tmp_path)
        when_training(
            tmp_path,
            lambda: [one.send_signal(signal.SIGKILL) for one in workers_of(run.launchers[1])],
        )
        killed_s = time.monotonic()
        here, there = run.wait(300)
        took_s = time.monotonic() - killed_s
    assert here.exit_code == code, here.said
    assert re.search(r"rank 1 \(pid \d+ on \S+[),]", here.said), here.said
    assert "was killed by SIGKILL" in there.said
    if code == 3:
        assert took_s < 30, here.said  # the two launchers' own ends included; a busy machine
    else:
        assert len(ends_of(here.said)) == 1


def test_strangers_do_not_disturb_a_run(tmp_path: Path) -> None:
    other = tmp_path / "other"
    make_key(other)
    with two_hosts() as places:
        run = Launched(places, SCRIPT, ["async", "-", "0.2"], workers=1, out=tmp_path)
        wrong = [
            sys.executable, "-m", "paceline.cli", "run", "--nnodes", "2", "--node-rank", "1",
            "--master-addr", places[0].address, "-n", "1", "--out", str(tmp_path / "x"),
        ]  # fmt: skip
        said: list[subprocess.CompletedProcess[str]] = []

        def disturb() -> None:
            train = [str(SCRIPT), "async", "-", "0"]
            garbage = [sys.executable, "-c", GARBAGE, places[0].address, str(PORT)]
            for words in ([*wrong, "--key", str(other), *train], [*wrong, *train], garbage):
                command = places[1].command(*words)
                done = subprocess.run(
                    command, capture_output=True, text=True, check=False, timeout=200
                )
                said.append(done)

        when_training(tmp_path, disturb)
        ends = run.wait(300)
    for end in ends:
        assert end.exit_code == 0, end.said
    assert len(ends_of(ends[0].said + ends[1].said)) == 1
    assert said[0].returncode == said[1].returncode == 2
    assert "has another" in said[0].stderr
    assert "can be reached from other machines, and no key was given" in said[1].stderr
    lines = [one for one in ends[0].said.splitlines() if "connection to a newcomer" in one]
    assert len(lines) == 5, ends[0].said
    assert all(places[1].address in one for one in lines)


def test_a_host_that_vanishes_is_evicted_and_its_worker_ends(tmp_path: Path) -> None:
    with two_hosts() as places:
        run = Launched(places, SCRIPT, ["async", "-", "0.2"], workers=1, out=tmp_path)
        cut = ["ip", "-n", places[1].namespace, "link", "set", "port0", "down"]
        when_training(tmp_path, lambda: subprocess.run(cut, check=True))
        here, there = run.wait(300)
    assert here.exit_code == 0, here.said
    assert re.search(r"rank 1 \(pid \d+ on \S+\) was silent for .* and is evicted", here.said)
    assert len(ends_of(here.said)) == 1
    assert there.exit_code == 3, there.said
    assert "timed out" in there.said
