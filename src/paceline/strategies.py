"""The synchronisation strategies a user can name, as frozen values that parse from and print to text.

What each word *does* is decided in :mod:`paceline.policy`; this module only knows what can be said.

====================  ==========================================================
text                  value
====================  ==========================================================
``sync``              ``Sync()``: topology by rule (``worker/topology.py``)
``sync:allreduce``    ``Sync(topology="allreduce")``
``sync:server``       ``Sync(topology="server")``; ``sync:server:continue`` survives deaths
``backup:1``          ``Backup(spares=1)``
``ssp`` ``ssp:3``     ``SSP(staleness=3)``; ``ssp:0`` *is* ``sync:server``
``async``             ``Async()``; ``ssp:inf`` is the same
``async:sum``         ``Async(push_scale="sum")``; likewise ``ssp:3:sum``
``local:8``           ``Local(windows=8)``; ``local:inf`` never exchanges
``diloco:50``         ``DiLoCo(windows=50)``; ``diloco:50:0.7:0.9`` says its outer lr, momentum,
                      ``diloco:50:0.7:0.9:5`` that parameters meet in 5 fragments
``hybrid:async``      ``Hybrid(outer=Async())``: groups, synchronous inside; ``hybrid:ssp:3``
====================  ==========================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from math import inf
from typing import Literal

from paceline.errors import UsageError, bad_value
from paceline.values import exact

Topology = Literal["auto", "allreduce", "server"]
PushScale = Literal["mean", "sum"]
OnDeath = Literal["stop", "continue"]

DEFAULT_STALENESS_CLOCKS = 3
DEFAULT_OUTER_LR = 0.7
DEFAULT_OUTER_MOMENTUM = 0.9
_WITH_A_NUMBER = {"backup": "backup:1", "local": "local:8", "diloco": "diloco:50"}
_OF_DILOCO = ("windows", "outer_lr", "outer_momentum", "fragments")


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
            raise bad_value(
                "backup", _plain(self.spares), "a whole number >= 1", "Plain 'sync' has none."
            )

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
            raise bad_value("ssp", _plain(self.staleness), "a whole number of clocks >= 0, or inf")
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Local:
    """Local SGD (Stich, ICLR 2019): each worker steps its own optimizer, and every ``windows`` windows
    the workers' parameters become their mean, by samples; ``math.inf``: never, replicas drift."""

    windows: float

    def __post_init__(self) -> None:
        _check_windows("local", self.windows)

    def __str__(self) -> str:
        return f"local:{_whole(self.windows)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class DiLoCo:
    """DiLoCo (Douillard et al., 2023): as :class:`Local`, but the mean of how far the workers moved is
    the gradient of an outer SGD with Nesterov momentum, which makes the step.

    ``fragments`` P: the parameters meet in P equal parts, another one every ``windows`` / P windows
    (Streaming DiLoCo, Douillard et al., 2025)."""

    windows: float
    outer_lr: float = DEFAULT_OUTER_LR
    outer_momentum: float = DEFAULT_OUTER_MOMENTUM
    fragments: float = 1

    def __post_init__(self) -> None:
        _check_windows("diloco", self.windows)
        if self.windows == inf:
            raise bad_value(
                "diloco", inf, "a whole number of windows", "'local:inf' never exchanges."
            )
        if not 0 < self.outer_lr < inf:
            raise bad_value("diloco's outer lr", self.outer_lr, "a number > 0")
        if not 0 <= self.outer_momentum < 1:
            raise bad_value("diloco's outer momentum", self.outer_momentum, "a number in [0, 1)")
        _check_fragments(self.windows, self.fragments)

    def __str__(self) -> str:
        own: tuple[float, ...] = (self.outer_lr, self.outer_momentum)
        usual = (DEFAULT_OUTER_LR, DEFAULT_OUTER_MOMENTUM)
        if self.fragments > 1:
            own = (*own, self.fragments)
        said = "" if own == usual else ":".join(["", *map(exact, own)])
        return f"diloco:{_whole(self.windows)}{said}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Hybrid:
    """Workers of one node are a group that is synchronous inside; groups run ``outer`` against the
    server, one push per group."""

    outer: SSP

    def __str__(self) -> str:
        return f"hybrid:{self.outer}"


Strategy = Sync | Backup | SSP | Local | DiLoCo | Hybrid


def parse_strategy(text: str | Strategy) -> Strategy:
    """The strategy that ``text`` names. ``parse_strategy(str(x)) == x`` for every printable ``x``.

    Raises :class:`UsageError` that lists the words, for text that names none.
    """
    if not isinstance(text, str):
        return text
    word, *rest = text.strip().lower().split(":")
    if word == "hybrid":
        return Hybrid(outer=_outer(text, ":".join(rest)))
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
    if word == "local" and len(rest) == 1:
        return Local(windows=_number(text, rest[0]))
    if word == "diloco" and 1 <= len(rest) <= 4:
        numbers = [_number(text, part) for part in rest]
        return DiLoCo(**dict(zip(_OF_DILOCO, numbers, strict=False)))
    raise bad_value(
        "strategy",
        text,
        "sync, sync:allreduce, sync:server, backup:1, ssp:3, ssp:inf, async, hybrid:async, local:8, "
        "local:inf or diloco:50",
        _nearest(word, rest),
    )


def _nearest(word: str, rest: list[str]) -> str:
    """What may have been meant, in a question; "" if nothing is near."""
    if word in _WITH_A_NUMBER and not any(rest):
        return f"Add the number: {_WITH_A_NUMBER[word]!r}."
    names = ("sync", "backup", "ssp", "async", "hybrid", "local", "diloco")
    near = get_close_matches(word, names, n=1)
    if not near or near[0] == word:
        return ""
    meant = ":".join([near[0], *rest]) if rest else _WITH_A_NUMBER.get(near[0], near[0])
    return f"Did you mean {meant!r}?"


def outer_of(strategy: Strategy) -> Sync | Backup | SSP | Local | DiLoCo:
    """What those who push to the server run: the groups of a hybrid, else the workers."""
    return strategy.outer if isinstance(strategy, Hybrid) else strategy


def is_joint(strategy: Strategy) -> bool:
    """Whether updates join a round of workers (sync, backup, ssp:0) instead of one push each."""
    strategy = outer_of(strategy)
    return not isinstance(strategy, SSP) or strategy.staleness == 0


def needs_everyone(strategy: Strategy) -> bool:
    """Whether an update is of all workers, and the run ends when one is lost."""
    strategy = outer_of(strategy)
    halts = not isinstance(strategy, Sync) or strategy.on_death == "stop"
    return is_joint(strategy) and not isinstance(strategy, Backup) and halts


def is_dealt(strategy: Strategy) -> bool:
    """Whether every live worker is in every round, so that nothing moves while one is between two."""
    strategy = outer_of(strategy)
    return is_joint(strategy) and not isinstance(strategy, Backup)


def windows_apart(strategy: Strategy) -> float:
    """Windows between two exchanges of a worker with the others; 1 but for :class:`Local`, DiLoCo."""
    return strategy.windows / fragments_of(strategy) if isinstance(strategy, Local | DiLoCo) else 1


def fragments_of(strategy: Strategy) -> int:
    """In how many parts, one an exchange, the parameters meet."""
    return int(strategy.fragments) if isinstance(strategy, DiLoCo) else 1


def drifts(strategy: Strategy) -> bool:
    """Whether workers step optimizers of their own, so that models differ between two exchanges."""
    return isinstance(strategy, Local | DiLoCo)


def _check_windows(word: str, windows: float) -> None:
    if windows != inf and (not float(windows).is_integer() or windows < 1):
        raise bad_value(
            word,
            _plain(windows),
            "a whole number of windows >= 1",
            f"As in {_WITH_A_NUMBER[word]!r}.",
        )


def _check_fragments(windows: float, fragments: float) -> None:
    """One an exchange, and all exchanges equally far apart."""
    if not float(fragments).is_integer() or fragments < 1:
        raise bad_value(
            "diloco's fragments", _plain(fragments), "a whole number >= 1", "1: all at once."
        )
    if windows % fragments:
        near = max(fragments, fragments * round(windows / fragments))
        raise bad_value(
            "diloco's fragments", int(fragments), f"a number that divides the {_whole(windows)} windows",
            f"With {_whole(near)} windows one of them would meet every {_whole(near / fragments)}.",
        )  # fmt: skip


def _whole(windows: float) -> str:
    return "inf" if windows == inf else str(int(windows))


def _plain(number: float) -> float:
    """As it was typed: 0, not 0.0."""
    return int(number) if float(number).is_integer() else number


def _outer(text: str, rest: str) -> SSP:
    """What a hybrid's groups run. Raises UsageError if that is no strategy of single pushes."""
    outer = parse_strategy(rest) if rest else None
    if not isinstance(outer, SSP):
        raise bad_value(
            "strategy",
            text,
            "hybrid:async or hybrid:ssp:3",
            "What follows 'hybrid:' is what groups do.",
        )
    return outer


def _number(text: str, part: str) -> float:
    try:
        return float(part)
    except ValueError:
        word = text.strip().lower().removeprefix("hybrid:").partition(":")[0]
        example = _WITH_A_NUMBER.get(word, "ssp:3")
        raise bad_value("strategy", text, f"a number, not {part!r}, as in {example!r}") from None


def _check(field: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise bad_value(field, value, "one of " + ", ".join(map(repr, allowed)))
