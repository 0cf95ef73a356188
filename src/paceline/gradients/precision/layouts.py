"""Where the gradients of parameters lie: as the parameters do, but in float32 at least."""

from __future__ import annotations

from paceline.gradients.layout import FlatLayout, layout_of
from paceline.gradients.precision.plan import wide


def gradients_of(parameters: FlatLayout) -> FlatLayout:
    """The layout of gradients (and of masters). The same one if no parameter has 16 bits."""
    if all(wide(slot.dtype) == slot.dtype for slot in parameters.slots):
        return parameters
    return layout_of(
        [(slot.name, slot.shape, slot.stride, wide(slot.dtype)) for slot in parameters.slots],
        parameters.order,
    )
