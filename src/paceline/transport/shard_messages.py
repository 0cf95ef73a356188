"""What a shard in a process of its own hears and says, beside :mod:`paceline.transport.messages`.

It has three kinds of connections:

* to the server, which it calls on: ``Hello`` (role "shard"), ``Standing``, then ``Beat`` every second,
  ``Came`` and ``Lost``; nothing comes back. Its end is the shard's.
* from the server (``Hello`` of role "hub"): orders, carried out one after the other; those with a reply
  say which.
* from each worker (``Hello`` of role "data"): ``Enter`` (reply ``Entered``), then, window after window,
  the bytes of its gradients as frames (none if it shares memory with the shard) and ``Laid``; ``Given``
  beside each reply of the server's that speaks of parameters.

Orders have one order, and name no versions: what a worker is given is what all orders before have made.
"""

from __future__ import annotations

from typing import Any

import msgspec

from paceline.transport.messages import Message, Open


class Standing(Message, frozen=True, kw_only=True):
    """Where the shard listens: ``socket`` to processes of its own ``host``
    (:func:`paceline.launch.hosts.identity`), ``address`` (``tcp://HOST:PORT``) to all others."""

    address: str
    socket: str
    host: str


class Came(Message, frozen=True, kw_only=True):
    """A push of ``rank``'s is here, as far as it is this shard's."""

    rank: int
    generation: int


class Lost(Message, frozen=True, kw_only=True):
    """The connection of ``rank`` ended, or was closed for what came over it."""

    rank: int
    generation: int


# ------------------------------------------------------------------------------------ orders


class SetUp(Message, frozen=True, kw_only=True):
    """A generation begins: forget the one before. ``owners``: each parameter's shard; ``opening``: rank
    0's, whose ``initial`` is the bytes of shard ``number`` one after the other. Reply: Done."""

    number: int
    generation: int
    owners: list[int]
    opening: Open


class Done(Message, frozen=True, kw_only=True):
    """``trouble``: why it cannot be done, "" if it is."""

    trouble: str = ""


class Give(Message, frozen=True, kw_only=True):
    """``rank`` reads the latest version from now on; ``glance``: beside the one that it has."""

    rank: int
    glance: bool


class Show(Message, frozen=True, kw_only=True):
    """Let ``rank`` have what it was given: see Given."""

    rank: int
    glance: bool


class TakeBack(Message, frozen=True, kw_only=True):
    """``rank`` reads nothing until it is given something."""

    rank: int


class Vacate(Message, frozen=True, kw_only=True):
    """``rank`` is gone, and no push of it is to be decided."""

    rank: int


class SetGroups(Message, frozen=True, kw_only=True):
    """The optimizer's groups have these hyper-parameters."""

    groups: list[dict[str, Any]]


class Laying(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A push as it goes into a sum: see :class:`paceline.server.joint.Part`."""

    rank: int
    used: bytes
    norm: float


class Sum(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """See :class:`paceline.server.shards.Update`."""

    pushes: list[Laying]
    divisor: float
    lr_scale: float


class Apply(Message, frozen=True, kw_only=True):
    """Sum and step, one after the other: no norm is in question. Reply: Squares."""

    sums: list[Sum]


class Squares(Message, frozen=True, kw_only=True):
    """For each sum, the sum of squares of each tile that this shard has."""

    values: list[list[float]]


class JoinUp(Message, frozen=True, kw_only=True):
    """Sum, and do not step yet. Reply: Norms."""

    sum: Sum


class Norms(Message, frozen=True, kw_only=True):
    """Of the gradient of each parameter that this shard has and that has one; ``finite``: whether all
    their values are."""

    values: list[float]
    finite: bool


class Move(Message, frozen=True, kw_only=True):
    """Step what was joined up, whose ``norm`` is that of all shards."""

    norm: float
    clip_norm: float | None


class GetState(Message, frozen=True, kw_only=True):
    """Reply: State, of the parameters that this shard has."""


class GetFacts(Message, frozen=True, kw_only=True):
    """About the version that ``rank`` has. Reply: Vouched, of the parameters that this shard has."""

    rank: int


# ----------------------------------------------------------------------------------- workers


class Enter(Message, frozen=True, kw_only=True):
    """The worker is ready for its first version. ``region_fd``: as in Open, where memory is shared.

    Reply: Entered. It is said to the server, too, where parameters are divided.
    """

    region_fd: int = -1


class Entered(Message, frozen=True, kw_only=True):
    """As Opened, of one shard's part."""

    server_pid: int
    parameters_fd: int


class Laid(Message, frozen=True, kw_only=True):
    """The window's gradients are there (not ``whole``: it has none). No reply."""

    whole: bool


class Given(Message, frozen=True, kw_only=True):
    """``parameters_fd``, or what came before as frames, is this shard's part of the version that the
    server's reply speaks of; ``glance``: beside the window's."""

    parameters_fd: int
    glance: bool


PLACES = 3


def frame_number(place: int, index: int) -> int:
    """The number of the frame with piece ``index`` of what goes to ``place`` (WINDOW, GLANCE)."""
    return place + PLACES * index


def place_and_index(number: int) -> tuple[int, int]:
    """What :func:`frame_number` was given."""
    return number % PLACES, number // PLACES


AnyShardMessage = (
    Standing | Came | Lost | SetUp | Done | Give | Show | TakeBack | Vacate | SetGroups | Apply
    | Squares | JoinUp | Norms | Move | GetState | GetFacts | Enter | Entered | Laid | Given
)  # fmt: skip
