"""Which of a model's buffers its forward changes, such as the statistics of batch norm.

Those differ between ranks during a pass, by right; a buffer that only something outside of forward
has changed does not. Sees torch's count of the writes to a tensor, never its values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn


class MovingBuffers:
    """The names of buffers of ``model`` that a forward has changed so far: ``in``.

    ``statistics``: those of torch's normalisation layers count from the start.
    """

    def __init__(self, model: nn.Module, *, statistics: bool = True) -> None:
        self._model = model
        self._before: dict[str, tuple[int, int]] = {}
        self._found = set(_statistics(model)) if statistics else set()
        self._handles = [
            model.register_forward_pre_hook(self._begin),
            model.register_forward_hook(self._end, always_call=True),
        ]

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def remove(self) -> None:
        """Look no longer."""
        for handle in self._handles:
            handle.remove()

    def _begin(self, *_: Any) -> None:
        self._before = self._writes()

    def _end(self, *_: Any) -> None:
        now = self._writes()
        self._found.update(name for name in now if now[name] != self._before.get(name))

    def _writes(self) -> dict[str, tuple[int, int]]:
        return {name: (id(one), one._version) for name, one in self._model.named_buffers()}


def _statistics(model: nn.Module) -> Iterator[str]:
    for prefix, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._NormBase):
            for name, _ in module.named_buffers(prefix, recurse=False):
                yield name
