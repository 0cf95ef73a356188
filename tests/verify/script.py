"""One worker that plays scenes: reads them (JSON lines) from stdin, trains, answers what came of it.

In a scene one rank does something to itself at a certain step, behind the library's back.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import paceline
from paceline.gradients.checksum import checksums
from paceline.launch.context import Launch, install

Act = Callable[[nn.Module, torch.optim.Optimizer], None]
BATCHES = 24


class Net(nn.Module):
    """Has one of everything that can go wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 40)
        self.norm = nn.BatchNorm1d(40)
        self.second = nn.Linear(40, 60)
        self.last = nn.Linear(60, 3)
        self.frozen = nn.Parameter(torch.tensor([1.0, 0.0]), requires_grad=False)
        self.branch = nn.Parameter(torch.ones(3))
        self.register_buffer("offset", torch.zeros(5))
        self.register_buffer("seen", torch.zeros(()))  # changed by forward: differs by right

    def forward(self, inputs: torch.Tensor, branch: bool) -> torch.Tensor:
        if self.training:
            self.seen += inputs.sum()
        hidden = torch.relu(self.norm(self.first(inputs)))
        output: torch.Tensor = self.last(torch.relu(self.second(hidden)))
        return output * self.branch if branch else output


def _weight(net: Any, _: Any) -> None:
    net.second.weight.data[7, 3] += 1e-6


def _bound_elsewhere(net: Any, _: Any) -> None:
    net.second.weight.data = net.second.weight.data + 1e-6


def _sign_of_zero(net: Any, _: Any) -> None:
    net.frozen.data[1] = -0.0


def _sign_of_zero_trained(net: Any, _: Any) -> None:
    net.last.bias.data[1] = -0.0


def _buffer(net: Any, _: Any) -> None:
    net.offset[2] = 0.5


def _missing_buffer(net: Any, _: Any) -> None:
    net.register_buffer("offset", None)


def _field(name: str, value: Any) -> Act:
    def act(_: Any, optimizer: Any) -> None:
        optimizer.param_groups[0][name] = value

    return act


def _state(key: str, change: float) -> Act:
    def act(net: Any, optimizer: Any) -> None:
        optimizer.state[net.second.weight][key].add_(change)

    return act


def _freeze(net: Any, _: Any) -> None:
    net.last.bias.requires_grad_(False)


def _type(net: Any, _: Any) -> None:
    net.frozen.data = net.frozen.data.double()


def _mode(net: Any, _: Any) -> None:
    net.norm.eval()


class Other(torch.optim.SGD):
    """Does the same under another name."""


def _statistic(net: Any, _: Any) -> None:
    net.norm.running_mean[1] += 1e-6


def _class(_: Any, optimizer: Any) -> None:
    optimizer.__class__ = Other


ACTS: dict[str, Act] = {
    "weight": _weight,
    "bound elsewhere": _bound_elsewhere,
    "sign of zero": _sign_of_zero,
    "sign of zero, trained": _sign_of_zero_trained,
    "buffer": _buffer,
    "missing buffer": _missing_buffer,
    "lr": _field("lr", 0.011),
    "momentum": _field("momentum", 0.8),
    "weight decay": _field("weight_decay", 0.1),
    "optimizer step": _state("step", 1.0),
    "moment": _state("exp_avg", 1e-9),
    "frozen flag": _freeze,
    "type": _type,
    "mode": _mode,
    "statistic": _statistic,
    "class": _class,
}


def play(scene: dict[str, Any]) -> dict[str, Any]:
    torch.manual_seed(5)
    net = Net()
    net.last.bias.data.zero_()
    optimizer = getattr(torch.optim, scene["optimizer"])(
        net.parameters(), lr=0.0 if scene.get("still") else 0.01, **scene.get("hyper", {})
    )
    runtime = paceline.Runtime(max_skips=scene.get("max_skips", 20), out=scene.get("out"))
    options = {key: scene[key] for key in ("strategy", "health", "batch_norm") if key in scene}
    with paceline.Worker(net, optimizer, runtime=runtime, **options) as worker:
        if "every" in scene:
            worker.verify(every=scene["every"])
        if scene.get("scheduled"):
            worker.scheduler(torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.9))
        steps = train(scene, worker, net, optimizer)
        worker.verify()
    return {"steps": steps, "bits": checksums(list(net.parameters()))}


def train(scene: dict[str, Any], worker: Any, net: nn.Module, optimizer: Any) -> int:
    steps = 0
    for epoch in range(scene.get("passes", 1)):
        for group in optimizer.param_groups:
            group["weight_decay"] = 0.001 * epoch
        for inputs, targets in worker.batches(_data(scene), steps=scene.get("steps")):
            if scene.get("act") and worker.rank == 1 and steps == scene["at"]:
                ACTS[scene["act"]](net, optimizer)
            time.sleep(scene.get("pause_s", 0.0))  # on demand, one rank could take all
            branch = not (scene.get("branch") and worker.rank == 1)
            loss = nn.functional.mse_loss(worker(inputs, branch), targets)
            spoiled = worker.rank == 1 and steps in scene.get("spoiled", [])
            worker.step(loss * float("nan") if spoiled else loss)
            steps += 1
    return steps


def _data(scene: dict[str, Any]) -> Any:
    generator = torch.Generator().manual_seed(3)
    batches = scene.get("batches", BATCHES)
    inputs = torch.randn(4 * batches, 6, generator=generator)
    data = torch.utils.data.TensorDataset(inputs, inputs[:, :3])
    return torch.utils.data.DataLoader(data, batch_size=4)


def main() -> None:
    """Every scene has a process of its own, forked from one that has torch loaded already."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    play({"optimizer": "SGD", "strategy": "sync", "every": 1, "batches": 1})  # loads all there is
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _play_and_end(json.loads(line))
        os.waitpid(child, 0)


def _play_and_end(scene: dict[str, Any]) -> None:
    install(Launch(rank=scene["own"], world_size=scene["world_size"], server=scene["server"]))
    try:
        answer = play(scene)
    except Exception as error:
        answer = {"error": type(error).__name__, "text": str(error)}
    print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
