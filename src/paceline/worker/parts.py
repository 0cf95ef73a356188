"""What all pieces of one Worker share. A plain holder: it decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from paceline.gradients.precision.plan import PLAIN, Precision
from paceline.launch.context import Launch
from paceline.policy.grouping import Groups
from paceline.worker.agreement import Agreement
from paceline.worker.batch_norm import NormsInMode
from paceline.worker.emulation import Pace
from paceline.worker.guards import Guards
from paceline.worker.journal import Journal
from paceline.worker.moments import Moments
from paceline.worker.options import Options
from paceline.worker.outside import OutsideChanges
from paceline.worker.phases import Phases
from paceline.worker.plane import Plane
from paceline.worker.scheduling import Schedules


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """``trained``: the optimizer's parameters; ``seed``: of the run, equal on all ranks. ``groups``: of
    ranks that push as one, under a strategy that has any."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    trained: Sequence[nn.Parameter]
    device: torch.device
    plane: Plane
    agreement: Agreement
    options: Options
    launch: Launch
    seed: int
    journal: Journal
    phases: Phases
    guards: Guards
    outside: OutsideChanges
    schedules: Schedules
    pace: Pace
    norms: NormsInMode = field(default_factory=NormsInMode)
    precision: Precision = PLAIN
    moments: Moments = field(default_factory=Moments)
    groups: Groups = ()
