"""What a recipe means for one training: which ingredients, in which composition, for which optimizer.

The one place where ``"stable"`` is spelled out. Where updates join all workers (sync, backup, ssp:0,
and every strategy of one worker) the optimizer itself is told to use Nesterov's form; where pushes are
applied one by one each worker keeps what a shared optimizer would mix up. Knows no plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from paceline.errors import UsageError
from paceline.gradients.norm_limit import NEW, RELATIVE, norm_limit
from paceline.recipes import Plain, Recipe, Stable
from paceline.strategies import Strategy, is_joint
from paceline.worker.momentum_forms import FORMS
from paceline.worker.options import Options
from paceline.worker.own_gradient import Memory, NoMemory, OwnGradient, Unrefined
from paceline.worker.own_momentum import OwnMomentum
from paceline.worker.training import NO_WARM_UP, Training
from paceline.worker.warm_up import WarmUp


def warm_up(recipe: Recipe, *, world_size: int) -> WarmUp:
    """How learning rates rise."""
    if isinstance(recipe, Plain):
        return NO_WARM_UP
    return WarmUp(updates=recipe.warmup, workers=world_size)


def limit(recipe: Recipe, kept: Sequence[float] | None) -> list[float] | None:
    """The state that the limit on norms begins with (``kept``: a checkpoint's), None if it is fixed."""
    return None if isinstance(recipe, Plain) else list(kept or NEW)


def prepare(recipe: Recipe, optimizer: torch.optim.Optimizer) -> None:
    """Give SGD with momentum Nesterov's form. Raises UsageError where that cannot be."""
    if isinstance(recipe, Plain) or not has_momentum(optimizer):
        return
    for group in optimizer.param_groups:
        if group["dampening"]:
            raise UsageError(
                f"recipe={str(recipe)!r} and dampening={group['dampening']:g} cannot work together: "
                "the recipe uses Nesterov momentum, which knows no dampening. Leave dampening out, "
                "or use recipe='plain'."
            )
        group["nesterov"] = group["momentum"] > 0


def own_gradient(
    training: Training, views: Sequence[torch.Tensor], workers: int
) -> OwnGradient | Unrefined:
    """What this worker, one of ``workers``, does to its gradients (``views``) before it pushes them."""
    if not refines(training.recipe, training.strategy):
        return Unrefined()
    form = FORMS.get(type(training.optimizer))
    memory: Memory = NoMemory()
    if form is not None:
        memory = OwnMomentum(form, training.optimizer, training.trainables, views, workers)
    return OwnGradient(views, norm_limit(training.clip_norm, training.limit), memory)


def refines(recipe: Recipe, strategy: Strategy) -> bool:
    """Whether workers change their gradients before they push them."""
    return isinstance(recipe, Stable) and not is_joint(strategy)


def has_momentum(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it is SGD with momentum."""
    groups: list[dict[str, Any]] = optimizer.param_groups
    return type(optimizer) is torch.optim.SGD and any(group["momentum"] for group in groups)


def described(options: Options, workers: int, optimizer: torch.optim.Optimizer) -> str:
    """What the recipe does here, for the start line; "" if nothing."""
    recipe = options.recipe
    if isinstance(recipe, Plain):
        return ""
    said = [f"norms clipped at {RELATIVE:g} x their running mean"]
    if recipe.warmup:
        said.append(f"warm-up over {recipe.warmup} updates")
    if workers > 1 and refines(recipe, options.strategy):
        said.append(_own_momentum(optimizer))
    elif has_momentum(optimizer):
        said.append("Nesterov momentum")
    return f"recipe {recipe}: " + ", ".join(said)


def warm_up_notice(recipe: Recipe, *, workers: int, window: int, total: int | None) -> str:
    """What to say if a pass of ``total`` loader batches ends before the warm-up does; "" otherwise.

    ``window``: batches of one window.
    """
    if isinstance(recipe, Plain) or total is None or recipe.warmup * workers * window <= total:
        return ""
    batches = recipe.warmup * workers * window
    return (
        f"the warm-up takes {recipe.warmup} updates of {workers} x {window} batches = {batches:,}, and this "
        f"pass has {total:,}: until then learning rates stay below yours. Shorten it: "
        f"recipe='stable:{max(1, total // (20 * workers * window))}', or 'stable:5%of...' of all updates."
    )


def _own_momentum(optimizer: torch.optim.Optimizer) -> str:
    if type(optimizer) not in FORMS:
        return f"{type(optimizer).__name__} on the server as it is"
    if isinstance(optimizer, torch.optim.SGD):
        return "Nesterov momentum, each worker its own"
    return "each worker its own first moment (Nesterov), the second one shared"
