"""The synchronisation strategies a user can name, as frozen values that parse from and print to text.

What each word *does* is decided in :mod:`paceline.policy`; this module only knows what can be said.

====================  ==========================================================
text                  value
====================  ==========================================================
``sync``              ``Sync()``: topology by rule (see :func:`paceline.launch`)
``sync:allreduce``    ``Sync(topology="allreduce")``
``sync:server``       ``Sync(topology="server")``; ``sync:server:continue`` survives deaths
``backup:1``          ``Backup(spares=1)``
``ssp`` ``ssp:3``     ``SSP(staleness=3)``; ``ssp:0`` *is* ``sync:server``
``async``             ``Async()``; ``ssp:inf`` is the same
``async:sum``         ``Async(push_scale="sum")``; likewise ``ssp:3:sum``
====================  ==========================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from paceline.errors import UsageError, bad_value

Topology = Literal["auto", "allreduce", "server"]
PushScale = Literal["mean", "sum"]
OnDeath = Literal["stop", "continue"]

DEFAULT_STALENESS_CLOCKS = 3
PLANNED = {"hybrid": "grouped workers", "local": "local SGD", "diloco": "DiLoCo"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sync:
    """Every update is the weighted mean over all workers.

    ``topology``: ``"allreduce"`` (collectives), ``"server"``, or ``"auto"`` (one host and a CPU
    model: server; otherwise all-reduce). ``on_death="continue"`` needs the server.
    """

    topology: Topology = "auto"
    on_death: OnDeath = "stop"

    def __post_init__(self) -> None:
        _check("topology", self.topology, ("auto", "allreduce", "server"))
        _check("on_death", self.on_death, ("stop", "continue"))
        if self.on_death == "continue" and self.topology != "server":
            raise bad_value(
                "on_death",
                self.on_death,
                f"'stop' with topology={self.topology!r}",
                "Collectives cannot lose a rank; use Sync(topology='server', on_death='continue').",
            )

    def __str__(self) -> str:
        if self.on_death == "continue":
            return f"sync:{self.topology}:continue"
        return "sync" if self.topology == "auto" else f"sync:{self.topology}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Backup:
    """Each round updates on the first ``N - spares`` pushes; later ones are dropped and counted."""

    spares: float = 1

    def __post_init__(self) -> None:
        if not float(self.spares).is_integer() or self.spares < 1:
            raise bad_value("backup", self.spares, "a whole number >= 1", "Plain 'sync' has none.")

    def __str__(self) -> str:
        return f"backup:{int(self.spares)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SSP:
    """Stale synchronous parallel (Ho et al., NIPS 2013): start iff clock - slowest <= ``staleness``.

    ``staleness`` in clocks; ``math.inf`` is :func:`Async`. ``push_scale``: ``"mean"`` scales the
    step by the worker's share of the weight, ``"sum"`` makes each push a full step.
    """

    staleness: float = DEFAULT_STALENESS_CLOCKS
    push_scale: PushScale = "mean"

    def __post_init__(self) -> None:
        _check("push_scale", self.push_scale, ("mean", "sum"))
        whole = self.staleness == inf or float(self.staleness).is_integer()
        if not whole or self.staleness < 0:
            raise bad_value("ssp", self.staleness, "a whole number of clocks >= 0, or inf")
        if self.staleness == 0 and self.push_scale == "sum":
            raise UsageError(
                "ssp:0 and push_scale='sum' cannot work together: ssp:0 is sync, one update per "
                "round. Use 'ssp:0', or 'ssp:1:sum'."
            )

    def __str__(self) -> str:
        name = "async" if self.staleness == inf else f"ssp:{int(self.staleness)}"
        return name if self.push_scale == "mean" else f"{name}:{self.push_scale}"


def Async(*, push_scale: PushScale = "mean") -> SSP:  # noqa: N802 - reads as the strategy's name
    """Every push is applied on arrival: SSP without a bound, on the same code path."""
    return SSP(staleness=inf, push_scale=push_scale)


Strategy = Sync | Backup | SSP


def parse_strategy(text: str | Strategy) -> Strategy:
    """The strategy that ``text`` names. ``parse_strategy(str(x)) == x`` for every printable ``x``.

    Raises :class:`UsageError` that lists the words, for text that names none.
    """
    if not isinstance(text, str):
        return text
    word, *rest = text.strip().lower().split(":")
    if word in PLANNED:
        raise UsageError(f"strategy={text!r}: planned ({PLANNED[word]}), not built yet.")
    if word == "sync" and len(rest) <= 2:
        fields = dict(zip(("topology", "on_death"), rest, strict=False))
        return Sync(**fields)  # type: ignore[arg-type]
    if word == "backup" and len(rest) == 1:
        return Backup(spares=_number(text, rest[0]))
    if word == "async" and len(rest) <= 1:
        return Async(push_scale=rest[0] if rest else "mean")  # type: ignore[arg-type]
    if word == "ssp" and len(rest) <= 2:
        staleness = _number(text, rest[0]) if rest else DEFAULT_STALENESS_CLOCKS
        return SSP(staleness=staleness, push_scale=rest[1] if len(rest) == 2 else "mean")  # type: ignore[arg-type]
    raise bad_value(
        "strategy", text, "sync, sync:allreduce, sync:server, backup:1, ssp:3, ssp:inf or async"
    )


def is_joint(strategy: Strategy) -> bool:
    """Whether updates join a round of workers (sync, backup, ssp:0) instead of one push each."""
    return not isinstance(strategy, SSP) or strategy.staleness == 0


def needs_everyone(strategy: Strategy) -> bool:
    """Whether an update is of all workers, and the run ends when one is lost."""
    halts = not isinstance(strategy, Sync) or strategy.on_death == "stop"
    return is_joint(strategy) and not isinstance(strategy, Backup) and halts


def is_dealt(strategy: Strategy) -> bool:
    """Whether every live worker is in every round, so that nothing moves while one is between two."""
    return is_joint(strategy) and not isinstance(strategy, Backup)


def _number(text: str, part: str) -> float:
    try:
        return float(part)
    except ValueError:
        raise bad_value("strategy", text, "a number after the colon, as in 'ssp:3'") from None


def _check(field: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise bad_value(field, value, "one of " + ", ".join(map(repr, allowed)))
