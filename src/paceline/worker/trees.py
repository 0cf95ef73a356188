"""Nested state as JSON and named tensors, and back, without pickle.

Dictionaries, lists, tuples and plain values become JSON (what JSON does not know gets a tag);
tensors are taken out and named by where they were. Knows nothing of what the state means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from paceline.errors import CheckpointError

_PLAIN = (bool, int, float, str, type(None))
Tensors = dict[str, torch.Tensor]


def flatten(tree: Any, name: str, tensors: Tensors) -> Any:
    """``tree`` as JSON; its tensors go into ``tensors`` under names that begin with ``name``.

    Raises CheckpointError for values of other types, naming them.
    """
    if isinstance(tree, torch.Tensor):
        tensors[name] = tree.detach()
        return {"$tensor": name}
    if isinstance(tree, np.generic):
        return tree.item()
    if isinstance(tree, _PLAIN):
        return tree
    if isinstance(tree, Mapping):
        return _flatten_mapping(tree, name, tensors)
    if isinstance(tree, list | tuple):
        items = [flatten(item, f"{name}/{place}", tensors) for place, item in enumerate(tree)]
        return {"$tuple": items} if isinstance(tree, tuple) else items
    raise CheckpointError(
        f"{name}: a value of type {type(tree).__qualname__} cannot be kept in a checkpoint "
        "(tensors, numbers, text, and lists, tuples and dictionaries of them can)."
    )


def unflatten(plain: Any, tensors: Tensors) -> Any:
    """The tree that :func:`flatten` made ``plain`` and ``tensors`` of."""
    if isinstance(plain, list):
        return [unflatten(item, tensors) for item in plain]
    if not isinstance(plain, dict):
        return plain
    match plain:
        case {"$tensor": str(name)}:
            return tensors[name]
        case {"$tuple": items}:
            return tuple(unflatten(item, tensors) for item in items)
        case {"$pairs": pairs}:
            return {key: unflatten(value, tensors) for key, value in pairs}
        case {"$counter": pairs}:
            return Counter(dict(pairs))
    return {key: unflatten(value, tensors) for key, value in plain.items()}


def _flatten_mapping(tree: Mapping[Any, Any], name: str, tensors: Tensors) -> Any:
    if isinstance(tree, Counter):
        return {"$counter": [list(pair) for pair in tree.items()]}
    items = {key: flatten(value, f"{name}/{key}", tensors) for key, value in tree.items()}
    if all(isinstance(key, str) and not key.startswith("$") for key in items):
        return items
    return {"$pairs": [list(pair) for pair in items.items()]}
