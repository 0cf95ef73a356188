"""The two forms of momentum that a worker can keep of its own gradients: SGD's and Adam's first moment.

Each is a pair: what becomes of a gradient here, and what is then left to do for the server's
optimizer. Both in Nesterov's form (the newest gradient is counted once more), which looks ahead by
what this worker is about to add itself. Knows neither windows nor messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

Tensors = list[torch.Tensor]
Group = Mapping[str, Any]


class MomentumForm(Protocol):
    """``key``: where torch's optimizer keeps it. ``whole``: that is all the state which the optimizer has.
    ``counted``: it depends on how many gradients were taken in.
    """

    key: str
    whole: bool
    counted: bool

    def decay(self, gradients: Tensors, parameters: Tensors, group: Group) -> None:
        """What torch's optimizer does to gradients first: sign, and decay that goes through them."""

    def turn(self, gradients: Tensors, kept: Tensors, counts: Sequence[int], group: Group) -> None:
        """In place: ``kept`` (zeros at first) takes the ``gradients`` in, they become what is pushed.

        ``counts``: how many each has taken in then.
        """

    def left(self, group: dict[str, Any], workers: int) -> dict[str, Any]:
        """The hyper-parameters of the server's optimizer, which gets all ``workers``' pushes."""


class SGDMomentum:
    """``v <- m v + g``, pushed: ``m v + g``; the server subtracts (DANA-Slim, Hakimi et al. 2019).

    The sum over workers is the momentum of the sum: without delay it is Nesterov's SGD.
    """

    key = "momentum_buffer"
    whole = True
    counted = False

    def decay(self, gradients: Tensors, parameters: Tensors, group: Group) -> None:
        _decay(gradients, parameters, group)

    def turn(self, gradients: Tensors, kept: Tensors, counts: Sequence[int], group: Group) -> None:
        if group["momentum"]:
            torch._foreach_mul_(kept, group["momentum"])
            torch._foreach_add_(kept, gradients)
            torch._foreach_add_(gradients, kept, alpha=group["momentum"])

    def left(self, group: dict[str, Any], workers: int) -> dict[str, Any]:
        return {**group, **_DECAYED, "momentum": 0.0, "nesterov": False}


class AdamMomentum:
    """``m <- b1 m + (1 - b1) g``, pushed: ``(b1 m + (1 - b1) g) / (1 - b1 ** (k + 1))`` (k: how many it
    has taken in); the server divides by the root of the second moment of what all workers push, with
    ``b2 ** (1 / workers)`` as it gets so many a round.

    A second moment needs many gradients and suffers little from delay: it is shared. The correction is
    Adam's own, for the numerator of Nesterov's form. ``decoupled``: the class's weights decay beside
    the gradient, unless a group says otherwise.
    """

    key = "exp_avg"
    whole = False
    counted = True

    def __init__(self, *, decoupled: bool) -> None:
        self._decoupled = decoupled

    def decay(self, gradients: Tensors, parameters: Tensors, group: Group) -> None:
        if not self._decays_beside(group):
            _decay(gradients, parameters, group)

    def turn(self, gradients: Tensors, kept: Tensors, counts: Sequence[int], group: Group) -> None:
        first = float(group["betas"][0])
        torch._foreach_lerp_(kept, gradients, 1 - first)
        torch._foreach_lerp_(gradients, kept, first)
        torch._foreach_div_(gradients, [1 - first ** (count + 1) for count in counts])

    def left(self, group: dict[str, Any], workers: int) -> dict[str, Any]:
        betas = [0.0, float(group["betas"][1]) ** (1 / workers)]
        return {**group, **({} if self._decays_beside(group) else _DECAYED), "betas": betas}

    def _decays_beside(self, group: Group) -> bool:
        return bool(group.get("decoupled_weight_decay", self._decoupled))


FORMS: dict[type[torch.optim.Optimizer], MomentumForm] = {
    torch.optim.SGD: SGDMomentum(),
    torch.optim.Adam: AdamMomentum(decoupled=False),
    torch.optim.AdamW: AdamMomentum(decoupled=True),
}
"""The optimizers whose momentum a worker can keep by itself."""

_DECAYED = {"weight_decay": 0.0, "maximize": False}


def _decay(gradients: Tensors, parameters: Tensors, group: Group) -> None:
    if group["maximize"]:
        torch._foreach_neg_(gradients)
    if group["weight_decay"]:
        torch._foreach_add_(gradients, parameters, alpha=group["weight_decay"])
