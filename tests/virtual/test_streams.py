"""Random streams of workers that share a process: each draws as if it were alone."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from paceline.launch import context
from paceline.launch.context import Launch
from paceline.virtual.numpy_stream import NumpyStream
from paceline.virtual.persona import Persona
from paceline.worker.surroundings import Surroundings


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(context, "_installed", None)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    generator, state = np.random.get_bit_generator(), np.random.get_state()
    yield
    np.random.set_bit_generator(generator)
    np.random.set_state(state)


def _draw(kind: int, n: int, source) -> object:  # type: ignore[no-untyped-def]
    if kind == 0:
        return source.normal(size=n % 5 + 1).tolist()
    if kind == 1:
        return source.randint(0, 9, n).tolist()
    if kind == 2:
        return source.random_sample(624).tolist()  # as many words as the state has
    if kind == 3:
        return None
    if kind == 4:
        return source.seed(n)
    return source.normal()


def test_interleaved_workers_draw_from_numpy_as_if_each_were_alone() -> None:
    np.random.seed(5)
    streams = [NumpyStream() for _ in range(3)]
    alone = [np.random.RandomState(5) for _ in range(3)]
    chance = random.Random(1)
    for _ in range(3000):
        rank, kind, n = chance.randrange(3), chance.randrange(6), chance.randrange(1, 700)
        streams[rank].enter()
        assert _draw(kind, n, np.random) == _draw(kind, n, alone[rank])
        streams[rank].leave()


def test_a_generator_of_the_scripts_own_stays_its_own() -> None:
    np.random.seed(5)
    streams = [NumpyStream(), NumpyStream()]
    streams[0].enter()
    np.random.set_bit_generator(np.random.PCG64(7))
    first = np.random.random_sample()
    streams[0].leave()
    streams[1].enter()
    np.random.random_sample(10)
    streams[1].leave()
    streams[0].enter()
    expected = np.random.RandomState(np.random.PCG64(7)).random_sample(2)
    assert [first, np.random.random_sample()] == expected.tolist()


def test_personas_made_at_one_time_have_streams_of_their_own() -> None:
    around = Surroundings()
    np.random.seed(5)
    launch = Launch(rank=0, world_size=2)
    cast = [
        Persona(launch=launch, surroundings=around, main=sys.modules["__main__"], threads=1)
        for _ in range(2)
    ]
    drawn: list[list[float]] = [[], []]
    for rank in (0, 0, 1, 0, 1):
        cast[rank].enter()
        drawn[rank].append(np.random.normal() + torch.randn(1).item() + random.gauss(0, 1))
        cast[rank].leave()
    assert drawn[0][:2] == drawn[1]


def test_a_state_that_the_script_puts_back_is_back() -> None:
    """numpy keeps the second number of a pair; no mark of a generator shows whether it does."""
    np.random.seed(3)
    streams = [NumpyStream(), NumpyStream()]
    streams[0].enter()
    np.random.normal()
    state = np.random.get_state()
    drawn = [np.random.normal()]
    for _ in range(2):
        streams[0].leave()
        streams[1].enter()
        np.random.normal(size=3)
        streams[1].leave()
        streams[0].enter()
        np.random.set_state(state)
        streams[0].leave()
        streams[0].enter()
        drawn.append(np.random.normal())
    assert len(set(drawn)) == 1
