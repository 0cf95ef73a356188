"""What the user asked for, checked once and frozen. Knows no process group, plane or tensor.

The Worker's keywords and the launcher's overrides become one :class:`Options`. What of them cannot work
together is decided in :mod:`paceline.policy.pairings`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from paceline.compression import Compression, parse_compression
from paceline.errors import UsageError, bad_value
from paceline.gradients.precision.choice import AUTO, Choice, choice_from
from paceline.policy.pairings import Pairing, refuse_pairing
from paceline.recipes import PLAIN_RECIPE, Recipe, parse_recipe
from paceline.strategies import SSP, Strategy, is_joint, outer_of, parse_strategy
from paceline.worker.norm_modes import NormMode, norm_mode

DEFAULT_EVICT_AFTER_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """Details of a run. ``evict_after_s``: silence after which a worker counts as lost, in seconds.

    ``out``: directory for the trace (None: the launcher's, or no trace). ``max_skips``: so many windows
    in a row that are skipped because their gradient is not finite end the run. ``key``: file of the key
    that the hosts of a run share (`paceline key`), for launchers other than `paceline run`.
    """

    evict_after_s: float = DEFAULT_EVICT_AFTER_S
    out: Path | str | None = None
    max_skips: int = 20
    key: Path | str | None = None

    def __post_init__(self) -> None:
        value = self.evict_after_s
        if not isinstance(value, int | float) or not value >= 1:
            raise bad_value("evict_after_s", value, "seconds >= 1 (heartbeats come once a second)")
        _check_whole("max_skips", self.max_skips)


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The Worker's keywords after checking. ``accumulate`` is None while ``global_batch`` rules.

    ``overridden``: names that the launcher's command line set, with the values it set. ``health``: every
    how many windows gradients are looked at, 0 for never. ``group_size``: workers of a hybrid's group,
    None for those of a node.
    """

    strategy: Strategy
    accumulate: int | None
    global_batch: int | None
    clip_norm: float | None
    runtime: Runtime
    overridden: Mapping[str, Any]
    batch_norm: NormMode = "local"
    types: Choice = field(default_factory=Choice)
    health: int = 0
    recipe: Recipe = PLAIN_RECIPE
    compress: Compression | None = None
    group_size: int | None = None

    def window(self, *, batch: float, world_size: int) -> int:
        """Micro-batches per push, for loader batches of ``batch`` samples.

        Raises UsageError if ``global_batch`` is no multiple of ``world_size * batch``.
        """
        if self.accumulate is not None:
            return self.accumulate
        assert self.global_batch is not None
        round_samples = int(batch) * world_size
        if round_samples < 1 or self.global_batch % round_samples:
            raise bad_value(
                "global_batch",
                self.global_batch,
                f"a multiple of {world_size} workers x batch {batch:g} = {round_samples}",
                _nearest(self.global_batch, round_samples),
            )
        return self.global_batch // round_samples


def options_from(keywords: Mapping[str, Any], overrides: Mapping[str, Any]) -> Options:
    """The Options that the Worker's ``keywords`` and the launcher's ``overrides`` make together.

    Raises UsageError for an unknown, impossible or contradictory value.
    """
    chosen, runtime = _overridden(dict(keywords), overrides)
    accumulate, global_batch = chosen["accumulate"], chosen["global_batch"]
    _check_whole("accumulate", accumulate)
    if global_batch is not None:
        _check_whole("global_batch", global_batch)
        if accumulate != 1:
            raise UsageError(
                f"accumulate={accumulate} and global_batch={global_batch} cannot work together: "
                "global_batch decides how many micro-batches a window has. Give one of them."
            )
    return Options(
        strategy=parse_strategy(chosen["strategy"]),
        accumulate=accumulate if global_batch is None else None,
        global_batch=global_batch,
        clip_norm=_clip_norm(chosen["clip_norm"]),
        runtime=runtime,
        overridden=dict(overrides),
        batch_norm=norm_mode(chosen["batch_norm"]),
        types=choice_from(
            precision=chosen["precision"],
            loss_scale=chosen.get("loss_scale", AUTO),
            reduce_dtype=chosen.get("reduce_dtype"),
            accumulate_dtype=chosen.get("accumulate_dtype"),
        ),
        health=_health(chosen["health"]),
        recipe=parse_recipe(chosen["recipe"]),
        compress=parse_compression(chosen["compress"]),
        group_size=_group_size(chosen.get("group_size")),
    )


def check_pairings(
    options: Options, *, world_size: int, optimizer_name: str, collectives: bool = True
) -> None:
    """Refuse what cannot work together whatever the model is, naming the two and why (UsageError)."""
    refuse_pairing(
        Pairing(
            strategy=options.strategy,
            workers=world_size,
            compress=options.compress,
            reduce_dtype=options.types.reduce_dtype,
            group_size=options.group_size,
            global_batch=options.global_batch,
            optimizer=optimizer_name,
            collectives=collectives,
        )
    )


def known_trouble(
    strategy: Strategy, *, world_size: int, optimizer: Any, recipe: Recipe = PLAIN_RECIPE
) -> str:
    """What is known to happen under this pairing with the plain recipe, or "" if nothing is."""
    if world_size == 1 or is_joint(strategy) or recipe != PLAIN_RECIPE:
        return ""
    strategy = outer_of(strategy)
    assert isinstance(strategy, SSP)
    moving = any(
        group.get("momentum") or "betas" in group or group.get("momentum_decay")
        for group in optimizer.param_groups
    )
    if not moving:
        return ""
    name = type(optimizer).__name__
    return (
        f"{strategy} with {name}: all workers' pushes share one momentum (moments) on the server, "
        "which acts like a larger learning rate; if the loss jumps, lower lr or momentum, "
        "tighten the bound (ssp:1, ssp:0), or say recipe='stable'."
    )


def _overridden(
    keywords: dict[str, Any], overrides: Mapping[str, Any]
) -> tuple[dict[str, Any], Runtime]:
    runtime = keywords.pop("runtime")
    if not isinstance(runtime, Runtime):
        raise bad_value("runtime", runtime, "a paceline.Runtime, as in Runtime(evict_after_s=30)")
    details = {field.name for field in fields(Runtime)}
    for name, value in overrides.items():
        if name in details:
            runtime = replace(runtime, **{name: value})
        elif name in keywords:
            keywords[name] = value
        else:
            raise bad_value("override", name, "one of " + ", ".join([*keywords, *sorted(details)]))
    # The two name the same thing: the command line's word replaces the script's.
    if "accumulate" in overrides and "global_batch" not in overrides:
        keywords["global_batch"] = None
    if "global_batch" in overrides and "accumulate" not in overrides:
        keywords["accumulate"] = 1
    return keywords, runtime


def _check_whole(field: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise bad_value(field, value, "a whole number >= 1")


def _clip_norm(value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or not 0 < value < math.inf:
        raise bad_value("clip_norm", value, "a number > 0", "None switches clipping off.")
    return float(value)


def _health(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise bad_value(
            "health", value, "True, False, or every how many windows", "10 costs little."
        )
    return int(value)


def _group_size(value: Any) -> int | None:
    if value is None:
        return None
    _check_whole("group_size", value)
    return int(value)


def _nearest(wanted: int, unit: int) -> str:
    if unit < 1:
        return ""
    low = max(unit, wanted // unit * unit)
    return f"Nearest: {low}." if low >= wanted else f"Nearest: {low} or {low + unit}."
