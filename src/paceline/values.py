"""Frozen values that are cheap to make, and text that says exactly which number is meant.

The policy alone makes five values for every window.

The ``__init__`` of a frozen dataclass stores each field through ``object.__setattr__``, which looks
its name up; a slot's own setter stores it at once. That is the only difference :func:`lean` makes.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

_T = TypeVar("_T")


def lean(cls: type[_T]) -> type[_T]:
    """Give ``cls``, a frozen, keyword-only dataclass with slots, an ``__init__`` half as dear."""
    declared = fields(cls)  # type: ignore[arg-type]
    known: dict[str, Any] = {}
    for field in declared:
        known[f"_set_{field.name}"] = vars(cls)[field.name].__set__
        known[f"_default_{field.name}"] = field.default
    parameters = ", ".join(_parameter(field) for field in declared)
    stores = "; ".join(f"_set_{field.name}(self, {field.name})" for field in declared)
    exec(f"def __init__(self, *, {parameters}): {stores}", known)
    made = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = made  # type: ignore[method-assign]
    return cls


def exact(number: float) -> str:
    """The shortest text that ``float`` reads as the same number: for whatever is printed and read again."""
    return repr(float(number)).removesuffix(".0")


def _parameter(field: Field[Any]) -> str:
    return field.name if field.default is MISSING else f"{field.name}=_default_{field.name}"
