"""Puts a model's batch-norm layers into the mode that the user chose, and back at the end.

Only the instances' ``forward`` is replaced: modules, classes, state-dict keys and train/eval flags
stay as they are. Models without batch norm, a single worker and ``local`` are left alone entirely.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import nn
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm

from paceline.errors import UsageError
from paceline.worker.collective_plane import CollectivePlane
from paceline.worker.norm_modes import NormMode
from paceline.worker.plane import Plane
from paceline.worker.synced_norm import SyncedNorms

_TAG = "batch norm"

Layers = Mapping[str, _BatchNorm]


def norms_of(model: nn.Module) -> Layers:
    """The batch-norm layers by name, in the model's order, each once."""
    return {name: one for name, one in model.named_modules() if isinstance(one, _BatchNorm)}


def refuse_norms(layers: Layers, mode: NormMode, *, world_size: int) -> None:
    """Raises UsageError, naming the layer and the remedy, for layers that cannot be put into ``mode``."""
    for name, layer in layers.items():
        if isinstance(layer, SyncBatchNorm) and mode != "sync" and world_size > 1:
            raise UsageError(
                f"{name} is a torch.nn.SyncBatchNorm, which needs GPUs and hangs when a worker has no "
                "batch. Say batch_norm='sync', which works in its place, or build the model with "
                "BatchNorm layers."
            )
        if mode != "local" and not _is_plain(layer):
            raise UsageError(
                f"{name} is a {type(layer).__name__} with a forward of its own, which "
                f"batch_norm={mode!r} would replace. Use torch's BatchNorm1d/2d/3d or "
                "batch_norm='local'."
            )
        if mode == "freeze" and layer.running_mean is None:
            raise UsageError(
                f"{name} and batch_norm='freeze' cannot work together: it has no running statistics "
                "(track_running_stats=False). Use 'sync' or 'local'."
            )


def unseen(layers: Layers) -> str:
    """A notice on frozen layers whose statistics nothing has been learned from; "" if there are none."""
    names = [n for n, layer in layers.items() if int(layer.num_batches_tracked or 0) == 0]
    if not names:
        return ""
    return (
        f"batch_norm='freeze': {len(names)} of {len(layers)} batch-norm layers ({names[0]} is the "
        "first) have never seen a batch and normalise with mean 0 and variance 1. Load a trained "
        "model first, or begin with 'local'."
    )


class NormsInMode:
    """The layers of one model while a Worker lives. ``mode`` is what they are in."""

    def __init__(self, layers: Layers | None = None, mode: NormMode = "local") -> None:
        self.layers = layers or {}
        self.mode: NormMode = mode
        self._synced: SyncedNorms | None = None

    def freeze(self) -> None:
        """Normalise with running statistics from now on, in training too."""
        for layer in self.layers.values():
            vars(layer)["forward"] = partial(_frozen, layer)

    def join(self, plane: CollectivePlane) -> None:
        """Take statistics of all ranks' batches from now on. Every rank calls it."""
        self._synced = SyncedNorms(list(self.layers.values()), partial(_gather, plane))
        plane.hold(self._synced.meetings)

    def remove(self) -> None:
        """Give the layers back as they were found."""
        if self._synced is not None:
            self._synced.remove()
        elif self.mode == "freeze":
            for layer in self.layers.values():
                vars(layer).pop("forward", None)


def put_into_mode(layers: Layers, mode: NormMode, plane: Plane) -> NormsInMode:
    """``layers`` in ``mode``, on ``plane``. Every rank has to call it."""
    norms = NormsInMode(layers, mode)
    if layers and mode == "freeze":
        norms.freeze()
    elif layers and mode == "sync" and isinstance(plane, CollectivePlane):
        norms.join(plane)
    return norms


def _gather(plane: Plane, message: torch.Tensor) -> list[torch.Tensor]:
    """All ranks' messages, through the server: on one host that takes a quarter of the time that gloo
    takes (docs/batch_norm.md), and the order of the gradients' collectives stays their own."""
    payloads = plane.gather(_TAG, message.numpy().tobytes())
    return [torch.frombuffer(bytearray(one), dtype=message.dtype) for one in payloads]


def _frozen(layer: _BatchNorm, inputs: torch.Tensor) -> torch.Tensor:
    """Batch norm as in eval mode; its weight and bias still get gradients."""
    layer._check_input_dim(inputs)  # type: ignore[no-untyped-call]
    return nn.functional.batch_norm(
        inputs, layer.running_mean, layer.running_var, layer.weight, layer.bias, eps=layer.eps
    )


def _is_plain(layer: _BatchNorm) -> bool:
    return type(layer).forward in (_BatchNorm.forward, SyncBatchNorm.forward)
