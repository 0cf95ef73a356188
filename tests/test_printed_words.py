"""Every word that is printed and read again says the same: numbers are printed exactly."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from paceline import compression as c
from paceline import strategies as s
from paceline.compare.target import Target, parse_target
from paceline.compression import Compression, default_warmup, parse_compression
from paceline.recipes import Plain, Stable, parse_recipe
from paceline.strategies import parse_strategy
from paceline.trials import Trial, parse_trial
from paceline.values import exact

Draw = random.Random


def number(draw: Draw) -> float:
    """Of any size, short or with all its digits."""
    short = draw.choice([1.0, 0.5, 0.01, 1e-05, 3.0, 1e16, 1e22])
    return draw.choice([short, draw.random(), draw.random() * 10 ** draw.randint(-12, 20)])


def share(draw: Draw) -> float:
    """In (0, 1]."""
    return draw.choice([1.0, 0.01, 1 / 3, 1e-7, 1 - draw.random(), draw.random() * 1e-6 + 1e-12])


def strategy(draw: Draw) -> s.Strategy:
    windows, fragments = draw.randint(1, 10**7), draw.randint(1, 9)
    scale: Any = draw.choice(["mean", "sum"])
    ssp = s.SSP(staleness=draw.choice([inf, draw.randint(1, 99)]), push_scale=scale)
    sync: Any = draw.choice([("auto", "stop"), ("allreduce", "stop"), ("server", "continue")])
    return draw.choice([
        s.Sync(topology=sync[0], on_death=sync[1]), s.Backup(spares=draw.randint(1, 99)), ssp,
        s.SSP(staleness=0), s.Local(windows=draw.choice([inf, windows])), s.Hybrid(outer=ssp),
        s.DiLoCo(
            windows=windows * fragments, outer_lr=number(draw) + 1e-300, outer_momentum=1 - share(draw),
            fragments=fragments,
        ),
    ])  # fmt: skip


def compressed(draw: Draw) -> Compression:
    def pull() -> Any:
        return draw.choice([None, c.Int8(), c.Sign(), c.TopK(density=share(draw))])

    method = draw.choice([
        c.TopK(density=share(draw)), c.RandomK(density=share(draw), seed=draw.randint(0, 2**31 - 1)),
        c.PowerSGD(rank=draw.randint(1, 99)), c.Int8(), c.Sign(),
    ])  # fmt: skip
    warmup = draw.choice([0, 100, draw.randint(1, 10**6)]) if default_warmup(method) else 0
    return Compression(
        method=method, warmup=warmup, feedback=draw.choice([True, False]), pull=pull()
    )


def recipe(draw: Draw) -> Plain | Stable:
    return draw.choice([Plain(), Stable(), Stable(warmup=draw.randint(0, 10**6))])


def trial(draw: Draw) -> Trial:
    options: dict[str, Any] = {
        "accumulate": draw.randint(1, 99), "clip_norm": number(draw) + 1e-300,
        "recipe": str(recipe(draw)), "compress": str(compressed(draw)),
    }  # fmt: skip
    chosen = [(name, value) for name, value in options.items() if draw.random() < 0.5]
    factor = draw.choice([1.0, number(draw) + 1e-300])
    return Trial(strategy=str(strategy(draw)), options=tuple(chosen), lr_factor=factor)


def target(draw: Draw) -> Target:
    return Target(name="val/loss", value=number(draw), falling=draw.choice([True, False]))


@pytest.mark.parametrize(
    ("make", "parse"),
    [
        (strategy, parse_strategy), (compressed, parse_compression), (recipe, parse_recipe),
        (trial, parse_trial), (target, parse_target), (number, float),
    ],
)  # fmt: skip
def test_what_is_printed_is_read_as_the_same(
    make: Callable[[Draw], Any], parse: Callable[[str], Any]
) -> None:
    draw = random.Random(0)
    for _ in range(500):
        value = make(draw)
        text = exact(value) if isinstance(value, float) else str(value)
        assert parse(text) == value, text
        assert str(parse(text)) == str(value)


def test_numbers_are_as_short_as_they_can_be() -> None:
    assert [exact(one) for one in (1, 1.0, 0.01, 1 / 3, 1e-5, 2e22)] == [
        "1", "1", "0.01", "0.3333333333333333", "1e-05", "2e+22"
    ]  # fmt: skip
