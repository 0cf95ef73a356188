"""Hosts on this machine: network namespaces joined by a bridge, each with a port of a given rate.

Everything lies in namespaces whose names hold this process's id, and goes when they are deleted.
Needs root, ``ip`` and ``tc`` (iproute2).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

BURST_BYTES = 128 * 1024
PORT = "port0"


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """A namespace and its address. Its interface is called :data:`PORT`."""

    namespace: str
    address: str

    def command(self, *words: str) -> list[str]:
        """``words`` as a command that runs there."""
        return ["ip", "netns", "exec", self.namespace, *words]


def missing() -> str:
    """Why there can be no namespaces here; "" if there can."""
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    absent = [name for name in ("ip", "tc") if shutil.which(name) is None]
    if absent:
        return f"{' and '.join(absent)} not found: install iproute2"
    probe = f"pl{os.getpid()}-probe"
    made = subprocess.run(
        ["ip", "netns", "add", probe], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        return f"no network namespaces here: {made.stderr.strip()}"
    _run("ip", "netns", "delete", probe)
    return ""


@contextmanager
def hosts(rates_bits_per_s: Sequence[float]) -> Iterator[list[Host]]:
    """A host for each rate, which holds both ways."""
    hub = f"pl{os.getpid()}-hub"
    made = [
        Host(namespace=f"pl{os.getpid()}-{number}", address=f"10.77.0.{number + 1}")
        for number in range(len(rates_bits_per_s))
    ]
    names = [hub, *(host.namespace for host in made)]
    try:
        for name in names:
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
        _run("ip", "-n", hub, "link", "add", "bridge0", "type", "bridge")
        _run("ip", "-n", hub, "link", "set", "bridge0", "up")
        for number, (host, rate) in enumerate(zip(made, rates_bits_per_s, strict=True)):
            _plug_in(hub, number, host, rate)
        yield made
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _plug_in(hub: str, number: int, host: Host, rate: float) -> None:
    socket = f"socket{number}"
    _run("ip", "-n", hub, "link", "add", socket, "type", "veth", "peer", "name", PORT,
         "netns", host.namespace)  # fmt: skip
    _run("ip", "-n", hub, "link", "set", socket, "master", "bridge0", "up")
    _run("ip", "-n", host.namespace, "address", "add", f"{host.address}/24", "dev", PORT)
    _run("ip", "-n", host.namespace, "link", "set", PORT, "up")
    for namespace, device in ((hub, socket), (host.namespace, PORT)):
        _run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", "rate",
             f"{rate:.0f}bit", "burst", str(BURST_BYTES), "latency", "100ms")  # fmt: skip


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
