"""A short training in which one rank strikes itself at a chosen protocol point.

``script.py OUT --victim 2 --point push --method kill --at 3 [--loader-workers 2] [--batches 48]``

Points: forward, backward, push (gradients are complete, the message is not sent), wait (the push is
sent, its decision not read), pull (asked to start, not told yet), evaluate, data (inside the
loader), or never. Methods: kill (SIGKILL), stop (SIGSTOP), pause (SIGSTOP, and SIGCONT after
``--pause-s``), server (SIGKILL of the server process).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import paceline
from paceline.transport import channel as channel_module
from paceline.transport.collective import Group


class Samples(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(count, 12, generator=generator)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.inputs[index], index % 3


class Injector:
    """Counts how often a point is passed and strikes at the ``at``-th time, once."""

    def __init__(self, arguments: argparse.Namespace, rank: int) -> None:
        self.arguments, self.rank = arguments, rank
        self.passed = 0
        self.server_pid = 0

    def at(self, point: str) -> None:
        if point != self.arguments.point or self.rank != self.arguments.victim:
            return
        self.passed += 1
        if self.passed == self.arguments.at:
            self.strike()

    def strike(self) -> None:
        (self.arguments.out / "struck").write_text(str(time.monotonic()))
        if self.arguments.method == "server":
            os.kill(self.server_pid, signal.SIGKILL)
            return
        if self.arguments.method == "pause":
            wake = f"sleep {self.arguments.pause_s}; kill -CONT {os.getpid()}"
            subprocess.Popen(["sh", "-c", wake])
        lethal = self.arguments.method == "kill"
        os.kill(os.getpid(), signal.SIGKILL if lethal else signal.SIGSTOP)


def watch_messages(injector: Injector) -> None:
    """Strike before a Push goes out, after it went out, or after a Ready went out."""
    send = channel_module.Channel.send

    def sending(self: Any, message: Any) -> None:
        kind = type(message).__name__
        if kind == "Push":
            injector.at("push")
        send(self, message)
        if kind == "Push":
            injector.at("wait")
        if kind == "Ready":
            injector.at("pull")

    channel_module.Channel.send = sending  # type: ignore[method-assign]


def watch_collectives(injector: Injector) -> None:
    """Strike before the gradients are reduced, or once their reduction is under way."""
    start_sum = Group.start_sum

    def starting(*arguments: Any) -> Any:
        injector.at("push")
        work = start_sum(*arguments)
        injector.at("wait")
        return work

    Group.start_sum = starting  # type: ignore[method-assign]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--victim", type=int, default=2)
    parser.add_argument("--point", default="never")
    parser.add_argument("--method", default="kill")
    parser.add_argument("--pause-s", type=float, default=4.0)
    parser.add_argument("--at", type=int, default=3)
    parser.add_argument("--batches", type=int, default=48)
    parser.add_argument("--loader-workers", type=int, default=0)
    parser.add_argument("--step-s", type=float, default=0.02)
    return parser.parse_args()


def server_pid() -> int:
    """The run's server: a sibling, started by the same launcher."""
    import psutil

    for process in psutil.Process(os.getppid()).children(recursive=True):
        if "paceline.server" in process.cmdline():
            return int(process.pid)
    raise LookupError("no server among the launcher's children")


def main() -> None:
    arguments = parse()
    rank = paceline.current_launch().rank
    injector = Injector(arguments, rank)
    if arguments.method == "server" and rank == arguments.victim:
        injector.server_pid = server_pid()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    worker = paceline.Worker(model, optimizer)
    watch_messages(injector)
    watch_collectives(injector)
    model[0].register_full_backward_hook(lambda *_: injector.at("backward"))
    loader = DataLoader(
        Samples(arguments.batches * 4), batch_size=4, num_workers=arguments.loader_workers
    )
    for _ in range(2):
        for step, (inputs, targets) in enumerate(worker.batches(loader)):
            injector.at("data")
            outputs = worker(inputs)
            injector.at("forward")
            time.sleep(arguments.step_s)
            worker.step(nn.functional.cross_entropy(outputs, targets))
            if step % 4 == 1:
                with worker.evaluate():
                    worker(inputs)
                    injector.at("evaluate")
    worker.close()
    (arguments.out / f"finished-{rank}").write_text(f"{time.monotonic()}")


if __name__ == "__main__":
    main()
