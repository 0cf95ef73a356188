"""What compression saved, and what it took: counted push by push, said at the end. Pure."""

from __future__ import annotations

from collections.abc import Sequence


class Account:
    """``sizes_bytes``: of each parameter's gradient, whole."""

    def __init__(self, sizes_bytes: Sequence[int]) -> None:
        self._sizes_bytes = sizes_bytes
        self.pushes = 0
        self.sent_bytes = 0
        self.whole_bytes = 0
        self.encoding_s = 0.0

    def packed(self, sent_bytes: int, used: bytes, took_s: float) -> None:
        """A push of ``sent_bytes`` was made of the gradients of the ``used`` parameters."""
        self.pushes += 1
        self.sent_bytes += sent_bytes
        self.whole_bytes += sum(s for s, one in zip(self._sizes_bytes, used, strict=True) if one)
        self.encoding_s += took_s

    @property
    def breaks_even_bytes_per_s(self) -> float:
        """On a slower link than this it pays: what it saves takes longer there than encoding does."""
        saved = self.whole_bytes - self.sent_bytes
        return saved / self.encoding_s if self.encoding_s > 0 else float("inf")
