"""What the doctor says, as people read it and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from paceline.compare.units import duration, size
from paceline.doctor.checks import Finding, group_interface, megahertz
from paceline.doctor.facts import Facts

SCHEMA = 1


def verdict(found: Sequence[Finding]) -> str:
    """One sentence, or one a finding."""
    return "\n".join(one.sentence for one in found) or "Nothing of this machine stands out."


def render(facts: Facts, found: Sequence[Finding]) -> str:
    """Findings with evidence and remedy; then what was looked at."""
    parts = [
        "\n".join([one.sentence, *(f"  evidence: {line}" for line in one.evidence), f"  next: {one.action}"])
        for one in found
    ]  # fmt: skip
    return "\n\n".join([*(parts or [verdict(found)]), "\n".join(["Seen", *_seen(facts)])])


def as_json(facts: Facts, found: Sequence[Finding]) -> str:
    """SI units; no quota is null. ``schema`` rises when a field changes its meaning."""
    machine: dict[str, Any] = asdict(facts)
    if not isfinite(facts.machine.quota_cores):
        machine["machine"]["quota_cores"] = None
    document = {
        "schema": SCHEMA, "verdict": verdict(found), "findings": [asdict(one) for one in found],
        "facts": machine,
    }  # fmt: skip
    return json.dumps(document, indent=2)


def _seen(facts: Facts) -> Iterator[str]:
    machine, speeds = facts.machine, facts.speeds
    threads = "" if facts.threads is None else f", torch would use {facts.threads} threads"
    yield f"  cores      {machine.cores}{_quota(machine.quota_cores)}{threads}; load {machine.load:.1f}"
    yield (
        f"  memory     {size(machine.available_bytes)} of {size(machine.memory_bytes)} available; "
        f"/dev/shm {size(machine.shm_bytes)}"
    )
    for one in facts.interfaces:
        rate = (
            f"{one.rate_bits_per_s * 1e-6:.0f} Mb/s"
            if one.rate_bits_per_s
            else "no negotiated rate"
        )
        mine = "  <- a process group's" if one == group_interface(facts) else ""
        yield f"  network    {one.name}: {'up' if one.up else 'down'}, {rate}{mine}"
    if not facts.cards_known:
        yield "  cards      not asked: nvidia-ml-py is not installed"
    for card in facts.cards:
        yield (
            f"  card {card.index}     {card.name}: {megahertz(card)}, "
            f"PCIe {card.generation}x{card.width} of {card.max_generation}x{card.max_width}"
        )  # fmt: skip
    if speeds is None:
        yield f"  speed      not measured{': ' if facts.unmeasured else ''}{facts.unmeasured}"
        return
    yield (
        f"  compute    {speeds.compute_alone * 1e-9:.1f} Gflop/s alone, "
        f"{speeds.compute_together * 1e-9:.1f} by {speeds.processes} processes"
    )
    yield f"  copy       {size(speeds.copy_alone)}/s alone, {size(speeds.copy_together)}/s together"
    yield f"  all-reduce of 4 MB over loopback: {duration(speeds.all_reduce_s)}"


def _quota(cores: float) -> str:
    return f" (quota {cores:g})" if isfinite(cores) else ""
