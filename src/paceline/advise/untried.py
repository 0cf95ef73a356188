"""What was not tried, said as plainly as what was: by the user's wish, or because nothing here can judge it.

Knows no probe. A command is named that tries it.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

from paceline.advise.pace import Pace, knee_accumulation
from paceline.advise.plan import FAMILIES, knows_meetings, meeting_words

COMPRESSED = "sync compress=topk:0.01"
USUAL = ("local:8", "diloco:50")


def not_tried(
    pace: Pace, families: Collection[str], *, cluster: Sequence[str], script: Sequence[str]
) -> list[str]:
    """In sentences. ``cluster``: the words by which ``paceline compare`` takes the cluster's time, if it
    is not this machine's; ``script`` with its arguments."""
    untried = [family for family in FAMILIES if family not in families]
    said = [f"By --only not tried: {', '.join(untried)}."] if untried else []
    if not exchanges_cost(pace):
        return said
    meets = knows_meetings(pace) and "local" in families
    tries = [COMPRESSED] if meets else [*USUAL, COMPRESSED]
    words = ["paceline", "compare", "-n", str(pace.times.count), *cluster]
    words += [part for one in tries for part in ("--try", one)]
    names = "compress and hybrid" if meets else "local, diloco, compress and hybrid"
    return [
        *said,
        f"Not tried: {names}, though exchanging costs much here: advise cannot tell beforehand what they would "
        f"save. 'compare' shows it: {shlex.join([*words, *script])}",
    ]


def exchanges_cost(pace: Pace) -> bool:
    """Whether exchanges take so much that fewer, or smaller, ones would pay."""
    return bool(meeting_words(pace)) or knee_accumulation(pace) > 1
