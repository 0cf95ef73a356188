"""What all live workers settle together: small facts, rank 0's bytes, a pooled mean.

Every meeting carries the name of the call that led to it, so that workers whose scripts went
different ways get an error that names both calls instead of waiting for each other. Knows the
plane's ``gather`` only; no tensors, no loaders.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from paceline.errors import MismatchError, PeerLostError
from paceline.worker.plane import Plane

_TAG = "worker"
_CHUNK_BYTES = 8 * 2**20


class Agreement:
    """Meetings of the live workers. Every method must be called by all of them."""

    def __init__(self, plane: Plane, *, rank: int) -> None:
        self._plane = plane
        self._rank = rank

    def gather(self, call: str, **facts: Any) -> list[dict[str, Any]]:
        """The ``facts`` of all live workers in rank order; each also holds ``call`` and ``rank``.

        Raises MismatchError if a worker arrives here from another call.
        """
        message = {"call": call, "rank": self._rank, **facts}
        replies = self._plane.gather(_TAG, msgspec.msgpack.encode(message))
        everyone = [msgspec.msgpack.decode(reply) for reply in replies]
        _refuse_different_calls(everyone)
        return everyone

    def share(self, call: str, payload: bytes | None) -> bytes:
        """The bytes of the one worker whose ``payload`` is not None, on all of them."""
        received = bytearray()
        offset = 0
        while True:
            part = None if payload is None else payload[offset : offset + _CHUNK_BYTES]
            offset += _CHUNK_BYTES
            more = payload is not None and offset < len(payload)
            sent = [
                fact for fact in self.gather(call, part=part, more=more) if fact["part"] is not None
            ]
            if not sent:
                raise PeerLostError(f"The worker that was sending its data for {call} is gone.")
            received += sent[0]["part"]
            if not sent[0]["more"]:
                return bytes(received)

    def any(self, call: str, flag: bool) -> bool:
        """Whether any live worker's ``flag`` is set."""
        return any(fact["flag"] for fact in self.gather(call, flag=flag))

    def mean(self, value: float, weight: float) -> tuple[float, int]:
        """sum(value * weight) / sum(weight) over live workers, and how many they were.

        The sums are exactly rounded, so that every rank gets the same bits; NaN if all are weightless.
        """
        facts = self.gather("worker.mean", value=value, weight=weight)
        return pooled_mean([(fact["value"], fact["weight"]) for fact in facts]), len(facts)


def pooled_mean(pairs: Sequence[tuple[float, float]]) -> float:
    """The weighted mean of ``(value, weight)`` pairs; pairs of weight 0 say nothing."""
    counted = [(value, weight) for value, weight in pairs if weight > 0]
    total = math.fsum(weight for _, weight in counted)
    if total == 0:
        return math.nan
    if len(counted) == 1:
        return counted[0][0]
    return math.fsum(value * weight for value, weight in counted) / total


def require_equal(everyone: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> None:
    """Raise MismatchError at the first of ``names`` (field -> remedy) whose values differ."""
    first = everyone[0]
    for name, remedy in names.items():
        for other in everyone[1:]:
            if other[name] != first[name]:
                raise MismatchError(
                    f"{name} differs between ranks: {first[name]!r} on rank {first['rank']}, "
                    f"{other[name]!r} on rank {other['rank']}. {remedy}"
                )


def _refuse_different_calls(everyone: Sequence[Mapping[str, Any]]) -> None:
    first = everyone[0]
    for other in everyone[1:]:
        if other["call"] != first["call"]:
            raise MismatchError(
                f"The ranks' scripts went different ways: rank {first['rank']} is in "
                f"{first['call']}, rank {other['rank']} in {other['call']}. Both must be called by "
                "every rank; inside the training loop evaluate() may be called by one."
            )
