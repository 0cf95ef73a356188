"""A window's gradients in one flat piece of memory, filled by autograd through parameter hooks.

A parameter's first gradient of a window is copied into its view and the view becomes its ``.grad``;
later micro-batches then accumulate in place. So ``.grad`` stays None for what was not used, and not
a bit (the sign of a zero included) differs from plain accumulation. Whose memory it is, and where
the gradients go, is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from paceline.errors import UsageError
from paceline.gradients.layout import FlatLayout
from paceline.gradients.norms import first_non_finite


class GradientBuffer:
    """Gradients of ``parameters`` (in the layout's order) in ``memory`` (uint8, on their device)."""

    def __init__(
        self, layout: FlatLayout, memory: torch.Tensor, parameters: Sequence[torch.nn.Parameter]
    ) -> None:
        self._names = [slot.name for slot in layout.slots]
        self._views = layout.views(memory)
        self.vectors = layout.vectors(memory)
        self._parameters = list(parameters)
        self._used = bytearray(len(self._parameters))
        self._armed = False
        self._handles = [
            parameter.register_post_accumulate_grad_hook(partial(self._accumulated, place))  # type: ignore[no-untyped-call]
            for place, parameter in enumerate(self._parameters)
        ]

    def arm(self) -> None:
        """Expect gradients from now until :meth:`clear`."""
        self._armed = True

    def used(self) -> bytes:
        """One byte a parameter: 1 if it has a gradient in this window."""
        return bytes(self._used)

    def first_bad(self) -> int | None:
        """The first parameter whose gradient holds a NaN or an infinity, else None.

        A sum is not finite if any of its terms is not: one pass over memory, and no temporary,
        clears the usual case.
        """
        if all(_sum_is_finite(vector) for vector in self.vectors):
            return None
        return first_non_finite(self._parameters)

    def fill_unused(self) -> None:
        """Zeros where this window has no gradient: what another worker's is added to."""
        for place, view in enumerate(self._views):
            if not self._used[place]:
                view.zero_()

    def discard(self) -> None:
        """Forget this window's gradients, as if nothing had been computed."""
        self._used = bytearray(len(self._parameters))
        for vector in self.vectors:
            vector.zero_()

    def divide(self, divisor: float) -> None:
        if divisor != 1.0:
            for vector in self.vectors:
                vector.div_(divisor)

    def show(self, used: Sequence[int]) -> None:
        """Let ``.grad`` of the ``used`` parameters be the views, None for all others."""
        for place, parameter in enumerate(self._parameters):
            parameter.grad = self._views[place] if used[place] else None

    def clear(self) -> None:
        """The window is over: no gradients, and none expected."""
        self._armed = False
        self._used = bytearray(len(self._parameters))
        for parameter in self._parameters:
            parameter.grad = None

    def close(self) -> None:
        """Give the parameters back as they were found, without gradients."""
        self.clear()
        for handle in self._handles:
            handle.remove()

    def _accumulated(self, place: int, parameter: torch.Tensor) -> None:
        gradient, view = parameter.grad, self._views[place]
        if not self._armed:
            parameter.grad = None
            raise stray_backward(self._names[place])
        if gradient is None or gradient is view:
            return
        if gradient.layout != torch.strided:
            raise UsageError(
                f"{self._names[place]} has a sparse gradient, which cannot be joined between "
                f"workers. Build its layer with sparse=False."
            )
        view.copy_(gradient.detach())
        parameter.grad = view
        self._used[place] = 1


def stray_backward(name: str) -> UsageError:
    """The error for a gradient (of parameter ``name``) that came outside ``worker.step``."""
    return UsageError(
        f"A gradient of {name} was computed outside worker.step. Delete the line "
        f"`loss.backward()`: worker.step(loss) runs the backward pass."
    )


def _sum_is_finite(vector: torch.Tensor) -> bool:
    wide = torch.promote_types(vector.dtype, torch.float32)
    return bool(torch.isfinite(vector.sum(dtype=wide)))
