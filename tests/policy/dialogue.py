"""Scripted dialogues with the coordinator: facts in, the orders they must cause, as text.

    # a comment
    run ssp:1 workers=2 evict=10
    > join 0 1
    > request 0 1 total=6 depth=2
        lease 0: 0 1                        | on demand
    > push 0 weight=4 @2.5

A ``>`` line is one fact, or the same fact for several ranks in turn; ``@`` sets the time in
seconds, from then on. ``run`` begins anew. What follows, indented, is every order it caused.
``python tests/policy/dialogue.py`` rewrites the expectations in all files (then read the diff).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path

from paceline.events import (
    Cut,
    Drop,
    Fact,
    Halt,
    Join,
    Lease,
    Leave,
    Order,
    Pull,
    Push,
    Release,
    Request,
    Save,
    Start,
    Tick,
    Update,
    WakeAt,
)
from paceline.policy import Coordinator
from paceline.strategies import parse_strategy

FILES = sorted((Path(__file__).parent / "dialogues").glob("*.txt"))


def transcript(script: str) -> str:
    """``script`` with the orders that its facts cause today."""
    lines: list[str] = []
    coordinator = None
    time_s = 0.0
    for line in script.splitlines():
        if line.startswith("    "):
            continue
        lines.append(line)
        words = line.split()
        if words[:1] == ["run"]:
            coordinator, time_s = started(words[1:]), 0.0
        if words[:1] == [">"]:
            assert coordinator is not None, "a dialogue begins with a run line"
            time_s = next((float(w[1:]) for w in words if w[0] == "@"), time_s)
            for fact in facts(words[1:], time_s):
                lines += [written(order) for order in coordinator.feed(fact)]
    return "\n".join(lines) + "\n"


def started(words: list[str]) -> Coordinator:
    values = pairs(words)
    return Coordinator(
        strategy=parse_strategy(words[0]),
        world_size=int(values["workers"]),
        evict_after_s=values.get("evict", inf),
    )


def facts(words: list[str], time_s: float) -> Iterator[Fact]:
    """The facts of one line."""
    verb, *rest = [word for word in words if word[0] != "@"]
    ranks = [int(word) for word in rest if word.isdigit()]
    if verb == "tick" and not ranks:
        yield Tick(time_s=time_s)
    for rank in ranks:
        yield one_fact(verb, rank, set(rest), pairs(rest), time_s)


def one_fact(
    verb: str, rank: int, flags: set[str], values: dict[str, float], time_s: float
) -> Fact:
    if verb == "join":
        return Join(time_s=time_s, rank=rank, incarnation=int(values.get("life", 0)))
    if verb in ("finished", "departed", "dead"):
        return Leave(time_s=time_s, rank=rank, reason=verb)  # type: ignore[arg-type]
    if verb == "pull":
        return Pull(time_s=time_s, rank=rank)
    if verb == "tick":
        return Tick(time_s=time_s, rank=rank)
    if verb == "save":
        return Save(time_s=time_s, rank=rank)
    if verb == "push":
        return Push(
            time_s=time_s,
            rank=rank,
            weight=values.get("weight", 8),
            unit=8,
            finite="nan" not in flags,
            stop="stop" in flags,
        )
    assert verb == "request", verb
    return Request(
        time_s=time_s,
        rank=rank,
        pass_id=int(values.get("pass", 0)),
        total=int(values["total"]) if "total" in values else None,
        window=int(values.get("window", 1)),
        depth=int(values.get("depth", 2)),
        weight=8,
        split="own" not in flags,
    )


def written(order: Order) -> str:
    """One order as an indented line, its reason after the bar."""
    return f"    {said(order):<52} | {order.reason}"


def said(order: Order) -> str:
    match order:
        case Lease(rank=rank, last=True):
            return f"last {rank}"
        case Lease():
            return f"lease {order.rank}: {spaced(order.batches)}"
        case Start():
            return (
                f"start {order.rank} clock={order.clock} v{order.version}: {spaced(order.batches)}"
            )
        case Update():
            step = f"/{order.divisor:g} lr*{order.lr_scale:.4g} done={order.progress}"
            clocks = f"clocks={spaced(order.clocks, ',')} lags={spaced(order.lags, ',')}"
            return f"update v{order.version} of {spaced(order.ranks)} {clocks} {step}"
        case Drop():
            return f"drop {order.rank} clock={order.clock} {order.kind}: {spaced(order.batches)}"
        case Release():
            return f"release {order.rank} clock={order.clock} returned: {spaced(order.returned)}"
        case Halt():
            return f"halt {order.rank}"
        case WakeAt():
            return f"wake at {order.time_s:g}"
        case Cut():
            left = "; ".join(
                f"{one.owner}: {spaced(one.returned)}, {one.next} to {one.total}"
                for one in order.left
            )
            clocks = spaced(order.clocks, ",")
            return f"cut {order.rank} v{order.version} clocks={clocks} left {left or 'nothing'}"


def spaced(numbers: tuple[int, ...], gap: str = " ") -> str:
    return gap.join(map(str, numbers)) or "-"


def pairs(words: list[str]) -> dict[str, float]:
    return {name: float(value) for name, _, value in (w.partition("=") for w in words) if value}


if __name__ == "__main__":
    for path in FILES:
        path.write_text(transcript(path.read_text(encoding="utf-8")), encoding="utf-8")
