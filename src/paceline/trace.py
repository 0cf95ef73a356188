"""What a run records: typed records, one JSON array a line, one append-only file a process.

A run's directory holds ``run.json`` (the launcher's summary), ``rank-0.jsonl``, ``rank-1.jsonl``,
... (one per worker) and, on the server plane, ``server.jsonl`` (every fact and order of the policy,
in the coordinator's serial order: that order, never a timestamp, says what came first).

The first line of every file is a ``header`` that carries the format's version and the column names
of each record type, so that a reader needs no other document. A torn last line is ignored. A column
that was added later stands last and has a default, so that older files are read too. All times are
seconds on the machine's monotonic clock (comparable between processes of one host).

This module encodes and decodes; it opens no file and reads no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Literal

import msgspec

from paceline import encounters, events
from paceline.values import lean

FORMAT_VERSION = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """First record of a file. ``role``: ``"worker"`` (then ``rank``) or ``"server"`` (rank -1)."""

    format_version: int
    role: Literal["worker", "server"]
    rank: int
    time_s: float
    columns: dict[str, list[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """What the run was made of, said once by each worker after construction.

    ``groups``: ranks that are synchronous among themselves and push as one (hybrid), leader first.
    """

    time_s: float
    strategy: str
    topology: str
    world_size: int
    accumulate: int
    parameters: int
    parameter_bytes: int
    optimizer: str
    types: str
    threads: int
    seed: int
    digest: str
    groups: tuple[tuple[int, ...], ...] = ()


@lean
@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One window of one worker, from its start to the decision on its push.

    ``time_s``: when the window started. Before that the worker waited ``gate_s`` behind the gate and
    copied parameters, of ``version``, in for ``pull_s``. ``data_s``: waiting for batches,
    ``forward_s`` (with the loss, and the emulated delay), ``backward_s``. ``wait_s``: from the push's
    arrival until its update could begin (server plane, replicas), 0 under all-reduce; ``exchange_s``:
    the rest of ``step``: moving, reducing, applying. ``sent_bytes``, ``received_bytes``: payload this
    worker moved. ``batches``: how many micro-batches, ``weight``: their samples. ``lag``: version lag.
    ``coding_s``: encoding and decoding what travels (``compress``), part of ``pull_s`` and ``exchange_s``.
    """

    time_s: float
    clock: int
    version: int
    gate_s: float
    pull_s: float
    data_s: float
    forward_s: float
    backward_s: float
    wait_s: float
    exchange_s: float
    sent_bytes: int
    received_bytes: int
    batches: int
    weight: float
    loss: float | None
    norm: float | None
    applied: bool
    lag: int
    coding_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Buckets:
    """The gradients of the step of the same ``clock``, in the pieces in which they travelled.

    ``time_s``: when the window's last backward began. ``ready_s``: from then until each piece was
    complete on this worker; ``done_s``: until its sum over all workers was here (empty on the server
    plane). A slow worker is late with ``ready_s``; a slow link makes ``done_s - ready_s`` long.
    """

    time_s: float
    clock: int
    ready_s: tuple[float, ...]
    done_s: tuple[float, ...]


Shares = tuple[float, float]
"""Of a gradient's elements that are not zero: what a type would turn to zero, and to infinity."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """What one parameter's gradient looked like on this worker in the window of this ``clock``.

    It is the window's mean, before clipping. ``sampled`` of its ``elements`` were looked at for
    ``zeros`` (the share that is exactly zero) and what follows ``largest``; the others are of all.
    ``fp16``, ``bf16``: what these types would lose; ``scaled_...``: after the loss scale ``scale``.
    ``histogram[i]``: elements of a magnitude in [2^(low + i), 2^(low + i + 1)).
    """

    time_s: float
    clock: int
    parameter: str
    scale: float
    elements: int
    sampled: int
    zeros: float
    non_finite: int
    norm: float
    largest: float
    fp16: Shares
    bf16: Shares
    scaled_fp16: Shares
    scaled_bf16: Shares
    low: int
    histogram: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Unscheduled:
    """In the window of this ``clock`` the worker was ready to run, but no processor was free for it.

    In its phases, as in :class:`Step`; ``between_s``: between the decision on its window before and its
    start; ``somewhere_s``: it is not known where. Written only where it is worth a millisecond.
    """

    time_s: float
    clock: int
    between_s: float
    data_s: float
    forward_s: float
    backward_s: float
    exchange_s: float
    somewhere_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Clocks:
    """How fast what a worker computes on ran at ``time_s``, sampled every few seconds.

    ``device``: ``"cpu"`` (the mean of its cores) or ``"cuda:0"``; ``hz``: now, ``top_hz``: at most (0:
    unknown). ``throttled``: how often the hardware has throttled itself since it was started;
    ``reasons``: why it is held back now, as the driver says it.
    """

    time_s: float
    device: str
    hz: float
    top_hz: float
    throttled: int
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """A worker's pass over the data ended. ``skipped``: batches yielded without a ``step``."""

    time_s: float
    pass_id: int
    started_s: float
    version: int
    progress: int
    skipped: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """How far this worker's replica was from the mean of all as the pass ``pass_id`` ended, under
    strategies that let replicas differ (``local``, ``diloco``).

    2-norms over all trained parameters: ``distance`` from the mean, before replicas became one (None: the
    replica held what is not finite), and the mean's own ``size``.
    """

    time_s: float
    pass_id: int
    version: int
    distance: float | None
    size: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """What the user logged with ``worker.log``. ``samples``: committed by all workers so far."""

    time_s: float
    name: str
    value: float
    version: int
    samples: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """A sentence for people: deaths, evictions, refusals, notices. ``rank``: about whom, or -1."""

    time_s: float
    kind: str
    rank: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Close:
    """The worker closed. ``peak_bytes``: largest resident set; ``digest``: of the parameters."""

    time_s: float
    reason: str
    version: int
    peak_bytes: int
    digest: str


Record = (
    Header | Setup | Step | Buckets | Health | Unscheduled | Clocks | Pass | Drift | Metric | Note | Close
    | events.Fact | events.Order | encounters.Encounter | encounters.Differs
)  # fmt: skip

_TYPES: dict[str, type[Any]] = {
    cls.__name__.lower(): cls
    for cls in (
        Header, Setup, Step, Buckets, Health, Unscheduled, Clocks, Pass, Drift, Metric, Note, Close,
        events.Join, events.Leave, events.Request, events.Pull, events.Push, events.Tick,
        events.Lease, events.Start, events.Update, events.Drop, events.Release, events.Halt,
        events.WakeAt, events.Save, events.Cut, encounters.Look, encounters.Handover,
        encounters.Meeting, encounters.Failure, encounters.Differs,
    )
}  # fmt: skip
_COLUMNS = {tag: [field.name for field in fields(cls)] for tag, cls in _TYPES.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Form:
    """How one type is written: ``read`` gets its columns; the others are places of columns:
    ``times``, ``series`` (of times), ``figures``, ``shares``, and ``counts`` (mostly whole numbers)."""

    tag: str
    read: Callable[[Any], tuple[Any, ...]]
    times: tuple[int, ...]
    series: tuple[int, ...]
    figures: tuple[int, ...]
    shares: tuple[int, ...]
    counts: tuple[int, ...]


_SERIES = ("ready_s", "done_s")
_FIGURES = ("loss", "norm", "largest", "zeros", "distance", "size")
_COUNTS = ("weight", "unit", "divisor", "hz", "top_hz")
_SHARES = ("fp16", "bf16", "scaled_fp16", "scaled_bf16")


def _form(tag: str, names: list[str]) -> _Form:
    assert len(names) > 1, f"{tag}: attrgetter gives no tuple for one column"
    places = list(enumerate(names, start=1))
    return _Form(
        tag=tag,
        read=attrgetter(*names),
        times=tuple(place for place, name in places if name.endswith("_s") and name not in _SERIES),
        series=tuple(place for place, name in places if name in _SERIES),
        figures=tuple(place for place, name in places if name in _FIGURES),
        shares=tuple(place for place, name in places if name in _SHARES),
        counts=tuple(place for place, name in places if name in _COUNTS),
    )


_FORMS = {cls: _form(tag, _COLUMNS[tag]) for tag, cls in _TYPES.items()}
_encoder = msgspec.json.Encoder()


def header(*, role: Literal["worker", "server"], rank: int, time_s: float) -> Header:
    """The header that opens a file."""
    columns = {tag: names for tag, names in _COLUMNS.items() if tag != "header"}
    return Header(
        format_version=FORMAT_VERSION, role=role, rank=rank, time_s=time_s, columns=columns
    )


def encode(record: Record) -> bytes:
    """The record as one line, newline included.

    Times to the microsecond, losses, norms and shares to six or seven digits: they are for people.
    Every other number exactly, or a replay would decide otherwise.
    """
    form = _FORMS[type(record)]
    values = [form.tag, *form.read(record)]
    for place in form.times:
        values[place] = round(values[place], 6)
    for place in form.series:
        values[place] = [round(time_s, 6) for time_s in values[place]]
    for place in form.figures:
        values[place] = _seven_digits(values[place])
    for place in form.shares:
        values[place] = [round(share, 6) for share in values[place]]
    for place in form.counts:
        values[place] = _short(values[place])
    return _encoder.encode(values) + b"\n"


def decode(line: bytes) -> Record:
    """The record in ``line``. Raises msgspec.DecodeError or ValidationError if it holds none."""
    tag, *values = msgspec.json.decode(line)
    if tag not in _TYPES:
        raise msgspec.ValidationError(f"unknown record type {tag!r}")
    columns = _COLUMNS[tag]
    if len(values) > len(columns):
        raise msgspec.ValidationError(f"{tag!r} has {len(columns)} columns, not {len(values)}")
    known = dict(zip(columns, values, strict=False))
    record: Record = msgspec.convert(known, _TYPES[tag], strict=False)
    return record


def decode_lines(lines: Iterable[bytes]) -> Iterator[Record]:
    """The records of a file's lines; a last line torn off mid-write is ignored."""
    for line in lines:
        if not line.endswith(b"\n"):
            return
        yield decode(line)


def _short(value: float) -> float:
    """The same number; without ``.0`` where it is whole."""
    whole = int(value) if abs(value) < 1e9 else value
    return whole if whole == value else value


def _seven_digits(value: float | None) -> float | None:
    return value if value is None else float(f"{value:.7g}")
