"""In which phase a worker's wait for a processor fell, of which only the length is on record.

Whatever phase was interrupted lasted longer than it usually does. Knows arrays, no records.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def without_queueing(parts: Mapping[str, Floats], queued_s: Floats) -> dict[str, Floats]:
    """``parts`` without what ``queued_s`` took of them; all of shape (windows, workers), in seconds.

    Divided by what each part exceeds its worker's median by, and never more than that: a part that
    is not longer than usual was not interrupted.
    """
    over_s = {
        name: np.maximum(own_s - np.median(own_s, axis=0), 0.0) for name, own_s in parts.items()
    }
    total_s = sum(over_s.values(), np.zeros_like(queued_s))
    share = np.minimum(queued_s, total_s) / np.where(total_s > 0, total_s, 1.0)
    return {name: own_s - over_s[name] * share for name, own_s in parts.items()}
