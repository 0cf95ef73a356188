"""All that ``paceline doctor`` looks at, gathered, before anything is said of it."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.doctor.cards import Card
from paceline.doctor.interfaces import Interface
from paceline.doctor.machine import Machine
from paceline.doctor.speed import Speeds


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """``threads``: that torch would use in each process by itself; None if it was not asked. ``address``: what
    this machine's own name resolves to, "" if to nothing; ``chosen``: the interface that the environment
    chooses ("" if none) and ``chosen_by``, the variable. ``hosts``: on how many the user wants to train.
    ``speeds`` is None where nothing was measured, ``unmeasured`` why."""

    machine: Machine
    threads: int | None
    interfaces: tuple[Interface, ...]
    host: str
    address: str
    chosen: str
    chosen_by: str
    address_interface: str
    hosts: int
    cards: tuple[Card, ...]
    cards_known: bool
    speeds: Speeds | None
    unmeasured: str = ""
