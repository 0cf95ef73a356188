"""The key by which the hosts of a run know each other: a file that only its owner can read.

It is never on a command line, in the environment or in a trace: only the file's path is. Knows no
sockets; resolving a host's name is passed in.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from paceline.errors import UsageError, bad_value
from paceline.transport.handshake import NO_KEY

KEY_BYTES = 32
REMEDY = "Make one with `paceline key FILE`, copy it to every host, and name it there."


def make_key(path: Path) -> None:
    """Write a new key to ``path``, which must not exist, readable by its owner only (mode 0600).

    Raises UsageError if the file exists, OSError if it cannot be written.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise bad_value(
            "FILE", str(path), "a file that does not exist yet", "A key is never overwritten."
        ) from None
    with os.fdopen(fd, "w") as file:
        file.write(secrets.token_hex(KEY_BYTES) + "\n")


def read_key(path: Path) -> bytes:
    """The key in ``path``. Raises UsageError if others could read it, or if it is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not hold us up
    except OSError as error:
        raise bad_value("key", str(path), f"a key's file ({error.strerror})", REMEDY) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise bad_value("key", str(path), "a key's file (this is none)", REMEDY)
    with os.fdopen(fd, "rb") as file:
        mode = os.fstat(fd).st_mode
        if stat.S_IMODE(mode) & 0o077:
            raise UsageError(
                f"key={str(path)!r} can be read by others (mode {stat.S_IMODE(mode):04o}): whoever "
                f"did may take part in the run. Make a new one with `paceline key FILE`."
            )
        text = file.read(2 * KEY_BYTES + 2).strip()
    try:
        key = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise bad_value("key", str(path), f"a file of {2 * KEY_BYTES} hex digits", REMEDY)
    return key


def key_for(host: str, path: Path | None, addresses: Callable[[str], Iterable[str]]) -> bytes:
    """The key to use for a server at ``host``. Without a file only this machine may reach it.

    Raises UsageError where a key is needed and not there, or wrong.
    """
    if path is not None:
        return read_key(path)
    if not all(ipaddress.ip_address(one).is_loopback for one in addresses(host)):
        raise UsageError(
            f"A server at {host} can be reached from other machines, and no key was given. {REMEDY} "
            "paceline run: --key FILE. torchrun: paceline.Worker(..., runtime=paceline.Runtime(key=FILE))."
        )
    return NO_KEY


def addresses_of(host: str) -> list[str]:
    """The addresses that ``host`` stands for. Raises UsageError if it stands for none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise bad_value("host", host, "a host's name or address", str(error)) from error
    return [str(one[4][0]).split("%")[0] for one in found]
