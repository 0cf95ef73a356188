"""Opens a pass: which loader is read in which way, and the plan that all ranks agree on.

The three ways (see :mod:`paceline.worker.feeding`): alone or with data of its own a rank reads its
loader as it is; a map-style loader is shared by index; anything else is read whole by every rank.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from paceline.errors import CheckpointError, UsageError, bad_value
from paceline.worker.agreement import require_equal
from paceline.worker.catching_up import GoingOn
from paceline.worker.feeding import Feed, MapFeed, StreamFeed, first_samples
from paceline.worker.order import (
    Order,
    decode_order,
    draw_order,
    encode_order,
    index_source,
    is_map_style,
    length_of,
    nominal_samples,
    refuse_distributed_sampler,
)
from paceline.worker.parts import Parts
from paceline.worker.plane import PassPlan

CALL = "worker.batches"

_SAME_SCRIPT = "Every rank must call worker.batches with the same arguments."
_SAME_DATA = (
    "Every rank must see the same data (paceline splits it); for a loader of the rank's own data "
    "say worker.batches(loader, split=False)."
)
_SAME_ORDER = (
    "This loader is read whole by every rank, so all must yield the same batches in the same order: "
    "give its shuffling a generator of its own, seeded alike on all ranks, or say "
    "worker.batches(loader, split=False) if each rank has its own data."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """What ``worker.batches`` was asked for. ``steps``: windows of each worker, or None."""

    loader: Any
    steps: int | None
    split: bool

    def __post_init__(self) -> None:
        if self.steps is not None and (not isinstance(self.steps, int) or self.steps < 1):
            raise bad_value("steps", self.steps, "a whole number of windows >= 1, or None")
        if self.split:
            refuse_distributed_sampler(self.loader)
        if not hasattr(self.loader, "__iter__"):
            raise bad_value("loader", self.loader, "a DataLoader or another iterable of batches")


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A pass ready to run. ``samples``: in a typical batch of this rank's. ``order``: of the whole
    pass, where it was drawn for all ranks."""

    feed: Feed
    plan: PassPlan
    samples: float
    order: Order | None = None


def plan_pass(
    demand: Demand, parts: Parts, pass_id: int, going_on: GoingOn | None = None
) -> Planned:
    """Agree on the pass with all live ranks and make the feed for it. ``going_on``: if it was begun
    before and interrupted; its batches are then numbered among those that are left.

    Raises UsageError / MismatchError where loader, options and ranks do not fit together,
    CheckpointError where the loader is not that of the interrupted pass.
    """
    drawn = going_on is not None and going_on.order is not None
    if (parts.launch.world_size == 1 or not demand.split) and not drawn:
        return _own_loader(demand, parts, pass_id, going_on)
    if is_map_style(demand.loader, steps_given=demand.steps is not None):
        return _shared_by_index(demand, parts, pass_id, going_on)
    if drawn:
        raise CheckpointError(
            "The interrupted pass was over a map-style DataLoader, and this loader is none: it "
            "cannot be gone on with. Resume with the loader it was begun with."
        )
    return _read_whole(demand, parts, pass_id, going_on)


def batches_in(demand: Demand, *, window: int, world_size: int) -> int | None:
    """Loader batches in the pass (all ranks together if split), or None while nobody can know."""
    if demand.steps is not None:
        return demand.steps * window * (world_size if demand.split else 1)
    loader = demand.loader
    if isinstance(loader, DataLoader) and isinstance(loader.dataset, IterableDataset):
        return None  # its length is a promise that torch does not hold it to
    return length_of(loader)


def order_of(demand: Demand, parts: Parts, total: int | None, call: str) -> list[Any]:
    """The batches of a map-style loader, drawn by the lowest live rank and sent to all."""
    loader = demand.loader
    everyone = parts.agreement.gather(
        call, samples=length_of(loader.dataset), batches=length_of(index_source(loader))
    )
    require_equal(everyone, {"samples": _SAME_DATA, "batches": _SAME_DATA})
    drawn = None
    if everyone[0]["rank"] == parts.launch.rank:
        seeded = loader.persistent_workers and loader.num_workers > 0 and _begun(loader)
        drawn = encode_order(draw_order(loader, total, seeded=seeded))
    return decode_order(parts.agreement.share(call, drawn))


def loader_seed(parts: Parts, pass_id: int) -> int:
    """A seed for the processes of this rank's loader, different in every rank and pass."""
    text = f"loader {parts.seed} {parts.launch.rank} {pass_id}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")


def _own_loader(demand: Demand, parts: Parts, pass_id: int, going_on: GoingOn | None) -> Planned:
    feed = StreamFeed(demand.loader, cycle=demand.steps is not None, watch=False)
    samples = first_samples(feed)
    window = parts.options.window(batch=samples, world_size=parts.launch.world_size)
    total = batches_in(demand, window=window, world_size=parts.launch.world_size)
    total = _go_on(feed, total, going_on, demand)
    everyone = _same_call(demand, parts, window, kind="own", samples=samples, left=total)
    plan = _plan(demand, pass_id, total, window, everyone[0]["samples"])
    plan = replace(plan, sharing=sum(fact["left"] != 0 for fact in everyone))
    return Planned(feed=feed, plan=plan, samples=samples)


def _shared_by_index(
    demand: Demand, parts: Parts, pass_id: int, going_on: GoingOn | None
) -> Planned:
    loader, world_size = demand.loader, parts.launch.world_size
    if loader.batch_size is None and parts.options.global_batch is not None:
        raise UsageError(
            f"global_batch={parts.options.global_batch} needs a loader with one batch_size; this one "
            "has a batch sampler of its own. Use accumulate."
        )
    window = parts.options.window(batch=loader.batch_size or 1, world_size=world_size)
    _same_call(demand, parts, window, kind="map", samples=None)
    total = batches_in(demand, window=window, world_size=world_size) if demand.steps else None
    order = whole = _kept_order(demand, going_on) or order_of(demand, parts, total, CALL)
    if going_on is not None:
        left = going_on.total(len(whole), split=True)
        order = [whole[left.number(place)] for place in range(left.count or 0)]
    samples = nominal_samples(loader, whole)
    ahead = loader.num_workers * (loader.prefetch_factor or 0)
    plan = _plan(demand, pass_id, len(order), window, samples, ahead=ahead)
    feed = MapFeed(loader, order, seed=loader_seed(parts, pass_id))
    return Planned(feed=feed, plan=plan, samples=samples, order=whole)


def _read_whole(demand: Demand, parts: Parts, pass_id: int, going_on: GoingOn | None) -> Planned:
    feed = StreamFeed(demand.loader, cycle=demand.steps is not None, watch=True)
    samples = first_samples(feed)
    window = parts.options.window(batch=samples, world_size=parts.launch.world_size)
    total = batches_in(demand, window=window, world_size=parts.launch.world_size)
    first = feed.mark(feed.position).hex()
    total = _go_on(feed, total, going_on, demand)
    everyone = _same_call(demand, parts, window, kind="stream", samples=samples, first=first)
    require_equal(everyone, {"first": _SAME_ORDER})
    plan = _plan(demand, pass_id, total, window, everyone[0]["samples"])
    return Planned(feed=feed, plan=plan, samples=samples)


def _kept_order(demand: Demand, going_on: GoingOn | None) -> Order | None:
    """The order that the checkpoint kept, if it is one of this loader's."""
    if going_on is None or going_on.order is None:
        return None
    if demand.steps is None:  # else the pass may have as many batches as it likes
        going_on.total(length_of(index_source(demand.loader)), split=True)
    return going_on.order


def _go_on(
    feed: StreamFeed, total: int | None, going_on: GoingOn | None, demand: Demand
) -> int | None:
    """How many batches the pass has, those of an interrupted one being what is left of it."""
    if going_on is None:
        return total
    if demand.steps is not None and demand.split:
        total = None  # it follows from the number of workers, which may have changed
    left = going_on.total(total, split=demand.split)
    feed.go_on(left, going_on.position)
    return left.count


def check_same_order(feed: StreamFeed, parts: Parts) -> None:
    """After a pass: did all ranks read the same batches, as far as all have read? MismatchError."""
    read = parts.agreement.gather("the end of batches", marked=feed.marked)
    common = min(fact["marked"] for fact in read)
    marks = parts.agreement.gather("the end of batches", order=feed.mark(common).hex())
    require_equal(marks, {"order": _SAME_ORDER})


def _same_call(demand: Demand, parts: Parts, window: int, **facts: Any) -> list[dict[str, Any]]:
    everyone = parts.agreement.gather(
        CALL, window=window, steps=demand.steps, split=demand.split, **facts
    )
    fields = ("kind", "window", "steps", "split")
    require_equal(everyone, dict.fromkeys(fields, _SAME_SCRIPT))
    return everyone


def _plan(
    demand: Demand, pass_id: int, total: int | None, window: int, samples: float, *, ahead: int = 0
) -> PassPlan:
    """``ahead``: batches that the loader's processes work on beside the window in hand."""
    return PassPlan(
        pass_id=pass_id,
        total=total,
        window=window,
        depth=window * (1 + -(-ahead // window)),
        weight=samples * window,
        unit=samples,
        split=demand.split,
    )


def _begun(loader: DataLoader[Any]) -> bool:
    """Whether this loader's persistent processes have a seed already. Remembered on the loader."""
    begun: bool = vars(loader).get("_paceline_begun", False)
    vars(loader)["_paceline_begun"] = True
    return begun
