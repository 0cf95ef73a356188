"""Every decision of a run: who may start, on which batches, what makes an update, what is dropped.

Read :mod:`.rules` first (the strategies as one table), then :mod:`.coordinator` (the state machine
as another). :mod:`.schedule` is for the plane that has no coordinator. Nothing here does I/O, reads
a clock, draws a random number or knows torch.
"""

from paceline.policy.coordinator import Coordinator
from paceline.policy.rules import Rules, rules_of
from paceline.policy.schedule import batches_before, updates_in_pass, window_batches
from paceline.policy.weighting import divisor, window_unit

__all__ = [
    "Coordinator",
    "Rules",
    "batches_before",
    "divisor",
    "rules_of",
    "updates_in_pass",
    "window_batches",
    "window_unit",
]
