"""A plane that follows a script, and parts of a worker around it: the loop without any group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import msgspec
import torch
from torch import nn

from paceline.launch.context import Launch
from paceline.recorder import Recorder
from paceline.strategies import Sync
from paceline.worker.agreement import Agreement
from paceline.worker.emulation import OwnPace
from paceline.worker.guards import Guards
from paceline.worker.journal import Journal
from paceline.worker.manifest import trainable
from paceline.worker.options import Options, Runtime
from paceline.worker.outside import OutsideChanges
from paceline.worker.parts import Parts
from paceline.worker.phases import Phases
from paceline.worker.plane import Contribution, Outcome, PassPlan, Position, Window
from paceline.worker.scheduling import Schedules
from paceline.worker.training import Training


class ScriptedPlane:
    """Hands out ``windows`` (batch numbers) in turn; peers say in ``gather`` what this rank says.

    ``answer`` may change a peer's facts. ``calls`` lists what was asked of it.
    """

    name = "server"
    settled = True
    account = None

    def __init__(
        self,
        windows: Sequence[tuple[int, ...]],
        *,
        world_size: int = 1,
        unit: float | None = None,
        answer: Callable[[int, dict[str, Any]], dict[str, Any]] = lambda rank, facts: facts,
    ) -> None:
        self.windows = list(windows)
        self.world_size = world_size
        self.unit = unit
        self.answer = answer
        self.calls: list[Any] = []
        self.contributions: list[Contribution] = []
        self.plan: PassPlan | None = None
        self.failure: Exception | None = None
        self.progress = 0

    def position(self) -> Position:
        done = len(self.contributions)
        return Position(version=done, clock=done, progress=self.progress)

    def loss_scale(self) -> float:
        return 1.0

    def open_pass(self, plan: PassPlan) -> None:
        self.plan = plan
        self.calls.append("open")

    def leases(self) -> list[int]:
        return []

    def next_window(self) -> Window | None:
        self.calls.append("next")
        if not self.windows:
            return None
        self.current = self.windows.pop(0)
        position = self.position()
        return Window(
            clock=position.clock, version=position.version, batches=self.current, unit=self.unit
        )

    def before_backward(self, *, last: bool) -> None:
        self.calls.append("last" if last else "backward")

    def exchange(self, contribution: Contribution) -> Outcome:
        if self.failure is not None:
            raise self.failure
        self.calls.append("exchange")
        self.contributions.append(contribution)
        self.progress += len(self.current) * self.world_size
        position = self.position()
        return Outcome(
            applied=contribution.weight > 0,
            reason="scripted",
            version=position.version,
            clock=position.clock,
            norm=1.0,
            progress=position.progress,
        )

    def end_pass_early(self) -> None:
        self.calls.append("end early")
        self.windows.clear()

    def latest(self) -> Any:
        self.calls.append("read")
        return nullcontext()

    def gather(self, tag: str, payload: bytes) -> list[bytes]:
        facts = msgspec.msgpack.decode(payload)
        self.calls.append(facts["call"])
        others = [
            msgspec.msgpack.encode(self.answer(rank, {**facts, "rank": rank}))
            for rank in range(1, self.world_size)
        ]
        return [payload, *others]

    def broadcast(self, tensors: list[torch.Tensor]) -> None:
        self.calls.append("broadcast")

    def sync_optimizer(self) -> None:
        self.calls.append("sync optimizer")

    def close(self, reason: str) -> None:
        self.calls.append(reason)


class Ticks:
    """A clock that advances by one second at every look."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


class RecordedPace(OwnPace):
    """Holds nobody back; writes down into ``calls`` what it is told."""

    def __init__(self, calls: list[str]) -> None:
        super().__init__(Ticks())
        for name in ("begin", "hold", "push", "leave", "enter"):
            setattr(self, name, partial(calls.append, name))
        self.started = lambda window: calls.append("started") or window  # type: ignore[method-assign]
        self.decided = lambda outcome: calls.append("decided")  # type: ignore[method-assign]


def parts_around(plane: Any, *, accumulate: int = 1, model: nn.Module | None = None) -> Parts:
    """Parts of rank 0 of a run whose group is ``plane``."""
    model = model if model is not None else nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    phases = Phases(Ticks())
    training = Training(
        model=model,
        optimizer=optimizer,
        trainables=trainable(model, optimizer),
        strategy=Sync(),
    )
    options = Options(
        strategy=Sync(),
        accumulate=accumulate,
        global_batch=None,
        clip_norm=None,
        runtime=Runtime(),
        overridden={},
    )
    return Parts(
        model=model,
        optimizer=optimizer,
        trained=list(model.parameters()),
        device=torch.device("cpu"),
        plane=plane,
        agreement=Agreement(plane, rank=0),
        options=options,
        launch=Launch(rank=0, world_size=plane.world_size),
        seed=0,
        journal=Journal(Recorder(None, Ticks()), phases, rank=0, strategy=Sync()),
        phases=phases,
        guards=Guards(model, optimizer),
        outside=OutsideChanges(training, "allreduce"),
        schedules=Schedules(0),
        pace=OwnPace(phases.now_s),
    )
