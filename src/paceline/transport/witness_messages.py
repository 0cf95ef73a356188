"""What is said so that everybody can see whether all ranks have what must be equal.

Beside :mod:`paceline.transport.messages`; on a worker's data connection, request and reply.
"""

from __future__ import annotations

import msgspec

from paceline.transport.messages import Message


class Fact(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One thing that must be equal on all ranks: ``value`` is compared, ``shown`` is for people.

    ``value`` None: it exists here, and what it is cannot be compared now.
    """

    value: str | None
    shown: str


class Witness(Message, frozen=True, kw_only=True):
    """How things stand with this worker in window ``index`` of a pass. Reply: Witnessed, at once.

    ``facts`` by what they are about; ``unused``: parameters without a gradient in this window.
    """

    pass_id: int
    index: int
    facts: dict[str, Fact]
    unused: list[str]


class Said(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What ``rank`` says about something; None if there is no such thing there."""

    rank: int
    shown: str | None


class Difference(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """``about``: the first thing in which ranks differ; ``said``: by each; ``more``: what else differs."""

    about: str
    said: list[Said]
    more: list[str]


class Witnessed(Message, frozen=True, kw_only=True):
    """How the workers that have come to the window differ, if they do."""

    difference: Difference | None


class Vouch(Message, frozen=True, kw_only=True):
    """Say what the version that this worker has must be. Reply: Vouched."""


class Vouched(Message, frozen=True, kw_only=True):
    """A fact about each parameter, in the manifest's order."""

    facts: list[Fact]
