"""Orders are drawn exactly as the plain loop draws them, and leave its random stream as it would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from paceline.errors import UsageError
from paceline.worker.order import (
    decode_order,
    draw_order,
    encode_order,
    is_map_style,
    nominal_samples,
    refuse_distributed_sampler,
)

DATA = TensorDataset(torch.arange(23))


def loaders() -> dict[str, Any]:
    own = torch.Generator().manual_seed(5)
    return {
        "in order": DataLoader(DATA, batch_size=4),
        "shuffled": DataLoader(DATA, batch_size=4, shuffle=True),
        "last dropped": DataLoader(DATA, batch_size=4, shuffle=True, drop_last=True),
        "own generator": DataLoader(DATA, batch_size=4, shuffle=True, generator=own),
        "replacement": DataLoader(
            DATA, batch_size=4, sampler=RandomSampler(DATA, replacement=True, num_samples=50)
        ),
        "weighted": DataLoader(DATA, batch_size=4, sampler=WeightedRandomSampler([1.0] * 23, 30)),
        "batch sampler": DataLoader(DATA, batch_sampler=[[3], [1, 2, 20], [0, 4]]),
        "unbatched": DataLoader(DATA, batch_size=None, shuffle=True),
    }


@pytest.mark.parametrize("name", loaders())
@pytest.mark.parametrize("epochs", [1, 2])
def test_the_order_and_the_stream_are_the_plain_loops(name: str, epochs: int) -> None:
    torch.manual_seed(1)
    plain, loader = [], loaders()[name]
    for _ in range(epochs):
        plain += [batch[0] for batch in loader]
    after_plain = torch.rand(3)

    torch.manual_seed(1)
    loader = loaders()[name]
    order = decode_order(encode_order(draw_order(loader, len(plain), seeded=False)))
    assert torch.equal(torch.rand(3), after_plain)
    loaded = [torch.tensor(entry) for entry in order]
    assert all(torch.equal(a, b) for a, b in zip(loaded, plain, strict=True))


def test_persistent_processes_keep_their_seed() -> None:
    def loader() -> DataLoader[Any]:
        return DataLoader(DATA, batch_size=8, shuffle=True, num_workers=1, persistent_workers=True)

    torch.manual_seed(1)
    plain = loader()
    seen = [batch[0].tolist() for _ in range(2) for batch in plain]
    after = torch.rand(1)
    torch.manual_seed(1)
    assert draw_order(loader(), 6, seeded=False) == seen
    assert torch.equal(torch.rand(1), after)


def test_an_endless_sampler_is_read_no_further_than_needed() -> None:
    class Endless:
        def __iter__(self) -> Iterator[list[int]]:
            while True:
                yield [0, 1]

    loader = DataLoader(DATA, batch_sampler=Endless())  # type: ignore[arg-type]
    assert not is_map_style(loader, steps_given=False)
    assert is_map_style(loader, steps_given=True)
    assert len(draw_order(loader, 7, seeded=False)) == 7


def test_other_iterables_are_not_loaded_by_index() -> None:
    class Rows(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    class Odd(DataLoader[Any]):
        def __iter__(self) -> Any:
            return iter([1])

    assert not is_map_style(DataLoader(Rows()), steps_given=True)
    assert not is_map_style(Odd(DATA), steps_given=True)
    assert not is_map_style([1, 2], steps_given=True)


def test_text_indices_travel_and_others_are_refused() -> None:
    assert decode_order(encode_order([["a", "b"], [torch.tensor(3)]])) == [["a", "b"], [3]]
    with pytest.raises(UsageError, match="split=False"):
        encode_order([[object()]])


def test_a_distributed_sampler_is_refused_with_the_remedy() -> None:
    sampler: Any = DistributedSampler(DATA, num_replicas=2, rank=0)
    with pytest.raises(UsageError, match="split=False"):
        refuse_distributed_sampler(DataLoader(DATA, sampler=sampler))
    refuse_distributed_sampler(DataLoader(DATA))
    refuse_distributed_sampler([1, 2])


def test_the_typical_batch() -> None:
    assert nominal_samples(DataLoader(DATA, batch_size=4), []) == 4
    uneven = DataLoader(DATA, batch_sampler=[[1], [1, 2, 3]])
    assert nominal_samples(uneven, [[1], [1, 2, 3]]) == 2
    assert nominal_samples(DataLoader(DATA, batch_size=None), [3, 1]) == 1
