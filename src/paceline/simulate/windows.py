"""What a simulated run consists of: who computed from when to when, and what became of it.

Both ways of simulating end here, the recurrence and the exact driver; every figure starts here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.simulate.draws import Floats

Wholes = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Windows:
    """One entry a window, in no particular order; all arrays have the same length.

    ``rank``; ``start_s`` and ``end_s``: of its computation; ``applied``: whether its push became part
    of an update; ``lag``: that push's version lag. ``workers``: how many there are; ``total_s``: when
    the last of the work asked for was decided.
    """

    workers: int
    total_s: float
    rank: Wholes
    start_s: Floats
    end_s: Floats
    applied: npt.NDArray[np.bool_]
    lag: Wholes
