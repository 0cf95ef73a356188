"""Batches by number: leased ones from a map-style loader, wanted ones from a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from paceline.errors import UsageError
from paceline.worker.feeding import END, MapFeed, StreamFeed, first_samples


class Counting(Dataset[int]):
    def __init__(self) -> None:
        self.loaded: list[int] = []

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        self.loaded.append(index)
        return index


ORDER = [[4 * j, 4 * j + 1, 4 * j + 2] for j in range(10)]


@pytest.mark.parametrize("processes", [0, 2])
def test_leases_come_in_drips_and_batches_keep_their_numbers(processes: int) -> None:
    loader = DataLoader(Counting(), batch_size=3, num_workers=processes)
    feed = MapFeed(loader, ORDER, seed=1)
    feed.prefetch([1, 4])
    assert feed.get(1).tolist() == ORDER[1]
    assert feed.get(4).tolist() == ORDER[4]  # dry: the iterator ends here, and goes on later
    feed.prefetch([0, 7, 2])
    assert feed.get(7).tolist() == ORDER[7]  # out of order
    assert feed.get(0).tolist() == ORDER[0]
    assert feed.get(9).tolist() == ORDER[9]  # never announced
    assert feed.get(2).tolist() == ORDER[2]
    feed.prefetch([3])
    assert feed.get(3).tolist() == ORDER[3]
    feed.close()


def test_running_dry_does_not_restart_the_loaders_processes() -> None:
    class Pids(Dataset[int]):
        def __getitem__(self, index: int) -> int:
            import os

            return os.getpid()

        def __len__(self) -> int:
            return 8

    feed = MapFeed(DataLoader(Pids(), batch_size=1, num_workers=1), [[j] for j in range(8)], seed=0)
    pids = set()
    for number in range(8):
        feed.prefetch([number])
        pids.add(int(feed.get(number)[0]))
    feed.close()
    assert len(pids) == 1


def test_only_leased_samples_are_loaded_and_no_shared_randomness_is_used() -> None:
    data = Counting()
    torch.manual_seed(3)
    state = torch.get_rng_state()
    feed = MapFeed(DataLoader(data, batch_size=3, shuffle=True), ORDER, seed=1)
    feed.prefetch([2, 5])
    feed.get(2)
    feed.get(5)
    assert data.loaded == [*ORDER[2], *ORDER[5]]
    assert torch.equal(torch.get_rng_state(), state)


def test_the_users_collate_function_and_unbatched_loaders_are_kept() -> None:
    collated = MapFeed(DataLoader(Counting(), batch_size=3, collate_fn=tuple), ORDER, seed=1)
    assert collated.get(3) == tuple(ORDER[3])
    single = MapFeed(DataLoader(Counting(), batch_size=None), [7, 5, 3], seed=1)
    assert single.get(1) == 5


def test_a_stream_passes_on_what_is_wanted() -> None:
    feed = StreamFeed([10, 11, 12, 13, 14], cycle=False, watch=False)
    assert feed.peek() == 10
    assert feed.get(1) == 11
    assert feed.get(4) == 14
    assert feed.get(5) is END
    assert feed.position == 5


def test_the_peeked_batch_is_not_lost() -> None:
    feed = StreamFeed(iter([10, 11]), cycle=False, watch=False)
    assert first_samples(feed) == 1
    assert [feed.get(0), feed.get(1), feed.get(2)] == [10, 11, END]


def test_a_batch_behind_the_position_is_read_again() -> None:
    feed = StreamFeed([10, 11, 12], cycle=False, watch=True)
    assert feed.get(2) == 12
    assert feed.get(0) == 10
    assert feed.get(1) == 11
    assert feed.marked == 3


def test_a_generator_cannot_be_read_again_and_says_so() -> None:
    feed = StreamFeed((n for n in range(3)), cycle=False, watch=False)
    feed.get(2)
    with pytest.raises(UsageError, match="generator"):
        feed.get(0)


def test_cycling_goes_on_with_the_numbers() -> None:
    feed = StreamFeed([10, 11], cycle=True, watch=False)
    assert [feed.get(n) for n in (0, 1, 2, 5)] == [10, 11, 10, 11]
    assert StreamFeed([], cycle=True, watch=False).get(0) is END


def test_a_spent_generator_ends_a_cycle() -> None:
    feed = StreamFeed(iter([1]), cycle=True, watch=False)
    assert [feed.get(0), feed.get(1)] == [1, END]


def test_marks_tell_orders_apart() -> None:
    def read(values: list[int]) -> StreamFeed:
        feed = StreamFeed([torch.full((4,), v) for v in values], cycle=False, watch=True)
        feed.get(len(values) - 1)
        return feed

    one, same, other = read([1, 2, 3]), read([1, 2, 3, 4]), read([2, 1, 3])
    assert one.mark(3) == same.mark(3) != other.mark(3)
    assert one.mark(1) != other.mark(1)


def test_a_loader_alone_is_iterated_itself() -> None:
    class Mine(DataLoader[Any]):
        rounds = 0

        def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
            Mine.rounds += 1
            return super().__iter__()

    feed = StreamFeed(Mine(TensorDataset(torch.arange(4))), cycle=False, watch=False)
    assert [int(feed.get(n)[0]) for n in range(4)] == [0, 1, 2, 3]
    assert Mine.rounds == 1
