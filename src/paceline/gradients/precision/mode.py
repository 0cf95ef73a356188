"""What a mode of precision is: a type to compute in, and what it cannot work with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

Types = frozenset[torch.dtype]
SIXTEEN_BIT = frozenset({torch.float16, torch.bfloat16})


@dataclass(frozen=True, kw_only=True, slots=True)
class Mode:
    """``autocast``: the type that torch casts to in forward, None if it casts nothing.

    ``refusal(types)``: why it cannot train parameters of these types and what to do, or "".
    ``computes(types)``: the types that forward computes in.
    """

    name: str
    autocast: torch.dtype | None
    refusal: Callable[[Types], str]

    def computes(self, parameters: Types) -> Types:
        """In which types matrices are multiplied."""
        return parameters if self.autocast is None else frozenset({self.autocast})

    def context(self, device_type: str) -> AbstractContextManager[None]:
        """What forward runs in."""
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(device_type, self.autocast)


def refusal_of_autocast(name: str, types: Types) -> str:
    """Autocast is made for float32 parameters: why other ``types`` cannot be, or ""."""
    if torch.float64 in types:
        return (
            f"precision={name!r} and float64 parameters cannot work together: autocast would compute "
            "in 16 bits what is kept in 64. Use precision='fp32', which leaves the model's types as "
            "they are, or model.float()."
        )
    if types & SIXTEEN_BIT:
        return (
            f"precision={name!r} and 16-bit parameters cannot work together: autocast is for float32 "
            "parameters, and these compute in 16 bits without it. Use precision='fp32', which leaves "
            "the model's types as they are, or model.float()."
        )
    return ""
