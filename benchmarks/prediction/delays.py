"""Hosts on this machine whose packets are on their way for a given time, where the kernel has no netem.

Each namespace has a tun device; a thread of this process reads all packets and hands each to the device of its
receiver when its time has come. Rates are not limited. Needs root, ``ip`` and /dev/net/tun.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import select
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prediction.namespaces import PORT, Host

TUN_SET_INTERFACE, TUN_WITHOUT_HEADER = 0x400454CA, 0x1001
NEW_NETWORK = 0x40000000
MTU = 1500
SPIN_S = 2e-4
"""Before a packet is due the relay looks without sleeping: a sleep ends late."""


@contextmanager
def delayed_hosts(delays_s: Sequence[float]) -> Iterator[list[Host]]:
    """A host for each delay, which a packet suffers when it leaves it and when it comes to it."""
    made = [
        Host(namespace=f"pl{os.getpid()}-{number}", address=f"10.78.0.{number + 1}")
        for number in range(len(delays_s))
    ]
    devices: list[int] = []
    stop = threading.Event()
    relay = threading.Thread(target=_relay, args=(devices, tuple(delays_s), stop))
    try:
        for host in made:
            _run("ip", "netns", "add", host.namespace)
            devices.append(_device_in(host.namespace))
            _run("ip", "-n", host.namespace, "link", "set", "lo", "up")
            _run("ip", "-n", host.namespace, "address", "add", f"{host.address}/24", "dev", PORT)
            _run("ip", "-n", host.namespace, "link", "set", PORT, "mtu", str(MTU), "up")
        relay.start()
        yield made
    finally:
        stop.set()
        if relay.is_alive():
            relay.join()
        for device in devices:
            os.close(device)
        for host in made:
            subprocess.run(
                ["ip", "netns", "delete", host.namespace], capture_output=True, check=False
            )


def _device_in(namespace: str) -> int:
    """A tun device's descriptor. Made by a thread of its own, which dies in that namespace."""
    made: list[int] = []
    libc = ctypes.CDLL(None, use_errno=True)

    def make() -> None:
        with open(f"/run/netns/{namespace}") as place:
            if libc.setns(place.fileno(), NEW_NETWORK) != 0:  # os.setns is Python 3.12's
                raise OSError(ctypes.get_errno(), "setns")
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        name = struct.pack("16sH22x", PORT.encode(), TUN_WITHOUT_HEADER)
        fcntl.ioctl(device, TUN_SET_INTERFACE, name)
        made.append(device)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made[0]


def _relay(devices: list[int], delays_s: tuple[float, ...], stop: threading.Event) -> None:
    """Until ``stop``: packets that are under way lie in a heap by the time at which they arrive."""
    receivers = {socket.inet_aton(f"10.78.0.{n + 1}"): n for n in range(len(devices))}
    under_way: list[tuple[float, int, int, bytes]] = []
    serial = 0
    while not stop.is_set():
        left_s = under_way[0][0] - time.monotonic() - SPIN_S if under_way else 0.05
        ready, _, _ = select.select(devices, [], [], max(left_s, 0.0))
        for device in ready:
            packet = _read(device)
            to = receivers.get(packet[16:20])
            if to is not None:
                due_s = time.monotonic() + delays_s[devices.index(device)] + delays_s[to]
                serial += 1
                heapq.heappush(under_way, (due_s, serial, devices[to], packet))
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, device, packet = heapq.heappop(under_way)
            _write(device, packet)


def _read(device: int) -> bytes:
    try:
        return os.read(device, 65536)
    except BlockingIOError:
        return b""


def _write(device: int, packet: bytes) -> None:
    try:
        os.write(device, packet)
    except (BlockingIOError, OSError):
        return  # a full queue loses it, as any network does


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
