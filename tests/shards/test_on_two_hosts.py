"""A shard on each of two hosts (network namespaces): checkpoints, deaths. Needs root and iproute2.

That every strategy computes what it should is for tests/equality.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from hosts.test_namespaces import when_training
from support.hosts import Ended, Launched, two_hosts

SCRIPT = Path(__file__).parent / "script.py"

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


def processes(launcher: object, module: str) -> list[psutil.Process]:
    """The launcher's processes of that module (it may be the child of ``ip netns exec``)."""
    own = psutil.Process(launcher.pid).children(recursive=True)  # type: ignore[attr-defined]
    return [one for one in own if module in " ".join(one.cmdline())]


def launched(places: Sequence, args: Sequence[str], out: Path, shards: str = "hosts") -> Launched:
    out.mkdir()
    return Launched(places, SCRIPT, args, workers=1, out=out, words=("--shards", shards))


def end_of(ends: Sequence[Ended]) -> str:
    """What all workers say of where they ended."""
    for end in ends:
        assert end.exit_code == 0, end.said
    (said,) = set(re.findall(r"end \S+ \S+ \S+ end", "".join(end.said for end in ends)))
    return str(said)


def test_what_two_shards_saved_one_goes_on_from_and_the_other_way_round(tmp_path: Path) -> None:
    with two_hosts() as places:
        ended = {}
        for shards in ("1", "hosts"):
            saved = tmp_path / f"saved-{shards}"
            args = ["sync:server", "0", "-", str(saved)]
            ended[shards] = end_of(launched(places, args, tmp_path / shards, shards).wait(800))
        assert ended["1"] == ended["hosts"]
        for shards, saved in (("1", "saved-hosts"), ("hosts", "saved-1")):
            (checkpoint,) = (tmp_path / saved).glob("[0-9]*-version-*")
            args = ["sync:server", "0", str(checkpoint), "-"]
            again = launched(places, args, tmp_path / f"again-{shards}", shards).wait(800)
            assert end_of(again) == ended["1"]


def test_a_shard_that_is_killed_stops_both_hosts_by_its_name(tmp_path: Path) -> None:
    with two_hosts() as places:
        run = launched(places, ["async", "0.3", "-", "-"], tmp_path / "run")
        killed_s = [0.0]

        def kill() -> None:
            (shard,) = processes(run.launchers[1], "paceline.server.shard_server")
            shard.send_signal(signal.SIGKILL)
            killed_s[0] = time.monotonic()

        when_training(tmp_path / "run", kill, within_s=800)
        for launcher in run.launchers:
            launcher.wait(100)
        took_s = time.monotonic() - killed_s[0]
        here, there = run.wait(60)
    assert here.exit_code == there.exit_code == 3, here.said + there.said
    words = r"shard 1 \(pid \d+ on \S+\), which held a part of the parameters, is lost"
    assert re.search(words, here.said), here.said
    assert re.search(words, there.said), there.said
    assert took_s < 20, here.said  # the two launchers' own ends included; a busy machine


@pytest.mark.parametrize(("strategy", "code"), [("async", 0), ("sync:server", 3)])
def test_a_worker_beside_a_shard_is_killed(tmp_path: Path, strategy: str, code: int) -> None:
    with two_hosts() as places:
        run = launched(places, [strategy, "0.3", "-", "-"], tmp_path / "run")

        def kill() -> None:
            for worker in processes(run.launchers[1], "paceline.launch.bootstrap"):
                worker.send_signal(signal.SIGKILL)

        when_training(tmp_path / "run", kill, within_s=800)
        here, there = run.wait(800)
    assert here.exit_code == code, here.said
    assert re.search(r"rank 1 \(pid \d+ on \S+[),]", here.said), here.said
    assert "was killed by SIGKILL" in there.said
    if code == 0:
        assert "end " in here.said


def test_what_no_server_holds_is_not_divided(tmp_path: Path) -> None:
    with two_hosts() as places:
        for end in launched(places, ["sync", "0", "-", "-"], tmp_path / "run").wait(800):
            assert end.exit_code != 0
            assert "--shards=2 and sync:allreduce cannot work together" in end.said
