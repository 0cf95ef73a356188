"""Holds what one worker says of a window against what others said of theirs, without anyone waiting.

Whoever comes to a window that another has been to is compared with it and told at once. Knows facts
by name only: no tensors, no planes.
"""

from __future__ import annotations

from paceline.transport.facts import compare
from paceline.transport.witness_messages import Fact, Witness, Witnessed

KEPT_WINDOWS = 1024
"""Windows that not everybody has come to; who is further behind the others is not compared."""


class Witnesses:
    """``world_size``: how many come to each window."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._heard: dict[tuple[int, int], dict[int, Witness]] = {}
        self._last: dict[str, Fact] = {}
        self._named: set[str] = set()

    def compare(self, rank: int, witness: Witness) -> Witnessed:
        """What ``rank`` is told about its ``witness``."""
        key = (witness.pass_id, witness.index)
        known = self._heard.setdefault(key, {})
        known[rank] = self._kept(witness)
        difference = compare({one: of.facts for one, of in known.items()})
        if len(known) == self._world_size:
            del self._heard[key]
        elif len(self._heard) > KEPT_WINDOWS:
            del self._heard[next(iter(self._heard))]
        return Witnessed(difference=difference)

    def used_by_some(self, rank: int, witness: Witness) -> list[str]:
        """A sentence for each parameter that has a gradient on one rank and none on another.

        Each is named once. To be called before :meth:`compare`.
        """
        found = []
        for other, heard in self._heard.get((witness.pass_id, witness.index), {}).items():
            for name in sorted((set(witness.unused) ^ set(heard.unused)) - self._named):
                self._named.add(name)
                without, having = (rank, other) if name in witness.unused else (other, rank)
                found.append(
                    f"{name} has a gradient on rank {having} and none on rank {without}, in window "
                    f"{witness.index} of pass {witness.pass_id}; where updates are joint the missing "
                    "one counts as zero"
                )
        return found

    def _kept(self, witness: Witness) -> Witness:
        """What is remembered: facts that did not change since the last witness are kept once."""
        if witness.facts != self._last:
            self._last = witness.facts
        return Witness(
            pass_id=witness.pass_id, index=witness.index, facts=self._last, unused=witness.unused
        )
