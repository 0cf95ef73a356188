"""What a checkpoint holds: its files written from a group's state, and read back into one.

``model.safetensors`` is the model's state_dict, to be loaded by plain torch; ``state.safetensors``
holds all other tensors, ``checkpoint.json`` everything that is no tensor, ``order.msgpack`` the order
of the interrupted pass. Knows no plane and no loop: when a checkpoint is taken, and by whom, is
:mod:`paceline.worker.saving`'s business.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from paceline import checkpoints
from paceline.errors import CheckpointError
from paceline.events import Left
from paceline.gradients.codecs.feedback import shared_out
from paceline.worker import buffers
from paceline.worker.order import Order, decode_order, encode_order
from paceline.worker.plane import Cut
from paceline.worker.trees import Tensors, flatten, unflatten

MODEL = "model.safetensors"
STATE = "state.safetensors"
ORDER = "order.msgpack"
_OF_RECIPES = ("nesterov",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """Everything that goes into a checkpoint. ``about``: plain facts for its body.

    ``parts``: each rank's own (see :func:`pack_part`). ``names``: of the trained parameters, in
    the optimizer's order. ``groups``: the optimizer groups' hyper-parameters.
    """

    cut: Cut
    about: Mapping[str, Any]
    parts: Mapping[int, bytes]
    model: nn.Module
    optimizer_class: str
    groups: list[dict[str, Any]]
    names: list[str]
    schedulers: list[dict[str, Any]]
    order: Order | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A checkpoint that was read. ``state``: of the optimizer, by parameter name; ``ranks``: parts."""

    path: Path
    body: Mapping[str, Any]
    model: Mapping[str, Any]
    state: Mapping[str, Any]
    schedulers: list[dict[str, Any]]
    ranks: Mapping[int, dict[str, Any]]
    order: Order | None

    @property
    def left(self) -> dict[int, Left]:
        """What was left of the interrupted pass, by owner."""
        kept = [Left(**{**one, "returned": tuple(one["returned"])}) for one in self.body["left"]]
        return {one.owner: one for one in kept}

    def limit(self, rank: int) -> list[float] | None:
        """The state of the limit on norms: that of ``rank``, or all ranks'; None if there was none."""
        found: list[float] | None = self._own(rank).get("limit") or self.body.get("limit")
        return found

    def state_of(self, name: str, rank: int) -> dict[str, Any]:
        """Of the optimizer, for the parameter ``name``: all ranks', and what ``rank`` has of its own."""
        owned = {one: self._own(one).get("optimizer", {}).get(name, {}) for one in self.ranks}
        apart = {key for own in owned.values() for key in own}
        shared = {key: v for key, v in self.state.get(name, {}).items() if key not in apart}
        return {**shared, **owned.get(rank, {})}

    def compressed(self, rank: int, world_size: int) -> dict[str, Mapping[str, Any]]:
        """What compression keeps of ``rank`` of ``world_size``: what was withheld is shared out, what
        encoders go on from is the rank's own, or the first one's."""
        residuals = {one: self._own(one).get("residuals", {}) for one in self.ranks}
        starts = self._own(rank if rank in self.ranks else 0).get("starts", {})
        mine = shared_out(residuals, rank=rank, world_size=world_size)
        return {"residuals": mine, "starts": starts}

    def replica(self, rank: int) -> Mapping[str, Any]:
        """What ``rank`` keeps of a replica of its own, between two exchanges of parts of it; or nothing."""
        found: Mapping[str, Any] = self._own(rank).get("replica", {})
        return found

    def _own(self, rank: int) -> Mapping[str, Any]:
        own: Mapping[str, Any] = self.ranks.get(rank, {}).get("own", {})
        return own


def pack_part(part: dict[str, Any]) -> bytes:
    """A rank's part as bytes that hold no code."""
    file = io.BytesIO()
    torch.save(part, file)
    return file.getvalue()


def write_files(directory: Path, snapshot: Snapshot) -> dict[str, Any]:
    """Write the tensors into ``directory``; the body for the rest. May raise OSError."""
    cut, tensors = snapshot.cut, Tensors()
    ranks = {rank: _unpack(part) for rank, part in snapshot.parts.items()}
    model, extra = _model_state(snapshot.model, ranks)
    body = {
        **snapshot.about,
        "version": cut.version,
        "progress": cut.progress,
        "clocks": {str(rank): clock for rank, clock in cut.clocks.items()},
        "left": [asdict(one) for one in cut.left],
        "limit": cut.limit,
        "optimizer": {
            "class": snapshot.optimizer_class,
            "groups": snapshot.groups,
            "state": flatten(_by_name(cut.state, snapshot.names), "optimizer", tensors),
        },
        "schedulers": flatten(snapshot.schedulers, "schedulers", tensors),
        "extra": flatten(extra, "extra", tensors),
        "ranks": {
            str(rank): flatten(part, f"ranks/{rank}", tensors) for rank, part in ranks.items()
        },
    }
    _write_tensors(directory / MODEL, model)
    _write_tensors(directory / STATE, tensors)
    if snapshot.order is not None:
        checkpoints.write(directory / ORDER, encode_order(snapshot.order))
    return body


def read(path: Path) -> Checkpoint:
    """The checkpoint at ``path``, or the newest there.

    Raises UsageError if there is none, CheckpointError if it is damaged or foreign.
    """
    path = checkpoints.newest(path)
    body = checkpoints.read_body(path)
    checkpoints.check_files(path, body)
    tensors = load_file(path / STATE)
    order = decode_order((path / ORDER).read_bytes()) if (path / ORDER).exists() else None
    return Checkpoint(
        path=path,
        body=body,
        model={**load_file(path / MODEL), **unflatten(body["extra"], tensors)},
        state=unflatten(body["optimizer"]["state"], tensors),
        schedulers=unflatten(body["schedulers"], tensors),
        ranks={int(r): unflatten(part, tensors) for r, part in body["ranks"].items()},
        order=order,
    )


def put_into(
    checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer, rank: int
) -> None:
    """Give ``rank``'s model and optimizer the state in ``checkpoint``.

    Raises CheckpointError if they do not fit.
    """
    check_fit(checkpoint, model, optimizer)
    model.load_state_dict(dict(checkpoint.model))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    optimizer.state.clear()
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if own := checkpoint.state_of(names.get(id(parameter), ""), rank):
                optimizer.state[parameter] = _like(own, parameter)
    put_groups(checkpoint, optimizer)


def put_groups(checkpoint: Checkpoint, optimizer: torch.optim.Optimizer) -> None:
    """Give the optimizer's groups the hyper-parameters in ``checkpoint``, not what recipes decide."""
    saved = checkpoint.body["optimizer"]["groups"]
    for group, own in zip(optimizer.param_groups, saved, strict=True):
        for key, value in own.items():
            if key in _OF_RECIPES:
                continue
            if isinstance(group.get(key), torch.Tensor):
                group[key].fill_(value)
            else:
                group[key] = tuple(value) if isinstance(group.get(key), tuple) else value


def check_fit(checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Raises CheckpointError if ``checkpoint`` is of another model or optimizer, naming the difference."""
    mine, theirs = model.state_dict(), checkpoint.model
    for name in {**mine, **theirs}:
        if name not in mine or name not in theirs:
            where = "the model" if name in mine else "the checkpoint"
            raise CheckpointError(
                f"{checkpoint.path}: {name} is in {where} only. This script's model is not the one "
                "that was saved: resume with the script (and arguments) of that run."
            )
        shapes = [tuple(getattr(one[name], "shape", ())) for one in (mine, theirs)]
        if shapes[0] != shapes[1]:
            raise CheckpointError(
                f"{checkpoint.path}: {name} has shape {shapes[1]} there and {shapes[0]} in the model."
            )
    saved = checkpoint.body["optimizer"]
    have = type(optimizer).__name__, len(optimizer.param_groups)
    if have != (saved["class"], len(saved["groups"])):
        raise CheckpointError(
            f"{checkpoint.path}: made with {saved['class']} over {len(saved['groups'])} groups of "
            f"parameters, but the script has {have[0]} over {have[1]}. To begin anew from the "
            f"parameters alone, load its {MODEL} into the model before Worker(...)."
        )


def _like(state: Any, parameter: torch.Tensor) -> dict[str, Any]:
    """The state where, and laid out as, torch's optimizers would have it."""
    placed = {}
    for key, value in state.items():
        if isinstance(value, torch.Tensor) and value.shape == parameter.shape and value.dim() > 0:
            value = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
        placed[key] = value
    return placed


def _by_name(state: bytes | None, names: list[str]) -> dict[str, Any]:
    held = {} if state is None else _unpack(state)["state"]
    return {names[place]: own for place, own in held.items() if own}


def _unpack(data: bytes) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    return loaded


def _model_state(
    model: nn.Module, ranks: Mapping[int, dict[str, Any]]
) -> tuple[Tensors, dict[str, Any]]:
    """The model's state_dict with the buffers that the ranks agree on; what in it is no tensor."""
    state = model.state_dict()
    tensors = {name: value.detach() for name, value in state.items() if _is_tensor(value)}
    extra = {name: value for name, value in state.items() if not _is_tensor(value)}
    return {**tensors, **agreed_buffers(ranks, buffers.mean_of_variances(model))}, extra


def agreed_buffers(ranks: Mapping[int, dict[str, Any]], mean_of: Mapping[str, str]) -> Tensors:
    """The ranks' buffers as one, each counted by the samples that it saw.

    ``mean_of``: the name of the mean that a variance of this name is around.
    """
    holders = [part for part in ranks.values() if part["buffers"]]
    if not holders:
        return {}
    weights = [part["samples"] for part in holders]
    agreed = {}
    for name, first in holders[0]["buffers"].items():
        values = [part["buffers"][name] for part in holders]
        if name in mean_of:
            means = [part["buffers"][mean_of[name]] for part in holders]
            if not (_alike(values) and _alike(means)):
                together = buffers.combined_variance(values, means, weights)
                agreed[name] = together.to(first.dtype)
                continue
        agreed[name] = first if _alike(values) else buffers.combined(values, weights)
    return agreed


def _alike(values: list[torch.Tensor]) -> bool:
    return all(torch.equal(value, values[0]) for value in values)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _write_tensors(path: Path, tensors: Tensors) -> None:
    seen: set[int] = set()
    plain = {}
    for name, tensor in tensors.items():
        flat = tensor.cpu().contiguous()
        place = flat.untyped_storage().data_ptr()
        plain[name] = flat.clone() if place in seen else flat  # tied weights are written twice
        seen.add(place)
    try:
        save_file(plain, path)
    except SafetensorError as error:
        raise OSError(_errno_of(error), str(error)) from error
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _errno_of(error: SafetensorError) -> int:
    """The library says what the system said only in words: ``... (os error 28)``."""
    digits = str(error).rpartition("os error ")[2].partition(")")[0]
    return int(digits) if digits.isdigit() else 0
