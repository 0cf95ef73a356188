"""Lean values are frozen dataclasses in every respect but what making one costs."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, asdict, dataclass, replace

import pytest

from paceline import events
from paceline.values import lean


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    x: int
    y: float = 0.5


def test_a_lean_value_is_made_compared_and_replaced_as_any_frozen_dataclass() -> None:
    point = Point(x=1)
    assert (point.x, point.y) == (1, 0.5)
    assert point == Point(x=1, y=0.5) != replace(point, x=2)
    assert hash(point) == hash(Point(x=1))
    assert asdict(point) == {"x": 1, "y": 0.5}
    assert repr(point) == "Point(x=1, y=0.5)"
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # type: ignore[misc]


def test_wrong_arguments_are_refused_and_name_the_class() -> None:
    with pytest.raises(TypeError, match=r"Point\.__init__.*x"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Point(1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="z"):
        Point(x=1, z=2)  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", [*events.Fact.__args__, *events.Order.__args__])
def test_every_fact_and_order_is_lean(kind: type) -> None:
    assert vars(kind)["__init__"].__code__.co_names[0].startswith("_set_")
