"""What compression saved, and what it took: counted push by push, said in one sentence. Knows no tensor."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from paceline.gradients.codecs.joining import Sent

PROBE_BYTES = 2**20
"""What is shorter does not show what a wire carries: latency, and TCP's slow start."""


_UNFINISHED = (
    "the warm-up was not over, so this does not show whether it pays: train for longer, or shorten it to "
    "see (as in topk:0.01,warmup=5)."
)


class Account:
    """``sizes_bytes``: of each parameter's gradient, whole. ``wire_bytes_per_s``: what uncompressed
    gradients would travel at; inf where they need not travel, None if nobody knows. ``rank``: whose
    account stands for all."""

    def __init__(
        self,
        sizes_bytes: Sequence[int],
        wire_bytes_per_s: float | None = None,
        *,
        rank: int = 0,
    ) -> None:
        self.rank = rank
        self._sizes_bytes = sizes_bytes
        self._wire_bytes_per_s = wire_bytes_per_s
        self._pulls = 0
        self._pulled_bytes = 0
        self._pulled_whole_bytes = 0
        self._pulling_s = 0.0
        self.pushes = 0
        self.sent_bytes = 0
        self.whole_bytes = 0
        self.coding_s = 0.0
        self._told_s = 0.0
        self._more_bytes = 0.0
        self._warmed_up, self._began_cold = True, False

    def warm(self, share: float) -> None:
        """Of the warm-up ``share`` (1: all) is over as the next push is encoded."""
        self._warmed_up = share >= 1.0
        self._began_cold = self._began_cold or not self._warmed_up

    def packed(self, sent_bytes: int | None, used: bytes, took_s: float) -> None:
        """A push of ``sent_bytes`` (None: whole) was made of the gradients of the ``used`` parameters, in
        ``took_s`` for encoding it and for decoding it once (whoever receives it does the same)."""
        whole_bytes = sum(s for s, one in zip(self._sizes_bytes, used, strict=True) if one)
        self.pushes += 1
        self.sent_bytes += whole_bytes if sent_bytes is None else sent_bytes
        self.whole_bytes += whole_bytes
        self.coding_s += took_s

    def pulled(self, came_bytes: int, whole_bytes: int, took_s: float) -> None:
        """Parameters of ``whole_bytes`` came as a difference; ``took_s``: making it and adding it."""
        self._pulls += 1
        self._pulled_bytes += came_bytes
        self._pulled_whole_bytes += whole_bytes
        self._pulling_s += took_s

    def carried(self, size_bytes: int, took_s: float) -> None:
        """So many bytes came in one piece: the fastest show what the wire carries, as whatever else
        happens only adds to a time."""
        if size_bytes >= PROBE_BYTES and took_s > 0:
            self._wire_bytes_per_s = max(self._wire_bytes_per_s or 0.0, size_bytes / took_s)

    def joined(self, sent: Sent, took_s: float) -> None:
        """Gradients were joined by collectives, which left ``took_s`` for encoding and decoding."""
        self.pushes += 1
        self.sent_bytes += sent.sent_bytes
        self.whole_bytes += sent.whole_bytes
        self._more_bytes += sent.wire_bytes - sent.sent_bytes
        self.coding_s += took_s

    def take_coding_s(self) -> float:
        """What encoding and decoding took since the last call, pulls included."""
        told_s, self._told_s = self._told_s, self.coding_s + self._pulling_s
        return self._told_s - told_s

    @property
    def breaks_even_bytes_per_s(self) -> float:
        """A slower wire takes longer for what is saved than coding does (docs/compression.md)."""
        saved = self.whole_bytes - self.sent_bytes - self._more_bytes
        saved += self._pulled_whole_bytes - self._pulled_bytes
        coding_s = self.coding_s + self._pulling_s
        return saved / coding_s if coding_s > 0 else inf

    def sentence(self, name: str) -> str:
        """For the run's end; "" if nothing was compressed."""
        if not self.pushes:
            return ""
        said = f"compress={name}: {self.pushes:,} pushes of rank {self.rank} had "
        more = ", warm-up included" if self._began_cold else ""
        said += _instead(self.sent_bytes, self.whole_bytes, more)
        said += _coding(self.coding_s, self.pushes)
        if self._pulls:
            said += f"; {self._pulls:,} pulls had "
            said += _instead(self._pulled_bytes, self._pulled_whole_bytes)
            said += _coding(self._pulling_s, self._pulls)
        if self.coding_s == 0:  # a simulated clock stands still meanwhile
            return said + "."
        return f"{said}; {self._verdict() if self._warmed_up else _UNFINISHED}"

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


def _instead(came_bytes: float, whole_bytes: float, more: str = "") -> str:
    share = came_bytes / whole_bytes
    return f"{_size(came_bytes)} instead of {_size(whole_bytes)} ({share:.2%}{more})"


def _coding(took_s: float, times: int) -> str:
    return f" and took {1000 * took_s / times:.3g} ms each to encode and decode" if took_s else ""


def _size(size_bytes: float) -> str:
    megabytes = size_bytes / 1e6
    return f"{megabytes:,.0f} MB" if megabytes >= 100 else f"{megabytes:.3g} MB"


def _rate(bytes_per_s: float) -> str:
    return f"{8 * bytes_per_s / 1e9:.3g} Gb/s"
