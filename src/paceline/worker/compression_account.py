"""What compression saved, and what it took: counted push by push, said in one sentence. Knows no tensor."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from paceline.gradients.codecs.joining import Sent


class Account:
    """``sizes_bytes``: of each parameter's gradient, whole. ``wire_bytes_per_s``: what uncompressed
    gradients would travel at; inf where they need not travel, None if nobody knows."""

    def __init__(self, sizes_bytes: Sequence[int], wire_bytes_per_s: float | None = None) -> None:
        self._sizes_bytes = sizes_bytes
        self._wire_bytes_per_s = wire_bytes_per_s
        self.pushes = 0
        self.sent_bytes = 0
        self.whole_bytes = 0
        self.coding_s = 0.0
        self._more_bytes = 0.0

    def packed(self, sent_bytes: int | None, used: bytes, took_s: float) -> None:
        """A push of ``sent_bytes`` (None: whole) was made of the gradients of the ``used`` parameters, in
        ``took_s`` for encoding it and for decoding it once (whoever receives it does the same)."""
        whole_bytes = sum(s for s, one in zip(self._sizes_bytes, used, strict=True) if one)
        self.pushes += 1
        self.sent_bytes += whole_bytes if sent_bytes is None else sent_bytes
        self.whole_bytes += whole_bytes
        self.coding_s += took_s

    def joined(self, sent: Sent, took_s: float) -> None:
        """Gradients were joined by collectives, which left ``took_s`` for encoding and decoding."""
        self.pushes += 1
        self.sent_bytes += sent.sent_bytes
        self.whole_bytes += sent.whole_bytes
        self._more_bytes += sent.wire_bytes - sent.sent_bytes
        self.coding_s += took_s

    @property
    def breaks_even_bytes_per_s(self) -> float:
        """A slower wire takes longer for what is saved than coding does (docs/compression.md)."""
        saved = self.whole_bytes - self.sent_bytes - self._more_bytes
        return saved / self.coding_s if self.coding_s > 0 else inf

    def sentence(self, name: str) -> str:
        """For the run's end; "" if nothing was compressed."""
        if not self.pushes:
            return ""
        share = self.sent_bytes / self.whole_bytes
        bytes_said = (
            f"compress={name}: {self.pushes:,} pushes of rank 0 had {_size(self.sent_bytes)} instead of "
            f"{_size(self.whole_bytes)} ({share:.2%}, warm-up included)"
        )
        if self.coding_s == 0:  # a simulated clock stands still meanwhile
            return bytes_said + "."
        each_ms = 1000 * self.coding_s / self.pushes
        return (
            f"{bytes_said} and took {each_ms:.3g} ms each to encode and decode; {self._verdict()}"
        )

    def _verdict(self) -> str:
        if self.breaks_even_bytes_per_s <= 0:
            why = (
                "all ranks gather what each of them sends"
                if self._more_bytes
                else "nothing is saved"
            )
            return f"it pays on no wire: {why}."
        even = _rate(self.breaks_even_bytes_per_s)
        wire = self._wire_bytes_per_s
        if wire is None:
            return f"that pays on wires slower than {even}."
        if wire == inf:
            return (
                "it does not pay here: on one host gradients lie in memory that the server sees, and "
                f"travel nowhere (it would on wires slower than {even})."
            )
        if wire >= self.breaks_even_bytes_per_s:
            return (
                f"it does not pay here: the wire carries {_rate(wire)}, and it would below {even}."
            )
        return f"it pays: the wire carries {_rate(wire)}, and it does below {even}."


def _size(size_bytes: float) -> str:
    megabytes = size_bytes / 1e6
    return f"{megabytes:,.0f} MB" if megabytes >= 100 else f"{megabytes:.3g} MB"


def _rate(bytes_per_s: float) -> str:
    return f"{8 * bytes_per_s / 1e9:.3g} Gb/s"
