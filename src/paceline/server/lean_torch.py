"""Keeps torch's compiler out of the server process, which never compiles.

Every torch optimizer imports ``torch._dynamo`` when it is built, only to keep the compiler off its
methods: 1 s of CPU and 70 MB here. In a process where nothing is ever compiled there is nothing to
keep off. Must not be used where a user's code runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class _NoCompiler(ModuleType):
    """What ``torch.optim`` asks of ``torch._dynamo``; anything else is an AttributeError."""

    @staticmethod
    def disable(function: Callable[..., Any], *_: Any, **__: Any) -> Callable[..., Any]:
        return function

    @staticmethod
    def graph_break(*_: Any, **__: Any) -> None:
        return None


def leave_out_the_compiler() -> None:
    """To be called before anything imports torch."""
    assert "torch" not in sys.modules
    sys.modules["torch._dynamo"] = _NoCompiler("torch._dynamo")
