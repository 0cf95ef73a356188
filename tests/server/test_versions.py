"""A version that somebody reads is never written to, and there are no more buffers than needed."""

from __future__ import annotations

import random

import torch

from paceline.server.versions import Versions


def fresh() -> Versions:
    return Versions(torch.zeros(64, dtype=torch.uint8))


def update(versions: Versions, number: int) -> None:
    room = versions.room()
    room.pieces.memory.fill_(number)
    versions.publish(room)


def test_nobody_reading_means_writing_in_place() -> None:
    versions = fresh()
    first = versions.current
    for rank in range(3):
        versions.give(rank)
    for rank in range(3):
        versions.take_back(rank)
    update(versions, 1)
    assert versions.current is first
    versions.close()


def test_what_a_worker_reads_stays_as_it_was_while_others_update() -> None:
    generator, count = random.Random(0), 4
    versions = fresh()
    seen: dict[int, int] = {}
    fds: set[int] = set()
    for rank in range(count):
        fds.add(versions.give(rank))
        seen[rank] = 0
    for number in range(1, 200):
        rank = generator.randrange(count)
        versions.take_back(rank)
        update(versions, number)
        fds.add(versions.give(rank))
        seen[rank] = number
        for other in range(count):
            window = versions._holds[other].window
            assert window is not None
            assert set(window.pieces.memory.tolist()) == {seen[other]}
    assert len(fds) <= count
    versions.close()


def test_a_glance_keeps_the_windows_version_and_the_one_looked_at() -> None:
    versions = fresh()
    versions.give(0)
    window = versions.current
    for number in (1, 2):
        versions.give(1)
        versions.take_back(1)
        update(versions, number)
    versions.lend(0)
    looked_at = versions.current
    update(versions, 3)
    assert set(window.pieces.memory.tolist()) == {0}
    assert set(looked_at.pieces.memory.tolist()) == {2}
    assert set(versions.current.pieces.memory.tolist()) == {3}
    versions.take_back(0)
    versions.close()
