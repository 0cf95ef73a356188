"""Where a run stands at one moment, for a checkpoint. Decides nothing: it reads what others keep."""

from __future__ import annotations

from paceline.events import Cut
from paceline.policy.decisions import Ledger
from paceline.policy.passes import Passes
from paceline.policy.roster import Roster
from paceline.policy.rounds import Round


def cut(rank: int, *, ledger: Ledger, roster: Roster, passes: Passes, held: Round) -> Cut:
    """What ``rank`` is given to write. Pushes that are ``held`` are not decided, so not inside."""
    members = roster.in_order()
    pass_id, left = passes.left(held.held)
    return Cut(
        rank=rank,
        version=ledger.version,
        progress=ledger.progress,
        ranks=tuple(member.rank for member in members),
        clocks=tuple(member.clock for member in members),
        pass_id=pass_id,
        left=left,
        reason="asked for",
    )
