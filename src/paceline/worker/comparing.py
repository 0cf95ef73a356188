"""What ranks compare, and agree on, before they share anything: what is trained, how, from which seed.

Knows no plane: nothing has been opened yet.
"""

from __future__ import annotations

import torch

from paceline.errors import MismatchError
from paceline.launch.context import Launch
from paceline.worker.agreement import Agreement
from paceline.worker.manifest import Manifest, describe, first_difference
from paceline.worker.session import Session
from paceline.worker.training import Training


def compare(session: Session, training: Training, told: dict[str, str]) -> None:
    """Raises MismatchError, on all ranks, if a rank's model, optimizer or what it was ``told`` (by name)
    is not rank 0's."""
    mine = describe(training.model, training.optimizer, training.trainables, told)
    everyone = session.gather("manifest", mine.encode())
    first = Manifest.decode(everyone[0])
    for rank, other in enumerate(everyone):
        difference = first_difference(first, Manifest.decode(other))
        if difference is not None:
            raise MismatchError(
                f"Ranks 0 and {rank} differ: {difference}. Every rank must build the same model and "
                "optimizer and give Worker the same options, and every host's command line must be the same."
            )


def agreed_seed(agreement: Agreement, launch: Launch) -> int:
    """Rank 0's: the one that it was told, else that of its random stream."""
    own = launch.seed if launch.seed is not None else torch.initial_seed()
    seed: int = agreement.gather("paceline.Worker", seed=own)[0]["seed"]
    return seed
