"""What the launchers of one run's hosts must have been asked alike, as text to compare at the meeting.

The script's own arguments are left out: paths may differ from host to host. Knows no connections.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from paceline import checkpoints
from paceline.launch.request import RunRequest
from paceline.transport.messages import Launcher


def launcher_of(request: RunRequest) -> Launcher:
    """How the launcher of ``request``'s host introduces itself."""
    number = 0 if request.hosts is None else request.hosts.number
    return Launcher(number=number, ranks=list(request.ranks), said=_said(request))


def _said(request: RunRequest) -> dict[str, str]:
    """By the words of the command line."""
    overrides = {name: str(value) for name, value in request.worker_overrides().items()}
    return {
        "nnodes": str(1 if request.hosts is None else request.hosts.count),
        "shards": str(1 if request.hosts is None else request.hosts.shards),
        "workers": str(request.workers),
        "script": request.script.name,
        **overrides,
        "lr_factor": f"{request.lr_factor:g}",
        "emulate": _contents(request.emulate),
        "resume": _beginning(request.resume),
    }


def _contents(file: Path | None) -> str:
    if file is None:
        return "nothing"
    return f"a file of digest {sha256(file.read_bytes()).hexdigest()[:12]}"


def _beginning(checkpoint: Path | None) -> str:
    if checkpoint is None:
        return "nothing"
    return f"a checkpoint of version {checkpoints.read_body(checkpoint)['version']}"
