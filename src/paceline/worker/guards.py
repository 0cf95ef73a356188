"""What a plain training loop does itself and must not do beside a Worker: an error names the line.

Left-over ``optimizer.step()``, ``zero_grad()`` and ``add_param_group()`` are caught here (a left-over
``loss.backward()`` by the planes' gradient hooks). Everything is put back by :meth:`Guards.remove`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from paceline.errors import UsageError

_STEP = (
    "optimizer.step() was called beside paceline.Worker, which steps the optimizer itself at the "
    "end of a window. Delete the line 'optimizer.step()'."
)
_ADD_GROUP = (
    "optimizer.add_param_group() was called after paceline.Worker was constructed: the other ranks "
    "do not know the new parameters. Add all groups before Worker(...)."
)


class Guards:
    """Guards on one model and optimizer. Within ``with guards:`` the optimizer may step."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._allowed = False
        self._owners = (vars(model), vars(optimizer))
        self._step_hook = optimizer.register_step_pre_hook(self._before_step)
        # A plain function's partial, so that the model can still be pickled and copied.
        vars(model)["zero_grad"] = partial(_refuse_zero_grad, "model")
        vars(optimizer)["zero_grad"] = partial(_refuse_zero_grad, "optimizer")
        vars(optimizer)["add_param_group"] = _refuse_add_group

    def __enter__(self) -> None:
        self._allowed = True

    def __exit__(self, *_: object) -> None:
        self._allowed = False

    def remove(self) -> None:
        """Leave model and optimizer as they were found."""
        self._step_hook.remove()
        for attributes in self._owners:
            for name in ("zero_grad", "add_param_group"):
                attributes.pop(name, None)

    def _before_step(self, *_: Any) -> None:
        if not self._allowed:
            raise UsageError(_STEP)


def _refuse_zero_grad(owner: str, *_: Any, **__: Any) -> None:
    raise UsageError(
        f"{owner}.zero_grad() was called beside paceline.Worker, which clears gradients itself at "
        f"the end of a window. Delete the line '{owner}.zero_grad()'."
    )


def _refuse_add_group(*_: Any, **__: Any) -> None:
    raise UsageError(_ADD_GROUP)
