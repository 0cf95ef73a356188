"""What a measurement says of the links, in sentences with their figures; or why it says nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.compare.units import duration, size
from paceline.measure.naming import Culprit, Naming, name_slow
from paceline.measure.result import Measurement
from paceline.measure.wire import Array

BUSY = 1.0
"""Above one process a core everything waits for cores now and then."""
SENDING = {"port": "to and from", "out": "to", "in": "from"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowPlace:
    """``what``: "bandwidth" or "latency". ``kind``: host, port, out, in or link. ``figure`` and ``healthy``
    in bytes a second, or seconds; ``factor``: so many times worse."""

    what: str
    kind: str
    ranks: tuple[int, ...]
    figure: float
    healthy: float
    factor: float
    sentence: str
    action: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """``doubts``: why something could not be judged."""

    slow: tuple[SlowPlace, ...]
    doubts: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """One sentence, or several if several places are slow."""
        if self.slow:
            return "\n".join(one.sentence for one in self.slow)
        if self.doubts:
            return f"Undecided, because {self.doubts[0]}."
        return "No link, port or host stands out."


def judge(measured: Measurement) -> Judged:
    """Names slow places by bandwidth and by latency; where there are several hosts, among the links across."""
    slow: list[SlowPlace] = []
    doubts = []
    for what, passes in (("bandwidth", measured.byte_costs_s), ("latency", measured.alphas_s)):
        for considered, where in _classes(measured):
            naming = name_slow(passes, considered)
            slow += _places(measured, what, naming)
            if naming.doubt:
                doubts.append(f"{what}{where}: {naming.doubt}")
    return Judged(
        slow=tuple(slow), doubts=tuple(doubts), remarks=(*_rates(measured), *_busy(measured))
    )


def _classes(measured: Measurement) -> Iterator[tuple[Array | None, str]]:
    """Links that should be alike, and what to call them."""
    across = measured.across()
    if not across.any():
        yield None, ""
        return
    yield across, " between hosts"
    inside = ~across & ~np.eye(measured.ranks, dtype=bool)
    if inside.sum() >= 2:
        yield inside, " within hosts"


def _places(measured: Measurement, what: str, naming: Naming) -> Iterator[SlowPlace]:
    """One for each culprit; a host all of whose ranks are accused is one place."""
    hosts = [place.host for place in measured.places]
    ports: dict[str, list[Culprit]] = defaultdict(list)
    for culprit in naming.culprits:
        if culprit.kind == "port":
            ports[hosts[culprit.rank]].append(culprit)
        else:
            yield _place(what, (culprit,), culprit.kind, naming)
    for host, culprits in ports.items():
        whole = len(set(hosts)) > 1 and len(culprits) == hosts.count(host)
        for group in [tuple(culprits)] if whole else [(one,) for one in culprits]:
            yield _place(what, group, "host" if whole else "port", naming, host if whole else "")


def _place(
    what: str, culprits: Sequence[Culprit], kind: str, naming: Naming, host: str = ""
) -> SlowPlace:
    factor = float(np.median([one.factor for one in culprits]))
    cost, healthy = factor * naming.healthy, naming.healthy
    ranks = tuple(
        sorted({rank for one in culprits for rank in (one.rank, one.to) if rank is not None})
    )
    rated = what == "bandwidth"
    figures = [1 / cost, 1 / healthy] if rated else [cost, healthy]
    shown = [f"{size(one)}/s" if rated else duration(one) for one in figures]
    return SlowPlace(
        what=what, kind=kind, ranks=ranks, figure=figures[0], healthy=figures[1], factor=factor,
        sentence=f"{_subject(culprits, kind, host)}: {what} {shown[0]}, the other links' {shown[1]}: "
        f"{factor:.1f} times {'slower' if rated else 'longer'}.",
        action=_action(kind, what),
    )  # fmt: skip


def _subject(culprits: Sequence[Culprit], kind: str, host: str) -> str:
    one = culprits[0]
    if kind == "link":
        return f"The link from rank {one.rank} to rank {one.to} is slow, and only that one"
    if kind == "host":
        ranks = ", ".join(str(rank) for rank in sorted(each.rank for each in culprits))
        return f"Host {host} (rank{'s' * (len(culprits) > 1)} {ranks}) has a slow port, both ways"
    ways = {"port": "both ways", "out": "in sending", "in": "in receiving"}[kind]
    return f"Rank {one.rank}'s port is slow {ways}, {SENDING[kind]} everyone"


def _action(kind: str, what: str) -> str:
    if kind == "link":
        return "Look at the path between the two: a switch's uplink, a route, a firewall."
    if what == "latency":
        return "Run 'paceline doctor' there: load, power saving, or an interface that is not the one you mean."
    return (
        "Run 'paceline doctor' there: negotiated rate, cable, switch port, or the wrong interface."
    )


def _busy(measured: Measurement) -> Iterator[str]:
    """Hosts on which others work: what is measured there is what they leave."""
    for host in dict.fromkeys(place.host for place in measured.places):
        load = max(place.load for place in measured.places if place.host == host)
        if load > BUSY:
            yield f"{host} is busy: a load of {load:.1f} a core before this began; measure again when it is not"


def _rates(measured: Measurement) -> Iterator[str]:
    """Whose interface has negotiated less than the best one's."""
    rates = [place.rate_bits_per_s for place in measured.places]
    best = max((rate for rate in rates if rate), default=None)
    for rank, (place, rate) in enumerate(zip(measured.places, rates, strict=True)):
        if best and rate and rate < best:
            yield (
                f"rank {rank}: {place.interface} of {place.host} has negotiated {rate * 1e-6:.0f} Mb/s, "
                f"the best {best * 1e-6:.0f} Mb/s"
            )
