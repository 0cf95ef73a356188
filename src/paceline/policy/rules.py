"""What each strategy means, compiled once into four answers; nothing else in the policy asks which it is.

=============  ===========  ===============================  ==========================  =============
strategy       lead bound   pushes that make an update       batches                     a death
=============  ===========  ===============================  ==========================  =============
``sync``       0            all of the round                 dealt in whole rounds       halts the run
``ssp:0``      0            all of the round                 dealt in whole rounds       halts the run
``backup:b``   0            the first N - b of the round     leased on demand            goes on
``ssp:s``      s            each one                         leased on demand            goes on
``async``      no bound     each one                         leased on demand            goes on
=============  ===========  ===============================  ==========================  =============

``sync:server:continue`` is sync whose deaths do not halt.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from paceline.strategies import SSP, Backup, Strategy, Sync, outer_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """One strategy's answers.

    ``lead_clocks``: a worker starts iff its clock - floor <= this. ``quorum``: pushes that make an
    update, if that many members are left (inf: all of them). ``joint``: pushes wait for their
    round; otherwise each is decided alone. ``dealt``: whole rounds of batches are dealt to those
    who are there when a pass opens; otherwise whoever needs batches gets the next ones.
    ``halts``: no death is survived. ``mean``: a lone push makes a step of its share of the weight.
    """

    lead_clocks: float
    quorum: float
    joint: bool
    dealt: bool
    halts: bool
    mean: bool

    def why_start(self, lead: int) -> str:
        """Why a worker that leads the floor by ``lead`` clocks may start."""
        if self.joint:
            return "its round is open"
        if self.lead_clocks == inf:
            return "no bound"
        return f"lead {lead} <= {self.lead_clocks:.0f}"


def rules_of(strategy: Strategy, world_size: int) -> Rules:
    """The rules of ``strategy`` for ``world_size`` workers."""
    strategy = outer_of(strategy)
    if isinstance(strategy, Sync):
        return _all_together(halts=strategy.on_death == "stop")
    if isinstance(strategy, Backup):
        return _first_of_round(max(1, world_size - int(strategy.spares)))
    assert isinstance(strategy, SSP), f"{strategy} has no coordinator"
    if strategy.staleness == 0:
        return _all_together(halts=True)
    return _each_push(strategy)


def _all_together(*, halts: bool) -> Rules:
    return Rules(lead_clocks=0, quorum=inf, joint=True, dealt=True, halts=halts, mean=False)


def _first_of_round(quorum: int) -> Rules:
    return Rules(lead_clocks=0, quorum=quorum, joint=True, dealt=False, halts=False, mean=False)


def _each_push(strategy: SSP) -> Rules:
    return Rules(
        lead_clocks=strategy.staleness,
        quorum=1,
        joint=False,
        dealt=False,
        halts=False,
        mean=strategy.push_scale == "mean",
    )
