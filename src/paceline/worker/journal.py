"""What a worker says: records in its trace, and a few sentences on stderr for people.

Knows how to word things, never what to do about them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

import torch

from paceline import trace
from paceline.gradients.health import Health
from paceline.recorder import Recorder
from paceline.strategies import SSP, Strategy
from paceline.worker.averaging import Drift
from paceline.worker.divergence import DivergenceWatch
from paceline.worker.phases import Phases
from paceline.worker.plane import BucketTimes, Outcome, Window
from paceline.worker.processor import ProcessorQueue
from paceline.worker.scale_watch import ScaleWatch


class Journal:
    """One worker's records and notices. Rank 0 speaks for the run on stderr.

    ``queue``: its thread's wait for a processor, that ``phases`` tells; None where time is not the
    machine's own.
    """

    def __init__(
        self,
        recorder: Recorder,
        phases: Phases,
        *,
        rank: int,
        strategy: Strategy,
        queue: ProcessorQueue | None = None,
    ) -> None:
        self._recorder = recorder
        self._phases = phases
        self._rank = rank
        self._strategy = strategy
        self._watch = DivergenceWatch()
        self._scales = ScaleWatch()
        self._flushed = 0
        self._queue = queue

    def say(self, text: str) -> None:
        """A sentence about the run: printed by rank 0."""
        if self._rank == 0:
            print(f"paceline: {text}", file=sys.stderr, flush=True)

    def note(self, kind: str, text: str) -> None:
        """A sentence about the run: recorded and printed by rank 0."""
        if self._rank == 0:
            now = self._phases.now_s()
            self._recorder.write(trace.Note(time_s=now, kind=kind, rank=-1, text=text))
        self.say(text)

    def tell(self, kind: str, text: str) -> None:
        """A sentence about what this rank did for the run: recorded and printed, whichever it is."""
        now = self._phases.now_s()
        self._recorder.write(trace.Note(time_s=now, kind=kind, rank=self._rank, text=text))
        self._recorder.flush()
        print(f"paceline: {text}", file=sys.stderr, flush=True)

    def quote(self, rank: int, kind: str, text: str) -> None:
        """A sentence about the run that ``rank`` says for all: recorded and printed by it."""
        if rank == 0:
            self.note(kind, text)
        elif rank == self._rank:
            self.tell(kind, text)

    def setup(self, **facts: Any) -> None:
        """What the run is made of (the fields of :class:`paceline.trace.Setup`).

        On disk at once: whoever reads a run, even one that was killed a moment later, needs it.
        """
        self._recorder.write(trace.Setup(time_s=self._phases.now_s(), **facts))
        self._recorder.flush()

    def step(
        self,
        window: Window,
        outcome: Outcome,
        *,
        started_s: float,
        batches: int,
        weight: float,
        loss: float | None,
    ) -> None:
        """A window was decided; the phases since its start go with it."""
        spent = self._phases.take()
        self._recorder.write(
            trace.Step(
                time_s=started_s,
                clock=window.clock,
                version=window.version,
                gate_s=window.gate_s,
                pull_s=window.pull_s,
                data_s=spent.get("data", 0.0),
                forward_s=spent.get("forward", 0.0),
                backward_s=spent.get("backward", 0.0),
                wait_s=outcome.wait_s,
                exchange_s=max(0.0, spent.get("exchange", 0.0) - outcome.wait_s),
                sent_bytes=outcome.sent_bytes,
                received_bytes=outcome.received_bytes,
                batches=batches,
                weight=weight,
                loss=loss,
                norm=outcome.norm,
                applied=outcome.applied,
                lag=outcome.lag,
                coding_s=outcome.coding_s,
            )
        )
        if outcome.buckets is not None:
            self._recorder.write(_times_of(outcome.buckets, window.clock))
        if self._queue is not None:
            self._unscheduled(window.clock, self._queue.take())
        self._follow(window.scale)
        self._flushed += outcome.flushed
        self._recorder.flush_if_due()

    def watch(self, loss: float | None, optimizer: torch.optim.Optimizer, version: int) -> None:
        """Report a diverging loss, once, with what to try; ``version``: the latest there is."""
        problem = self._watch.feed(loss) if loss is not None else ""
        if problem:
            self.note(
                "diverged",
                f"at version {version} {problem}: "
                f"{_remedy(self._strategy, optimizer.param_groups[0])}",
            )

    def _follow(self, scale: float) -> None:
        """Record a change of the loss scale: on every rank, as it is each rank's own (async)."""
        recorded, said = self._scales.feed(scale)
        if recorded:
            self._record("loss-scale", recorded)
        if said:
            self.say(said)

    def _record(self, kind: str, text: str) -> None:
        """Write a sentence about this rank into its trace."""
        now = self._phases.now_s()
        self._recorder.write(trace.Note(time_s=now, kind=kind, rank=self._rank, text=text))

    def _unscheduled(self, clock: int, waits_s: Mapping[str, float] | None) -> None:
        if waits_s is not None:
            now = self._phases.now_s()
            self._recorder.write(trace.Unscheduled(time_s=now, clock=clock, **waits_s))

    def health(self, parameter: str, health: Health, *, clock: int, scale: float) -> None:
        """How the gradient of ``parameter`` looked in the window that is number ``clock``."""
        self._recorder.write(
            trace.Health(
                time_s=self._phases.now_s(), clock=clock, parameter=parameter, scale=scale,
                elements=health.elements, sampled=health.sampled, zeros=health.zeros,
                non_finite=health.non_finite, norm=health.norm, largest=health.largest,
                fp16=astuple(health.fp16), bf16=astuple(health.bf16),
                scaled_fp16=astuple(health.scaled_fp16), scaled_bf16=astuple(health.scaled_bf16),
                low=health.low, histogram=health.histogram,
            )
        )  # fmt: skip

    def pass_ended(self, **facts: Any) -> None:
        """A pass ended (the fields of :class:`paceline.trace.Pass`)."""
        self._recorder.write(trace.Pass(time_s=self._phases.now_s(), **facts))

    def drifted(self, drift: Drift, *, pass_id: int, version: int) -> None:
        """How far this worker's replica was from the others' mean as a pass ended."""
        now = self._phases.now_s()
        self._recorder.write(
            trace.Drift(
                time_s=now,
                pass_id=pass_id,
                version=version,
                distance=drift.distance,
                size=drift.size,
            )
        )

    def metrics(self, values: Mapping[str, float], *, version: int, samples: float) -> None:
        """What the user measured, at this point of the run."""
        now = self._phases.now_s()
        for name, value in values.items():
            self._recorder.write(
                trace.Metric(time_s=now, name=name, value=value, version=version, samples=samples)
            )

    def close(self, *, reason: str, version: int, peak_bytes: int, digest: str) -> None:
        """The worker is done; nothing is recorded after this."""
        if self._flushed:
            self._record(
                "flushed",
                f"{self._flushed} gradient values became zero on the wire (reduce_dtype='fp16')",
            )
        self._recorder.write(
            trace.Close(
                time_s=self._phases.now_s(),
                reason=reason,
                version=version,
                peak_bytes=peak_bytes,
                digest=digest,
            )
        )
        self._recorder.close()
        if self._queue is not None:
            self._queue.close()


def _times_of(buckets: BucketTimes, clock: int) -> trace.Buckets:
    began_s = buckets.began_s
    return trace.Buckets(
        time_s=began_s,
        clock=clock,
        ready_s=tuple(time_s - began_s for time_s in buckets.ready_s),
        done_s=tuple(time_s - began_s for time_s in buckets.done_s),
    )


def _remedy(strategy: Strategy, group: Mapping[str, Any]) -> str:
    lr = group["lr"]
    settings = [f"lr={float(lr):g}"]
    if group.get("momentum"):
        settings.append(f"momentum={group['momentum']:g}")
    if group.get("betas"):
        settings.append(f"betas={tuple(group['betas'])}")
    if not isinstance(strategy, SSP):
        return f"try a smaller lr ({', '.join(settings)}) or clip_norm."
    settings.append(f"push_scale={strategy.push_scale!r}")
    scale = ", push_scale 'mean'" if strategy.push_scale == "sum" else ""
    bound = max(1, int(min(strategy.staleness, 6)) // 2)
    return (
        f"try a smaller lr or momentum ({', '.join(settings)}){scale}, clip_norm, or a tighter "
        f"bound such as ssp:{bound}."
    )
