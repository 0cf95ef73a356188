"""Who may talk between hosts: both ends prove that they have the run's key, without showing it.

    caller -> server   nonce C
    server -> caller   nonce S + HMAC(key, "server" C S)
    caller -> server   HMAC(key, "caller" C S)

HMAC is SHA-256's. A nonce is used once, so a recording proves nothing later; the two labels keep an
end from proving itself with the other's words. What follows is neither encrypted nor signed: the
handshake keeps strangers out, not those who can rewrite the packets of others. States without I/O.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

from paceline.transport.frames import FRAMES_VERSION
from paceline.transport.framing import FrameError


class WrongKeyError(FrameError):
    """The server has another key."""


NONCE_BYTES = 32
PROOF_BYTES = sha256().digest_size
NO_KEY = b""
"""What both ends have on a loopback address where no key was asked for."""


class CallersHandshake:
    """The end that connects. ``nonce``: 32 bytes that nobody has seen before."""

    def __init__(self, *, key: bytes, nonce: bytes) -> None:
        self._key = key
        self._nonce = nonce

    def begin(self) -> bytes:
        """What to send first."""
        return self._nonce

    def answer(self, heard: bytes) -> bytes:
        """What to send after the server has said ``heard``. Raises WrongKeyError, or FrameError."""
        if len(heard) != NONCE_BYTES + PROOF_BYTES:
            raise FrameError("no handshake")
        theirs, proof = heard[:NONCE_BYTES], heard[NONCE_BYTES:]
        if not hmac.compare_digest(proof, _proof(self._key, b"server", self._nonce, theirs)):
            raise WrongKeyError("the server has another key")
        return _proof(self._key, b"caller", self._nonce, theirs)


class ServersHandshake:
    """The end that is connected to. ``done``: the caller has proved itself."""

    def __init__(self, *, key: bytes, nonce: bytes) -> None:
        self.done = False
        self._key = key
        self._nonce = nonce
        self._theirs: bytes | None = None

    def hear(self, said: bytes) -> bytes | None:
        """What to answer to what the caller ``said``, if anything. Raises FrameError to hang up."""
        if self._theirs is not None:
            self._judge(said, self._theirs)
            return None
        if len(said) != NONCE_BYTES:
            raise FrameError("no handshake")
        self._theirs = said
        return self._nonce + _proof(self._key, b"server", said, self._nonce)

    def _judge(self, proof: bytes, theirs: bytes) -> None:
        if not hmac.compare_digest(proof, _proof(self._key, b"caller", theirs, self._nonce)):
            raise FrameError("it has another key")
        self.done = True


def _proof(key: bytes, who: bytes, callers: bytes, servers: bytes) -> bytes:
    said = b"paceline %d %s " % (FRAMES_VERSION, who) + callers + servers
    return hmac.digest(key, said, "sha256")
