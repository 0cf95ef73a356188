"""Where a server is: a unix socket's path on this host, or ``tcp://HOST:PORT`` on any. Text only."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.errors import bad_value

_SCHEME = "tcp://"


@dataclass(frozen=True, kw_only=True, slots=True)
class Remote:
    """A server that is reached over a network."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{_SCHEME}{host}:{self.port}"


def remote_from(address: str) -> Remote | None:
    """What ``address`` says of a network; None if it is a path. Raises UsageError for half of one."""
    if not address.startswith(_SCHEME):
        return None
    host, _, port = address.removeprefix(_SCHEME).rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not int(port) < 2**16:
        raise bad_value("server", address, "tcp://HOST:PORT")
    return Remote(host=host, port=int(port))
