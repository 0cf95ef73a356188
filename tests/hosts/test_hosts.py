"""Several hosts on the command line and in a launcher's environment; when host 0 may leave."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from paceline.cli import paceline as command_line
from paceline.errors import UsageError
from paceline.launch.context import launch_from
from paceline.launch.hosts import Hosts, checked_hosts, hosts_from, identity, on_each
from paceline.launch.meeting import PARTING_S, Elsewhere
from paceline.launch.request import RunRequest, checked, left_out_of
from paceline.launch.summary import NoticeResult
from paceline.transport.addresses import Remote, remote_from
from paceline.transport.keys import make_key

CLUSTER = "[workers]\ncount = 2\nstep_s = 1.0\n"
SAID: dict[str, Any] = {
    "nnodes": 2, "node_rank": 1, "master_addr": "127.0.0.1", "master_port": None, "key": None,
    "shards": None,
}  # fmt: skip


def of_two(**changes: Any) -> Hosts | None:
    return hosts_from({**SAID, **changes})


def test_the_words_are_torchruns() -> None:
    hosts = of_two(key=Path("run.key"))
    assert hosts == Hosts(
        count=2,
        number=1,
        server=Remote(host="127.0.0.1", port=29500),
        key=Path("run.key").absolute(),
    )
    assert of_two(nnodes=1, node_rank=None, master_addr=None) is None
    request = RunRequest(script=Path("x"), workers=3, hosts=hosts)
    assert request.world_size == 6
    assert list(request.ranks) == [3, 4, 5]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nnodes": None}, "--node-rank is about several hosts: say --nnodes"),
        ({"node_rank": None}, "--nnodes=2 needs --node-rank"),
        ({"master_addr": None}, "--nnodes=2 needs --master-addr"),
    ],
)
def test_half_of_it_is_refused_with_the_other_half(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        of_two(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"node_rank": 2}, "--node-rank=2: expected a whole number from 0 to 1"),
        ({"master_port": 65535}, "--master-port=65535"),
        ({"shards": "3"}, "--shards=3: expected hosts, or a whole number from 1 to 2"),
        ({"shards": "0"}, "--shards=0"),
        ({"master_addr": "192.0.2.1"}, "can be reached from other machines, and no key was given"),
        ({"key": Path("/no/such/key")}, "No such file"),
        ({"key": Path("/tmp")}, "this is none"),
        ({"master_addr": ""}, "master_addr=''.*it is empty"),
        ({"master_addr": "no such host"}, "master_addr='no such host'"),
        ({"master_addr": ":::"}, "master_addr=':::'"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    changes: dict[str, Any], words: str
) -> None:
    hosts = of_two(**changes)
    assert hosts is not None
    with pytest.raises(UsageError, match=words):
        checked_hosts(hosts)


def test_an_address_may_be_written_as_in_a_url() -> None:
    hosts = of_two(master_addr="[::1]")
    assert hosts is not None
    assert hosts.server.host == "::1"


def test_what_describes_all_workers_is_divided_among_hosts() -> None:
    assert on_each(2, 4, "cluster.toml") == 2
    with pytest.raises(UsageError, match=r"nnodes=2: .*the 3 workers of run.* -n"):
        on_each(2, 3, "run")


def test_whom_an_emulated_cluster_leaves_out_counts_all_hosts(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(CLUSTER)
    request = RunRequest(script=tmp_path, hosts=of_two(), emulate=cluster)
    assert left_out_of(request) == ""
    assert "rank 1 left out" in left_out_of(RunRequest(script=tmp_path, emulate=cluster))


@pytest.mark.parametrize(("said", "shards"), [(None, 1), ("1", 1), ("hosts", 2), ("2", 2)])
def test_so_many_hosts_hold_a_part(said: str | None, shards: int) -> None:
    hosts = of_two(shards=said)
    assert hosts is not None
    assert hosts.shards == shards
    assert hosts.has_shard == (shards == 2)  # it is host 1; host 0's shard is the server


def test_a_number_of_shards_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="--shards='many'"):
        of_two(shards="many")
    with pytest.raises(UsageError, match="--shards is about several hosts"):
        of_two(nnodes=None, node_rank=None, master_addr=None, shards="hosts")


def test_an_emulated_server_is_not_divided(tmp_path: Path) -> None:
    script, cluster = tmp_path / "train.py", tmp_path / "cluster.toml"
    script.touch()
    cluster.write_text(CLUSTER)
    request = RunRequest(script=script, hosts=of_two(shards="2"), emulate=cluster)
    with pytest.raises(UsageError, match="--shards and --emulate cannot work together"):
        checked(request)


def test_virtual_workers_and_replays_are_on_one_host(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    request = RunRequest(script=script, hosts=of_two(), replay=tmp_path)
    with pytest.raises(UsageError, match="all workers are on one host"):
        checked(request)


def test_backup_counts_the_workers_of_all_hosts(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    checked(RunRequest(script=script, workers=2, hosts=of_two(), strategy="backup:3"))
    with pytest.raises(UsageError, match="backup:4 and 4 workers"):
        checked(RunRequest(script=script, workers=2, hosts=of_two(), strategy="backup:4"))


def test_a_launchers_environment_says_whether_there_are_several_hosts() -> None:
    torchrun = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "host0"}
    far = launch_from({**torchrun, "LOCAL_WORLD_SIZE": "2"})
    assert far.several_hosts
    assert far.master_addr == "host0"
    assert not launch_from({**torchrun, "LOCAL_WORLD_SIZE": "4"}).several_hosts
    assert not launch_from(torchrun).several_hosts  # nobody said
    slurm = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4"}
    assert launch_from({**slurm, "SLURM_NNODES": "2"}).several_hosts
    assert not launch_from({**slurm, "SLURM_NNODES": "1"}).several_hosts


def test_addresses_read_back_as_they_were_written() -> None:
    for remote in (Remote(host="host0", port=29500), Remote(host="fe80::1", port=0)):
        assert remote_from(str(remote)) == remote
    assert remote_from("/tmp/paceline-x/server") is None
    for wrong in ("tcp://", "tcp://host", "tcp://:1", "tcp://host:70000", "tcp://host:x"):
        with pytest.raises(UsageError, match="tcp://HOST:PORT"):
            remote_from(wrong)


def test_a_host_is_itself() -> None:
    assert identity() == identity()
    assert "\n" not in identity()


def notices(*kinds: tuple[str, int]) -> list[NoticeResult]:
    return [NoticeResult(time_s=1.0, kind=kind, rank=rank, text="") for kind, rank in kinds]


def test_host_0_stays_until_everyone_elsewhere_has_gone() -> None:
    elsewhere = Elsewhere([0, 1], lambda: 5.0)
    assert elsewhere.over(notices())
    assert elsewhere.over(notices(("joined", 0), ("joined", 1)))
    assert not elsewhere.over(notices(("joined", 0), ("joined", 2), ("joined", 3), ("left", 2)))
    for kind in ("left", "died", "evicted"):
        assert elsewhere.over(notices(("joined", 2), (kind, 2)))
    assert not elsewhere.over(notices(("joined", 2), ("left", 2), ("joined", 2)))
    assert elsewhere.over(notices(("joined", 2), ("halted", 2)))
    assert not Elsewhere([0], lambda: 1.0 + PARTING_S / 2).over(notices(("halted", 2)))


def test_the_key_command_makes_one_and_no_second(tmp_path: Path) -> None:
    path = tmp_path / "run.key"
    done = CliRunner().invoke(command_line, ["key", str(path)])
    assert done.exit_code == 0
    assert "Copy it to every host" in done.output
    assert path.read_text().strip() not in done.output
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = CliRunner().invoke(command_line, ["key", str(path)])
    assert isinstance(again.exception, UsageError)


def test_no_key_reaches_a_command_line_or_a_summary(tmp_path: Path) -> None:
    from paceline.launch.bootstrap import decode_launch, encode_launch
    from paceline.launch.context import Launch
    from paceline.launch.summary import describe_start, summary_text

    path = tmp_path / "run.key"
    make_key(path)
    secret = path.read_text().strip()
    launch = Launch(rank=1, world_size=2, server="tcp://host0:29500", key=path)
    assert decode_launch(encode_launch(launch)) == launch
    assert secret not in encode_launch(launch)
    request = RunRequest(script=tmp_path / "x", hosts=of_two(key=path))
    assert secret not in summary_text(describe_start(request, started="now"))
