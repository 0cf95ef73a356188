"""What a user may try: a strategy, options of the Worker, and a factor on the learning rates, in one line.

    sync accumulate=8
    async lr=0.1x clip_norm=2
    ssp:3 recipe=stable precision=bf16

The options are the Worker's own keywords; ``lr=0.1x`` multiplies every group's learning rate at each
update, so that schedulers go on as the script has them. This module knows what can be said, not what
it does: values that need a model to be checked are checked when a run begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite
from typing import Any

from paceline.compression import parse_compression
from paceline.errors import UsageError, bad_value
from paceline.recipes import parse_recipe
from paceline.strategies import parse_strategy
from paceline.values import exact

LR = "lr"
Option = int | float | str


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """``strategy``: in canonical form. ``options``: (Worker keyword, value), in the order given.

    ``lr_factor``: on every learning rate.
    """

    strategy: str
    options: tuple[tuple[str, Option], ...] = ()
    lr_factor: float = 1.0

    def __str__(self) -> str:
        words = [f"{name}={_text(value)}" for name, value in self.options]
        rate = [] if self.lr_factor == 1.0 else [f"{LR}={_text(self.lr_factor)}x"]
        return " ".join([self.strategy, *words, *rate])

    @property
    def overrides(self) -> dict[str, Option]:
        """The Worker's keywords other than the strategy."""
        return dict(self.options)

    @property
    def accumulate(self) -> int:
        """Micro-batches of a window, as far as the trial says."""
        return int(self.overrides.get("accumulate", 1))


def as_file_name(label: str) -> str:
    """``label`` as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", label).strip("-")


def parse_trial(text: str) -> Trial:
    """The trial that ``text`` says. ``parse_trial(str(x)) == x`` for every ``x``.

    Raises UsageError that lists what can be said, and the nearest word, for text that says none.
    """
    words = text.split()
    if not words or "=" in words[0]:
        raise bad_value("try", text, "a strategy first, then NAME=VALUE, as in 'sync accumulate=8'")
    strategy = str(parse_strategy(words[0]))
    options: dict[str, Option] = {}
    lr_factor = 1.0
    seen: set[str] = set()
    for word in words[1:]:
        name, separator, value = word.partition("=")
        _check_name(text, name, separator)
        if name in seen:
            raise bad_value("try", text, f"{name} once")
        seen.add(name)
        if name == LR:
            lr_factor = _factor(text, value)
        else:
            options[name] = _READERS[name](f"try {text!r}: {name}", value)
    if "accumulate" in options and "global_batch" in options:
        raise UsageError(
            f"try {text!r}: accumulate and global_batch cannot work together: the one follows from "
            "the other. Give one of them."
        )
    return Trial(strategy=strategy, options=tuple(options.items()), lr_factor=lr_factor)


def _check_name(text: str, name: str, separator: str) -> None:
    names = [*_READERS, LR]
    if name in names and separator:
        return
    nearest = get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"The nearest is {nearest[0]!r}." if nearest and nearest[0] != name else ""
    raise bad_value(
        "try", text, f"NAME=VALUE with a name of {', '.join(names)}, not {name!r}", hint
    )


def _factor(text: str, value: str) -> float:
    found = re.fullmatch(r"([\d.eE+-]+)x", value)
    try:
        factor = float(found[1]) if found else 0.0
    except ValueError:
        factor = 0.0
    if not (isfinite(factor) and factor > 0):
        raise bad_value(
            f"try {text!r}: {LR}", value, "a factor > 0 with an x, as in lr=0.1x",
            "It multiplies the script's own rate.",
        )  # fmt: skip
    return factor


def _whole(field: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise bad_value(field, value, "a whole number >= 1")
    return int(value)


def _number(field: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not (isfinite(number) and number > 0):
        raise bad_value(field, value, "a number > 0")
    return number


def _recipe(field: str, value: str) -> str:
    return str(parse_recipe(value))


def _compress(field: str, value: str) -> str:
    return str(parse_compression(value))


def _one_of(*words: str) -> Callable[[str, str], str]:
    def read(field: str, value: str) -> str:
        if value not in words:
            raise bad_value(field, value, "one of " + ", ".join(words))
        return value

    return read


def _loss_scale(field: str, value: str) -> Option:
    return "auto" if value == "auto" else _number(field, value)


_TYPES = _one_of("fp32", "bf16", "fp16")
_READERS: dict[str, Callable[[str, str], Option]] = {
    "accumulate": _whole,
    "global_batch": _whole,
    "clip_norm": _number,
    "precision": _TYPES,
    "batch_norm": _one_of("local", "sync", "freeze"),
    "recipe": _recipe,
    "compress": _compress,
    "health": _whole,
    "loss_scale": _loss_scale,
    "reduce_dtype": _TYPES,
    "accumulate_dtype": _TYPES,
    "evict_after_s": _number,
    "max_skips": _whole,
    "group_size": _whole,
}


def trial_of(request: Mapping[str, Any]) -> Trial | None:
    """The trial that a recorded request (``run.json``) was; None if it left the strategy to the script."""
    strategy = request.get("strategy")
    if strategy is None:
        return None
    return Trial(
        strategy=str(parse_strategy(strategy)),
        options=tuple(request.get("overrides", {}).items()),
        lr_factor=float(request.get("lr_factor", 1.0)),
    )


def _text(value: Option) -> str:
    return exact(value) if isinstance(value, float) else str(value)
