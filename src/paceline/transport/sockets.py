"""TCP as the runs' connections want it: no delays, and an end that is gone is noticed."""

from __future__ import annotations

import socket

from paceline.errors import UsageError
from paceline.transport.addresses import Remote

VANISHED_AFTER_S = 30
"""A host that answers nothing for so long is gone; its kernel would answer for a process that is stuck."""
_PROBES = 3


def listen_on(remote: Remote) -> socket.socket:
    """A non-blocking listening socket. Raises UsageError if ``remote`` is no address to listen on here."""
    try:
        family, _, _, _, where = socket.getaddrinfo(
            remote.host, remote.port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.create_server(where[:2], family=family, backlog=512)
    except OSError as error:
        raise UsageError(
            f"The server cannot listen on {remote}: {error.strerror}. Name an address of the host "
            "of rank 0 that all hosts reach, and a port that is free there."
        ) from None
    listener.setblocking(False)
    return listener


def connect_to(remote: Remote, *, timeout_s: float) -> socket.socket:
    """A connected socket. Raises OSError."""
    connection = socket.create_connection((remote.host, remote.port), timeout=timeout_s)
    connection.settimeout(None)
    tune(connection)
    return connection


def tune(connection: socket.socket) -> None:
    """Send at once what is to be sent, and fail once the other host has vanished."""
    tcp = socket.IPPROTO_TCP
    connection.setsockopt(tcp, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    every_s = VANISHED_AFTER_S // (_PROBES + 1)
    for name, value in (
        ("TCP_KEEPIDLE", every_s),
        ("TCP_KEEPINTVL", every_s),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", VANISHED_AFTER_S * 1000),
    ):
        if hasattr(socket, name):  # Linux has them all
            connection.setsockopt(tcp, getattr(socket, name), value)
