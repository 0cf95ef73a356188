"""Builds what holds the parameters when the plane opens: in this process, or divided among shards.

Raises UsageError for what cannot be divided; nothing is shared before.
"""

from __future__ import annotations

import msgspec
import torch

from paceline.errors import PacelineError, UsageError
from paceline.gradients.layout import FlatLayout
from paceline.gradients.precision.layouts import gradients_of
from paceline.server.division import divide, loads
from paceline.server.far_shards import FarShards
from paceline.server.holding import Holding
from paceline.server.opening import build_shard, initial_values
from paceline.server.other_shards import OtherShards
from paceline.server.shard_work import initial_of
from paceline.server.store import Store
from paceline.server.versions import Versions
from paceline.transport.messages import Open
from paceline.transport.shard_messages import SetUp

SET_UP_WITHIN_S = 60.0


def build_store(
    first: Open, layout: FlatLayout, memory: torch.Tensor, far: FarShards | None
) -> Store:
    """What holds the parameters of ``layout``, which lie in ``memory`` as rank 0 has them. ``first``: what
    it wants; ``far``: the shards in other processes, if there are any, all of which have come."""
    wide = gradients_of(layout)
    shard = build_shard(first, wide)
    owners: list[int] = []
    if far is not None:
        _refuse(first, wide, far)
        owners = divide(wide, shard.tiles, far.count + 1)
        _set_up(first, wide, memory, owners, far)
    holding = Holding(layout, shard, Versions(initial_values(layout, memory)), owners=owners)
    shards = [] if far is None else far.all
    elsewhere = OtherShards(shards, owners, wide.slots[0].dtype)
    return Store(holding, elsewhere, layout=layout, bucket_bytes=first.bucket_bytes)


def balance(store: Store, far: FarShards | None, layout: FlatLayout) -> str:
    """The division in a sentence, "" if there is none."""
    if far is None:
        return ""
    own, *others = (f"{size / 1e6:.3g} MB" for size in loads(layout, store.owners, far.count + 1))
    there = ", ".join(f"{size} in {one}" for size, one in zip(others, far.all, strict=True))
    return f"the parameters are divided: {own} in the server, {there}"


def _refuse(first: Open, layout: FlatLayout, far: FarShards) -> None:
    types = {slot.dtype for slot in layout.slots}
    for reason, here in (
        (f"compress={first.compress!r}", bool(first.compress)),
        (f"strategy={first.strategy!r}", bool(first.groups)),
        ("an emulated server's capacity", first.serving_s > 0),
        ("parameters of float32 and of float64 in one model", len(types) > 1),
    ):
        if here:
            raise UsageError(
                f"--shards={far.count + 1} and {reason} cannot work together: that is not built for several "
                "shards. Leave --shards out."
            )


def _set_up(
    first: Open, layout: FlatLayout, memory: torch.Tensor, owners: list[int], far: FarShards
) -> None:
    far.generation += 1
    for shard in far.all:
        initial = initial_of(memory, layout, owners, shard.number)
        shard.tell(
            SetUp(
                number=shard.number, generation=far.generation, owners=owners,
                opening=msgspec.structs.replace(first, initial=initial),
            )
        )  # fmt: skip
    for shard in far.all:
        done = shard.answer(SET_UP_WITHIN_S)
        if done is None or done.trouble:
            raise PacelineError(f"{shard}: {done.trouble if done else 'it is lost'}")
