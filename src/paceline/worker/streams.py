"""Random streams: what a worker draws from, read and put back, so that a resumed run draws on.

The global streams of python, numpy, torch and the model's device, and the generators that loaders
and their samplers have of their own. (Processes of a DataLoader have streams that nobody can reach.)
"""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np
import torch

Streams = dict[str, Any]


def capture(device: torch.device) -> Streams:
    """Where the global streams stand."""
    python_version, python_keys, gauss = random.getstate()
    name, keys, *rest = np.random.get_state()
    return {
        "python": (python_version, torch.tensor(python_keys), gauss),
        "numpy": (name, torch.from_numpy(np.array(keys, dtype=np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "device": _on_device("get_rng_state", device) if device.type != "cpu" else None,
    }


def restore(streams: Streams, device: torch.device) -> None:
    """Put the global streams where they stood when ``streams`` was captured."""
    python_version, python_keys, gauss = streams["python"]
    random.setstate((python_version, tuple(python_keys.tolist()), gauss))
    name, keys, *rest = streams["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(streams["torch"])
    if streams["device"] is not None and device.type != "cpu":
        _on_device("set_rng_state", device, streams["device"])


def _on_device(call: str, device: torch.device, *state: torch.Tensor) -> torch.Tensor:
    which = () if device.type == "mps" else (device,)  # there is one of these only
    stream: torch.Tensor = getattr(torch.get_device_module(device), call)(*state, *which)
    return stream


def begin_anew(seed: int, *, rank: int, version: int) -> None:
    """Streams for a rank of which none are known: no other's, and not those of the run's start."""
    digest = hashlib.sha256(f"rank {seed} {rank} from version {version}".encode()).digest()
    own = int.from_bytes(digest[:7], "little")
    torch.manual_seed(own)
    random.seed(own)
    np.random.seed(own % 2**32)


class LoaderGenerators:
    """The generators of the loaders that training has read, in the order in which they came."""

    def __init__(self) -> None:
        self._loaders: list[Any] = []

    def meet(self, loader: Any) -> None:
        """``loader`` is read now."""
        if not any(known is loader for known in self._loaders):
            self._loaders.append(loader)

    def capture(self) -> list[list[torch.Tensor]]:
        """Where they stand."""
        return [[g.get_state() for g in _generators(loader)] for loader in self._loaders]

    def restore(self, states: list[list[torch.Tensor]]) -> None:
        """Put those that were known then where they stood."""
        for loader, own in zip(self._loaders, states, strict=False):
            for generator, state in zip(_generators(loader), own, strict=False):
                generator.set_state(state)


def _generators(loader: Any) -> list[torch.Generator]:
    batch_sampler = getattr(loader, "batch_sampler", None)
    holders = (
        loader,
        getattr(loader, "sampler", None),
        batch_sampler,
        getattr(batch_sampler, "sampler", None),
    )
    found = [getattr(holder, "generator", None) for holder in holders]
    return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())
