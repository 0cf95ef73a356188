"""What is said once at a run's start: the line on stderr, and the trace's setup record."""

from __future__ import annotations

from math import inf

import torch

from paceline.gradients.precision.described import described, narrow_accumulation
from paceline.gradients.precision.plan import wide
from paceline.policy.grouping import Groups
from paceline.strategies import DiLoCo, Strategy, drifts, fragments_of, windows_apart
from paceline.worker import compression_words, recipe_parts
from paceline.worker.batch_norm import unseen
from paceline.worker.buffers import parameter_digest
from paceline.worker.norm_modes import accumulation_notice
from paceline.worker.options import known_trouble
from paceline.worker.parts import Parts

_ONE_GROUP = (
    "all workers are one group, synchronous inside, so this is sync with a server beside it. On one host "
    "say how large groups are: --group-size 2, or group_size=2."
)


def announce(parts: Parts, *, batch: float, window: int, total: int | None) -> None:
    """Say what runs: ``batch`` samples a micro-batch, ``window`` micro-batches a push, ``total`` of them
    in the first pass."""
    options, launch = parts.options, parts.launch
    parts.journal.setup(
        strategy=str(options.strategy),
        topology=parts.plane.name,
        world_size=launch.world_size,
        accumulate=window,
        parameters=sum(parameter.numel() for parameter in parts.trained),
        parameter_bytes=sum(p.numel() * p.element_size() for p in parts.trained),
        optimizer=type(parts.optimizer).__name__,
        types=types_of(parts),
        threads=torch.get_num_threads(),
        seed=parts.seed,
        digest=parameter_digest(parts.model),
        groups=parts.groups,
    )
    parts.journal.say(start_line(parts, batch=batch, window=window))
    if len(parts.groups) == 1:
        parts.journal.note("notice", _ONE_GROUP)
    trouble = known_trouble(
        options.strategy, world_size=launch.world_size, optimizer=parts.optimizer,
        recipe=options.recipe,
    )  # fmt: skip
    narrow = narrow_accumulation(parts.precision, window)
    short = recipe_parts.warm_up_notice(
        options.recipe, workers=launch.world_size, window=window, total=total
    )
    seldom = meeting_notice(options.strategy, workers=launch.world_size, window=window, total=total)
    lossy = compression_words.notices(options.compress, launch.world_size, virtual=launch.virtual)
    for text in (
        trouble,
        narrow,
        short,
        seldom,
        *lossy,
        *norm_notices(parts, batch=batch, window=window),
    ):
        if text:
            parts.journal.note("notice", text)


def norm_notices(parts: Parts, *, batch: float, window: int) -> list[str]:
    """What is worth saying of the model's batch norm; "" or nothing if nothing is."""
    norms, workers = parts.norms, parts.launch.world_size
    if not norms.layers:
        return []
    frozen = unseen(norms.layers) if norms.mode == "freeze" else ""
    return [accumulation_notice(norms.mode, workers=workers, window=window, batch=batch), frozen]


def start_line(parts: Parts, *, batch: float, window: int) -> str:
    """Strategy, topology, effective batch, types, threads and what the command line overrode."""
    options, launch = parts.options, parts.launch
    workers = launch.world_size
    said = [
        f"strategy {options.strategy} on {parts.plane.name}",
        samples_of(options.strategy, workers=workers, window=window, batch=batch),
        *grouped(parts.groups),
        types_of(parts),
        f"threads of a worker: {torch.get_num_threads()}",
    ]
    if isinstance(options.strategy, DiLoCo) and workers > 1:
        said.append(outer_step(options.strategy))
    if parts.norms.layers and parts.norms.mode != "local":
        said.append(f"batch norm: {parts.norms.mode}")
    if recipe := recipe_parts.described(options, workers, parts.optimizer):
        said.append(recipe)
    gradients = [(tuple(p.shape), wide(p.dtype).itemsize) for p in parts.trained]
    if packed := compression_words.described(options.compress, workers, gradients):
        said.append(packed)
    changed = [f"{name}={value}" for name, value in options.overridden.items()]
    if launch.lr_factor != 1.0:
        changed.append(f"lr x {launch.lr_factor:g}")
    if changed:
        said.append("set by the command line: " + ", ".join(changed))
    if launch.emulate is not None:
        how = "in virtual time" if launch.virtual else "emulated"
        said.append(f"timing of {launch.emulate} {how}")
    return "; ".join(said)


def samples_of(strategy: Strategy, *, workers: int, window: int, batch: float) -> str:
    """How many samples are behind a step, as text."""
    own = window * batch
    if workers == 1 or not drifts(strategy):
        effective = workers * own
        return f"{workers} x {window} x {batch:g} = {effective:g} samples (workers x accumulate x batch)"
    each = f"each worker steps on {window} x {batch:g} = {own:g} samples (accumulate x batch)"
    apart = windows_apart(strategy)
    return f"{each}, and meets the others {'never' if apart == inf else f'every {apart:g} windows'}"


def meeting_notice(strategy: Strategy, *, workers: int, window: int, total: int | None) -> str:
    """What is worth saying of how seldom workers meet; "" if nothing is."""
    apart = windows_apart(strategy)
    if workers == 1 or not drifts(strategy):
        return ""
    if apart == inf:
        return (
            f"under {strategy} workers never meet: they train {workers} models, of which a script saves "
            "one, and worker.mean is over all of them. 'paceline report' shows how far apart they are."
        )
    each = apart * fragments_of(strategy)
    if total is not None and total < each * workers * window:
        return (
            f"{strategy}: workers are to meet every {each:g} windows, and a pass has "
            f"{max(1, total // (workers * window)):,} of each; they meet as each pass ends."
        )
    return ""


def outer_step(strategy: DiLoCo) -> str:
    """What DiLoCo does with the mean of the workers' ways, as text."""
    step = f"outer SGD: lr {strategy.outer_lr:g}, Nesterov momentum {strategy.outer_momentum:g}"
    one = f"; one of {strategy.fragments:g} fragments at a time"
    return step if strategy.fragments == 1 else step + one


def grouped(groups: Groups) -> list[str]:
    """Who pushes together, for the start line; nothing where everybody pushes alone."""
    if not groups:
        return []
    named = " | ".join(",".join(map(str, group)) for group in groups)
    return [f"{len(groups)} group{'s' * (len(groups) > 1)} of ranks: {named}"]


def types_of(parts: Parts) -> str:
    """The types numbers have from forward to update, as text."""
    return described(parts.precision, (parameter.dtype for parameter in parts.trained))
