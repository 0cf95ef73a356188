"""How gradients can be compressed, as frozen values that parse from and print to text.

What a codec *does* is decided in :mod:`paceline.gradients.codecs`, what it costs in
:mod:`paceline.payloads`; this module only knows what can be said.

=============================  ===================================================================
text                           value
=============================  ===================================================================
``topk:0.01``                  the largest 1 % of each matrix (Aji and Heafield, EMNLP 2017)
``randomk:0.01``               1 % drawn alike on all ranks (Stich et al., NeurIPS 2018)
``powersgd:4``                 a product of rank 4 (Vogels et al., NeurIPS 2019)
``int8``                       8 bits a value and a scale a block (Dettmers, ICLR 2016)
``sign``                       1 bit a value and a scale a matrix (Karimireddy et al., ICML 2019)
``topk:0.01,warmup=500``       options follow after commas: ``warmup=500``, ``feedback=off``,
                               ``pull=int8`` (or ``sign``, ``topk:0.01``: what comes back from the
                               server), and ``seed=7`` of ``randomk``
=============================  ===================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from paceline.errors import UsageError, bad_value
from paceline.values import exact

WARMUP_UPDATES = 100
WORDS = "topk:0.01, randomk:0.01, powersgd:4, int8 or sign"


@dataclass(frozen=True, kw_only=True, slots=True)
class TopK:
    """The ``density`` (a share of 1) of values that are largest in magnitude."""

    density: float = 0.01

    def __post_init__(self) -> None:
        _check_density("topk", self.density)

    def __str__(self) -> str:
        return f"topk:{exact(self.density)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomK:
    """A ``density`` (a share of 1) of values, drawn anew each time by ``seed``, alike on all ranks."""

    density: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        _check_density("randomk", self.density)
        if not isinstance(self.seed, int) or not 0 <= self.seed < 2**31:
            raise bad_value("compress: seed", self.seed, "a whole number from 0 to 2**31 - 1")

    def __str__(self) -> str:
        return f"randomk:{exact(self.density)}" + (f",seed={self.seed}" if self.seed else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class PowerSGD:
    """A matrix as a product of two of ``rank`` columns."""

    rank: int = 4

    def __post_init__(self) -> None:
        if not isinstance(self.rank, int) or self.rank < 1:
            raise bad_value("compress: powersgd", self.rank, "a whole number of columns >= 1")

    def __str__(self) -> str:
        return f"powersgd:{self.rank}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Int8:
    """8 bits a value."""

    def __str__(self) -> str:
        return "int8"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sign:
    """1 bit a value."""

    def __str__(self) -> str:
        return "sign"


@dataclass(frozen=True, kw_only=True, slots=True)
class Own:
    """An object of the user's with the four methods of :class:`paceline.gradients.codecs.codec.Codec`."""

    codec: Any

    def __str__(self) -> str:
        return type(self.codec).__name__


Method = TopK | RandomK | PowerSGD | Int8 | Sign | Own
PULLS = "topk:0.01, int8 or sign"
METHODS_OF_A_CODEC = ("encode", "decode", "payload_bytes", "summable")


@dataclass(frozen=True, kw_only=True, slots=True)
class Compression:
    """``warmup``: updates over which ``method`` comes in (densities fall from 1, geometrically, as in
    Deep Gradient Compression, Lin et al., ICLR 2018; a product starts after them); an update is as many
    batches as a window of every worker has. ``feedback``: what is withheld is added to the next gradient.
    ``pull``: what comes back to a worker on another host, parameters as differences to those it has;
    None: they come whole.
    """

    method: Method
    warmup: int
    feedback: bool = True
    pull: Method | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.pull, TopK | Int8 | Sign | None):
            raise bad_value(
                "compress: pull", str(self.pull), PULLS,
                "Both sides have to add the same bits, which others do not promise on unlike processors.",
            )  # fmt: skip
        if not isinstance(self.warmup, int) or isinstance(self.warmup, bool) or self.warmup < 0:
            raise bad_value("compress: warmup", self.warmup, "a whole number of updates >= 0")
        if self.warmup and not default_warmup(self.method):
            raise UsageError(
                f"{self.method} and warmup={self.warmup} cannot work together: {self.method} sends "
                "every value, so there is nothing to come in slowly. Leave warmup out."
            )

    def __str__(self) -> str:
        said = [str(self.method)]
        if self.warmup != default_warmup(self.method):
            said.append(f"warmup={self.warmup}")
        if not self.feedback:
            said.append("feedback=off")
        if self.pull is not None:
            said.append(f"pull={self.pull}")
        return ",".join(said)

    def of_pulls(self) -> Compression | None:
        """How parameters come back, with the same warm-up where there is any; None: whole."""
        if self.pull is None:
            return None
        return Compression(method=self.pull, warmup=self.warmup if default_warmup(self.pull) else 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmUpShare:
    """How much of the warm-up over ``updates`` updates of ``workers`` windows each is over."""

    updates: int
    workers: int

    def at(self, progress: int, window: int) -> float:
        """After ``progress`` loader batches, ``window`` of which are a window."""
        done = progress / (self.workers * window)
        return min(1.0, done / self.updates) if self.updates else 1.0


def default_warmup(method: Method) -> int:
    """In updates. 0 where there is nothing that could come in slowly."""
    return 0 if isinstance(method, Int8 | Sign | Own) else WARMUP_UPDATES


def parse_compression(text: Any) -> Compression | None:
    """The compression that ``text`` names. ``parse_compression(str(x)) == x`` for every ``x``.

    Raises UsageError that lists the words, for text that names none.
    """
    if text is None or isinstance(text, Compression):
        return text
    if isinstance(text, Method):
        return Compression(method=text, warmup=default_warmup(text))
    if not isinstance(text, str):
        return Compression(method=_own(text), warmup=0)
    word, *options = text.lower().replace(" ", "").split(",")
    chosen = Compression(method=(found := _method(text, word)), warmup=default_warmup(found))
    for option in options:
        chosen = _with(chosen, text, option)
    return chosen


def at(compression: Compression, share: float) -> Method | None:
    """What holds when a ``share`` (0 to 1) of the warm-up is over; None: everything is sent whole."""
    method = compression.method
    if share >= 1:
        return method
    if isinstance(method, TopK | RandomK):
        return replace(method, density=method.density**share)
    return None


def _own(given: Any) -> Own:
    missing = [name for name in METHODS_OF_A_CODEC if not callable(getattr(given, name, None))]
    if missing:
        raise bad_value(
            "compress", given, f"None, {WORDS}",
            f"An object of yours needs methods {', '.join(METHODS_OF_A_CODEC)}; "
            f"this one lacks {', '.join(missing)}.",
        )  # fmt: skip
    return Own(codec=given)


def _method(text: str, word: str) -> Method:
    name, _, number = word.partition(":")
    if name == "topk":
        return TopK(density=_number(text, number)) if number else TopK()
    if name == "randomk":
        return RandomK(density=_number(text, number)) if number else RandomK()
    if name == "powersgd" and (not number or number.isdecimal()):
        return PowerSGD(rank=int(number)) if number else PowerSGD()
    if word == "int8":
        return Int8()
    if word == "sign":
        return Sign()
    raise bad_value("compress", text, WORDS, "None switches compression off.")


def _with(chosen: Compression, text: str, option: str) -> Compression:
    key, _, value = option.partition("=")
    changes: dict[str, Any] = {}
    if key == "warmup" and value.isdecimal():
        changes["warmup"] = int(value)
    elif key == "feedback" and value in ("on", "off"):
        changes["feedback"] = value == "on"
    elif key == "seed" and value.isdecimal() and isinstance(chosen.method, RandomK):
        changes["method"] = replace(chosen.method, seed=int(value))
    elif key == "pull" and value:
        changes["pull"] = _method(text, value)
    else:
        allowed = "warmup=500, feedback=off, pull=int8, or seed=7 (of randomk) after the comma"
        raise bad_value("compress", text, allowed)
    return replace(chosen, **changes)


def _number(text: str, part: str) -> float:
    try:
        return float(part)
    except ValueError:
        raise bad_value("compress", text, "a number after the colon, as in 'topk:0.01'") from None


def _check_density(name: str, density: object) -> None:
    if not isinstance(density, int | float) or not 0 < density <= 1:
        remedy = "0.01 sends one value of a hundred."
        raise bad_value(f"compress: {name}", density, "a density > 0 and <= 1", remedy)
