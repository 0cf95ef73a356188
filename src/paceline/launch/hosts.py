"""One run on several hosts: which of them this is, and where they meet.

    paceline run --nnodes 2 --node-rank 0 --master-addr host0 --key run.key -n 4 train.py

Host 0 has the server; every host's launcher starts and watches its own workers. Knows no workers.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from paceline.errors import UsageError, bad_value
from paceline.transport.addresses import Remote
from paceline.transport.keys import addresses_of, key_for

MOST_HOSTS = 256
_WORDS = ("node_rank", "master_addr", "master_port", "key", "shards")
DEFAULT_PORT = 29500
"""torchrun's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hosts:
    """``count`` hosts, of which this is number ``number``; ``server``: where host 0 is reached, by whoever
    has the key in the file ``key`` (None: by this machine only). ``shards``: so many of the first hosts
    hold a part of the parameters."""

    count: int
    number: int
    server: Remote
    key: Path | None
    shards: int = 1

    @property
    def has_shard(self) -> bool:
        """Whether this host holds a part of the parameters, and is not host 0."""
        return 0 < self.number < self.shards

    def environment(self) -> dict[str, str]:
        """For scripts that use torch.distributed themselves, and for gloo: which interface leads there."""
        meeting = {"MASTER_ADDR": self.server.host, "MASTER_PORT": str(self.server.port + 1)}
        return {**meeting, **gloo_interface(self.server)}


def gloo_interface(remote: Remote) -> dict[str, str]:
    """What tells gloo the interface that leads to ``remote``: it would take that of the host's name, which
    may be the loopback's. Nothing where somebody has told it already, or nobody knows."""
    interface = "" if "GLOO_SOCKET_IFNAME" in os.environ else _interface_to(remote)
    return {"GLOO_SOCKET_IFNAME": interface} if interface else {}


def checked_hosts(hosts: Hosts) -> Hosts:
    """``hosts``, if they make sense and the key may be used. Raises UsageError."""
    if not 1 <= hosts.count <= MOST_HOSTS:
        raise bad_value("--nnodes", hosts.count, f"a whole number from 1 to {MOST_HOSTS}")
    if not 0 <= hosts.number < hosts.count:
        raise bad_value("--node-rank", hosts.number, f"a whole number from 0 to {hosts.count - 1}")
    if not 0 < hosts.server.port < 2**16 - 1:
        raise bad_value("--master-port", hosts.server.port, "a whole number from 1 to 65534")
    if not 1 <= hosts.shards <= hosts.count:
        raise bad_value(
            "--shards", hosts.shards, f"hosts, or a whole number from 1 to {hosts.count} (--nnodes)"
        )
    _check_address(hosts.server.host)
    key_for(hosts.server.host, hosts.key, addresses_of)
    return hosts


def _check_address(host: str) -> None:
    """Raises UsageError for what is no address: waiting for it would never end."""
    try:
        if host:
            addresses_of(host)
            return
        reason = "it is empty"
    except UsageError as error:
        reason = str(error.__cause__ or "nobody knows it")
    raise bad_value(
        "master_addr", host, f"the name or address of host 0, as all hosts reach it ({reason})"
    )


def identity() -> str:
    """This host, as memory and processes see it: two containers of one machine are two hosts."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    for space in ("net", "pid"):
        with suppress(OSError):
            parts.append(os.readlink(f"/proc/self/ns/{space}"))
    return " ".join(parts)


def hosts_from(options: Mapping[str, Any]) -> Hosts | None:
    """What the command line says of hosts; None if it is one. Raises UsageError for half of it."""
    said = {name: options[name] for name in _WORDS}
    if options["nnodes"] in (None, 1):
        for name, value in said.items():
            if value is not None:
                word = name.replace("_", "-")
                raise UsageError(f"--{word} is about several hosts: say --nnodes, too.")
        return None
    for name in ("node_rank", "master_addr"):
        if said[name] is None:
            raise UsageError(
                f"--nnodes={options['nnodes']} needs --{name.replace('_', '-')}: each host has its number "
                "(--node-rank, from 0), and all name the address of host 0 (--master-addr)."
            )
    port, key, shards = said["master_port"], said["key"], said["shards"]
    address = said["master_addr"].removeprefix("[").removesuffix("]")  # IPv6, as in a URL
    where = Remote(host=address, port=DEFAULT_PORT if port is None else port)
    return Hosts(
        count=options["nnodes"], number=said["node_rank"], server=where,
        key=None if key is None else key.absolute(), shards=_shards(shards, options["nnodes"]),
    )  # fmt: skip


def on_each(hosts: int, workers: int, source: str) -> int:
    """How many of the ``workers`` that ``source`` has are on each of ``hosts``. Raises UsageError for a
    remainder."""
    if workers % hosts:
        raise bad_value(
            "nnodes", hosts, f"a divisor of the {workers} workers of {source}",
            "Or say how many are on each host: -n.",
        )  # fmt: skip
    return workers // hosts


def _shards(said: str | None, hosts: int) -> int:
    """``hosts``: one for each."""
    if said is None or said == "hosts":
        return 1 if said is None else hosts
    if not said.isdecimal():
        raise bad_value("--shards", said, f"hosts, or a whole number from 1 to {hosts} (--nnodes)")
    return int(said)


def _interface_to(remote: Remote) -> str:
    """The interface that leads to ``remote``; "" if nobody knows."""
    with suppress(OSError):
        family, kind, _, _, where = socket.getaddrinfo(
            remote.host, remote.port, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.connect(where)  # sends nothing
            own = probe.getsockname()[0]
        for name, addresses in psutil.net_if_addrs().items():
            if any(one.address.split("%")[0] == own for one in addresses):
                return str(name)
    return ""
