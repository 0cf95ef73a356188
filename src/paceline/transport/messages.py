"""What workers and the server say to each other, as typed messages in MessagePack.

A worker holds two connections to the server:

* **control**, owned by the worker's heartbeat thread: ``Hello`` first, then ``Beat`` every second;
  the server answers with ``Welcome`` and may send ``Stop`` at any time.
* **data**, owned by the worker's main thread: ``Hello`` first (answered by ``Welcome``), then one
  request at a time, each answered by exactly one reply of the type named beside it, or by ``Stop``.

Payloads do not travel in messages, unless they are compressed (``Push.parcel``).
A worker's gradients lie in a shared-memory region of its own,
which is the server's from ``Open`` or ``Push`` until the reply. Parameters lie in buffers of the
server's, one version in each: ``parameters_fd`` in a reply says which (the descriptor in the server's
process), and the worker may read that one until it sends ``Ready`` or ``Push``.
A worker on another host sends its gradients before ``Push`` as frames of their own, and gets what
``parameters_fd`` names before the reply (:mod:`paceline.transport.frames`); all else is the same.

Decoding validates types and never executes anything. This module does not know sockets.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from paceline.events import Left

PROTOCOL_VERSION = 5
MAX_HELLO_BYTES = 64 * 2**10  # before a Hello nobody is trusted with more
MAX_MESSAGE_BYTES = 2**32 - 1  # an optimizer's state can be long; memory is taken as bytes arrive


WINDOW, GLANCE, DIFFERENCE = 0, 1, 2
"""The numbers of a remote worker's places for parameters: of its window, to look at beside it, and for what
is to be added to its window's (:mod:`paceline.gradients.codecs.differences`)."""

AbortKind = Literal["peer-failed", "inconsistent"]


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, array_like=True):
    """Base of all messages; the class name is the tag."""


# ----------------------------------------------------------------------- either connection


class Launcher(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Of an observer that starts workers, the ``ranks`` of host ``number``. ``said``: what its command line
    says of the run, which must be the same on all hosts."""

    number: int
    ranks: list[int]
    said: dict[str, str]


class Hello(Message, frozen=True, kw_only=True):
    """First message on a connection. Reply: Welcome. Of a shard ``rank`` is its number."""

    protocol: int
    role: Literal["control", "data", "observer", "shard", "hub"]
    rank: int
    world_size: int
    pid: int
    host: str
    evict_after_s: float
    launcher: Launcher | None = None


class Welcome(Message, frozen=True, kw_only=True):
    incarnation: int


class Stop(Message, frozen=True, kw_only=True):
    """Every worker must stop; sent instead of any reply, and on control connections."""

    kind: Literal["peer-lost", "peer-failed", "evicted", "refused", "shutdown", "inconsistent"]
    rank: int
    text: str


class ProcessEnded(Message, frozen=True, kw_only=True):
    """From a launcher: the process of its worker ``rank`` is no more; ``text`` says how. No reply."""

    rank: int
    text: str


class Abort(Message, frozen=True, kw_only=True):
    """This worker raised: stop the others with this text. No reply (any connection).

    ``kind``: of the Stop that they get.
    """

    text: str
    kind: AbortKind = "peer-failed"


# ------------------------------------------------------------------------------ control


class Beat(Message, frozen=True, kw_only=True):
    """The process is alive; its main thread has been in ``phase`` for ``phase_age_s``. No reply."""

    phase: str
    phase_age_s: float


# ------------------------------------------------------------- data: group-wide agreement


class Gather(Message, frozen=True, kw_only=True):
    """All live workers exchange small payloads. Reply: Gathered, once all have sent this ``tag``.
    ``ranks``: these alone, if any are named."""

    tag: str
    payload: bytes
    ranks: list[int] = []


class Gathered(Message, frozen=True, kw_only=True):
    """``payloads`` of the live workers, in rank order of ``ranks``."""

    ranks: list[int]
    payloads: list[bytes]


class HandIn(Message, frozen=True, kw_only=True):
    """This worker's own part of checkpoint ``number`` of pass ``pass_id``. Reply: HandedIn, at once.

    ``together``: whoever is the last of the live workers to hand in is to write it; otherwise the
    first, with the parts that the others handed in last.
    """

    pass_id: int
    number: int
    together: bool
    part: bytes


class HandedIn(Message, frozen=True, kw_only=True):
    """``turn``: this worker writes the checkpoint, of these ``parts`` (in the order of ``ranks``)."""

    turn: bool
    ranks: list[int]
    parts: list[bytes]


class Bye(Message, frozen=True, kw_only=True):
    """The worker leaves for good. Reply: Gone."""

    reason: Literal["finished", "departed"]


class Gone(Message, frozen=True, kw_only=True):
    pass


# --------------------------------------------------------------------- data: server plane


class Tensor(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One entry of the manifest: a parameter's name and layout. ``group``: optimizer group."""

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    group: int


class OptimizerSpec(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A torch.optim optimizer by name. ``groups``: hyper-parameters of each group, no params."""

    name: str
    groups: list[dict[str, Any]]


class Open(Message, frozen=True, kw_only=True):
    """Set up the server plane. Reply: Opened, when all of the first world_size workers have sent it.

    ``region_fd``: descriptor, in the sender's process, of its shared-memory region of
    ``region_bytes`` for gradients, laid out as :class:`paceline.gradients.layout.FlatLayout` says
    for ``manifest``. Rank 0's holds the initial parameters, laid out alike, until the reply;
    ``state`` is the optimizer's ``state_dict`` if it already has any. ``bucket_bytes``: what
    :func:`paceline.gradients.buckets.buckets_of` is given. ``scale``, ``scale_patience``: the loss
    scale to begin with (:class:`paceline.gradients.precision.loss_scale.LossScale`). ``version``,
    ``progress``: where the checkpoint stood from which training goes on. ``serving_s``: for how long
    each push keeps the server busy that is emulated. ``limit``: the state of a relative limit on norms
    (:mod:`paceline.gradients.norm_limit`), None for ``clip_norm`` alone. ``initial``: what rank 0's
    region holds, where the server cannot see it. ``compress``: how pushes are encoded
    (:mod:`paceline.compression`); "" if they are not. ``groups``: ranks whose first one pushes for all
    of them; none: each worker for itself. ``far``: this worker is emulated as on a host of its own.
    """

    strategy: str
    manifest: list[Tensor]
    optimizer: OptimizerSpec
    clip_norm: float | None
    region_fd: int
    region_bytes: int
    bucket_bytes: int
    state: bytes | None
    scale: float = 1.0
    scale_patience: int = 0
    version: int = 0
    progress: int = 0
    serving_s: float = 0.0
    limit: list[float] | None = None
    initial: bytes | None = None
    compress: str = ""
    groups: list[list[int]] = []
    far: bool = False


class ShardPlace(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Where a shard is reached: :class:`paceline.transport.shard_messages.Standing`."""

    address: str
    socket: str
    host: str


class Opened(Message, frozen=True, kw_only=True):
    """Process ``server_pid`` holds the initial parameters, of ``version``, as ``parameters_fd``.

    Where there are several shards ``owners`` says of each parameter which one has it, and nothing is given
    before ``Enter``; ``shards``: where those but the server itself, number 0, are.
    """

    version: int
    clock: int
    server_pid: int
    parameters_fd: int
    owners: list[int] = []
    shards: list[ShardPlace] = []


class OpenPass(Message, frozen=True, kw_only=True):
    """The worker begins (or, with the same ``pass_id``, amends) a pass: the policy's Request.

    Reply: Leased with what can be leased now (none is fine).
    """

    pass_id: int
    total: int | None
    window: int
    depth: int
    weight: float
    split: bool


class Leased(Message, frozen=True, kw_only=True):
    batches: list[int]
    last: bool


class Ready(Message, frozen=True, kw_only=True):
    """The worker asks to start a window: the policy's Pull. Reply: Started, or Ended."""


class Started(Message, frozen=True, kw_only=True):
    """``parameters_fd`` holds ``version``, whole. ``waited_s``: behind the gate.

    ``leases``: further batches now leased to this worker (``batches`` were leased before or are
    among them). ``progress``: loader batches committed by all workers. ``rewind``: these batches
    come from a dead worker. ``scale``: the loss scale of this window. ``difference_bytes``: what was
    sent of the version, which ``parameters_fd`` only comes nearer to then; None: it is that version.
    ``coding_s``: what making the difference took.
    """

    clock: int
    version: int
    batches: list[int]
    leases: list[int]
    progress: int
    waited_s: float
    parameters_fd: int
    scale: float = 1.0
    difference_bytes: int | None = None
    coding_s: float = 0.0


class Ended(Message, frozen=True, kw_only=True):
    """The pass is over for everyone; ``parameters_fd`` holds the final ``version``."""

    version: int
    clock: int
    progress: int
    waited_s: float
    parameters_fd: int


class Push(Message, frozen=True, kw_only=True):
    """The gradients of a whole window lie in the region. Reply: Decided.

    ``weight``, ``unit``: divided by weight / unit it is the mean, unscaled.
    ``used``: one byte a parameter (manifest order), 1 if it has a gradient. ``groups``: the
    optimizer groups' hyper-parameters if they changed since the last push, else None.
    ``bad``: name of the first parameter with a non-finite gradient, or "" if all are finite.
    ``norm``: of the gradient as it lies there; inf if its square overflowed.
    ``total``: set when the worker has learned where a stream ends. ``rate``: learning rates are
    multiplied by it in the update that the push is in (warm-up). ``parcel``: the gradients, encoded
    (:mod:`paceline.gradients.codecs.packing`); the region then holds none, and the server may write to it.
    """

    weight: float
    unit: float
    used: bytes
    bad: str
    norm: float
    stop: bool
    total: int | None
    groups: list[dict[str, Any]] | None
    rate: float = 1.0
    parcel: bytes | None = None


class Filled(Message, frozen=True, kw_only=True):
    """In the window's last backward the first ``buckets`` buckets are full. No reply.

    Their gradients are the server's to read and sum from now on.
    """

    buckets: int


class Decided(Message, frozen=True, kw_only=True):
    """What became of the push. ``norm``: of the gradient applied, None if dropped.

    ``parameters_fd`` holds the latest version, with this push if it was applied. ``next``: the
    worker's next window, where it was sure to be started at once, as if it had sent Ready.

    ``waited_s``: from the push's arrival until its update could begin (waiting for others);
    ``applied_s``: the update itself. ``leases``: further batches now leased to this worker.
    """

    applied: bool
    kind: str
    reason: str
    version: int
    clock: int
    lag: int
    norm: float | None
    leases: list[int]
    progress: int
    waited_s: float
    applied_s: float
    parameters_fd: int
    next: Started | None


class Read(Message, frozen=True, kw_only=True):
    """Lend the latest whole version, beside the one the worker has. Reply: Latest.

    It may be read until the next request; the other one stays the worker's.
    """


class Latest(Message, frozen=True, kw_only=True):
    version: int
    parameters_fd: int


class Fetch(Message, frozen=True, kw_only=True):
    """Send the optimizer's state. Reply: State (``torch.load(weights_only=True)`` reads it)."""


class State(Message, frozen=True, kw_only=True):
    state: bytes


class TakeCut(Message, frozen=True, kw_only=True):
    """The worker writes a checkpoint: the policy's Save. Reply: CutTaken."""


class CutTaken(Message, frozen=True, kw_only=True):
    """Everything as it stands, as the policy's Cut says. ``state``: the optimizer's, as in State;
    ``limit``: as in Open.

    ``parameters_fd`` may be read until the next request, beside the version that the worker has.
    """

    version: int
    progress: int
    ranks: list[int]
    clocks: list[int]
    left: list[Left]
    parameters_fd: int
    state: bytes
    limit: list[float] | None = None


# ------------------------------------------------------------------------------ observer


class Notice(Message, frozen=True, kw_only=True):
    """To the observer (the launcher): a sentence for the user about ``rank`` (-1: the run)."""

    kind: Literal["joined", "died", "evicted", "followed", "left", "halted", "diverged", "info"]
    rank: int
    text: str


class Progress(Message, frozen=True, kw_only=True):
    """To the observer, a few times a second while something happens."""

    version: int
    progress: int
    live: int
    samples: float


AnyMessage = (
    Hello | Welcome | Stop | Abort | Beat | Gather | Gathered | Bye | Gone
    | Open | Opened | OpenPass | Leased | Ready | Started | Ended | Filled | Push | Decided
    | Read | Latest | Fetch | State | Notice | Progress | HandIn | HandedIn | TakeCut | CutTaken
    | ProcessEnded
)  # fmt: skip
"""Those of this module; all there are, and how they are read: :mod:`paceline.transport.decoding`."""

_encoder = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    """The message as bytes."""
    return _encoder.encode(message)
