"""Which trainings answer the recipe question, in order of importance. Runs nothing.

The learning rate of each strategy is picked on training data kept back (``held_out``), from one
seed that is used for nothing else; cells that need a rate come once it is picked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

PICK_SEED = 100
CONFIRMED = (1, 2, 3)
"""After these stages one more seed is trained on real processes."""
CLUSTERS = {
    "hiccups-8": "count = 8\n",
    "straggler-8": "count = 8\n[[stragglers]]\nrank = 3\nfactor = 4.0\n",
    "hiccups-32": "count = 32\n",
}
RATES = {"fashion": (0.16, 0.08), "text": (6e-3, 3e-3, 1.2e-2)}
TEXT_BATCHES = 1536
EPOCHS = {"fashion": 10, "text": 1}


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What is compared: everything but the learning rate and the seed. ``optimizer``: the task's own if
    empty, or ``nadam`` (which has Nesterov's form under sync, too). ``epochs``: the task's own if 0."""

    task: str
    strategy: str
    recipe: str = "stable"
    cluster: str = "hiccups-8"
    optimizer: str = ""
    epochs: int = 0

    @property
    def name(self) -> str:
        """For people: what differs from setting to setting of a table."""
        longer = f"{self.epochs} epochs" if self.epochs else ""
        return ", ".join(filter(None, [f"{self.strategy} {self.optimizer}".strip(), longer]))

    @property
    def passes(self) -> int:
        """Over the data."""
        return self.epochs or EPOCHS[self.task]

    @property
    def workers(self) -> int:
        return int(self.cluster.rpartition("-")[2])

    @property
    def recipe_word(self) -> str:
        """The text task is short: its warm-up is a share of it."""
        if self.recipe == "stable" and self.task == "text":
            return f"stable:20%of{TEXT_BATCHES // self.workers}"
        return self.recipe


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One training. ``real``: on real processes, whose timing is emulated; else in virtual time."""

    setting: Setting
    lr: float
    seed: int
    held_out: bool = False
    real: bool = False

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(document: dict[str, Any]) -> Cell:
        return Cell(**{**document, "setting": Setting(**document["setting"])})

    @property
    def cluster_toml(self) -> str:
        """The cluster file: 10 % exponential jitter, 5 % of the steps take three times as long."""
        step_s = 0.05 if self.real else 1.0
        timing = f"[workers]\nstep_s = {step_s}\njitter = 0.1\nseed = {self.seed}\n"
        hiccups = "[hiccups]\nprobability = 0.05\nfactor = 3.0\n"
        return timing + CLUSTERS[self.setting.cluster] + hiccups


Picked = Callable[[Setting], float | None]
"""The learning rate that a setting was given, None while that is open."""


def picking(setting: Setting) -> list[Cell]:
    """The cells that pick ``setting``'s learning rate."""
    rates = RATES[setting.task]
    return [Cell(setting=setting, lr=lr, seed=PICK_SEED, held_out=True) for lr in rates]


def source_of_rate(setting: Setting) -> Setting:
    """Whose learning rate ``setting`` has: a straggler changes none, a backup worker's is sync's, and
    that of a longer training the usual one's."""
    setting = replace(setting, epochs=0)
    if setting.cluster.startswith("straggler"):
        setting = replace(setting, cluster="hiccups-8")
    return replace(setting, strategy="sync") if setting.strategy == "backup:1" else setting


def plan(picked: Picked, seeds: int) -> Iterator[Cell]:
    """All cells whose rates are known, the most important first."""
    for number, (settings, first, last) in enumerate(_stages(seeds)):
        for setting in settings:
            yield from picking(source_of_rate(setting)) if first == 0 else ()
        for seed in range(first, last):
            yield from _with_rates(settings, picked, seed=seed)
        if number in CONFIRMED:
            headline = _group("fashion", ["sync", "ssp:3"])
            yield from _with_rates(headline, picked, seed=CONFIRMED.index(number), real=True)


def compared(seeds: int) -> list[list[Setting]]:
    """The settings that make one table each, in which sync comes first."""
    groups = [settings for settings, first, _ in _stages(seeds) if first == 0]
    whole = [one for one in groups if not any(set(one) < set(other) for other in groups)]
    return sorted(whole, key=lambda one: (one[0].task, one[0].cluster, one[0].recipe != "stable"))


def _stages(seeds: int) -> Iterator[tuple[list[Setting], int, int]]:
    """(settings, first seed, end of seeds): few seeds of everything before many of anything."""
    few = min(seeds, 2)
    yield _group("fashion", ["sync", "ssp:3"]), 0, 1
    reading = [
        *_group("text", ["sync", "ssp:3", "async"]),
        *_group("text", ["sync"], optimizer="nadam"),
    ]
    yield reading, 0, few
    yield _group("text", ["sync", "ssp:3", "async"], recipe="plain"), 0, few
    seeing = [
        *_group("fashion", ["sync", "ssp:3", "async"]),
        *_group("fashion", ["ssp:3"], epochs=EPOCHS["fashion"] + 1),
    ]
    yield seeing, 0, few
    straggled = ["sync", "backup:1", "ssp:3", "async"]
    yield _group("fashion", straggled, cluster="straggler-8"), 0, few
    yield _group("fashion", ["sync", "ssp:3", "async"], cluster="hiccups-32"), 0, few
    yield _group("fashion", ["sync", "ssp:3", "async"], recipe="plain"), 0, few
    yield _group("text", straggled, cluster="straggler-8"), 0, few
    yield _group("text", ["sync", "ssp:3", "async"], cluster="hiccups-32"), 0, few
    yield seeing, few, seeds
    yield reading, few, seeds


def _with_rates(
    settings: list[Setting], picked: Picked, *, seed: int, real: bool = False
) -> Iterator[Cell]:
    for setting in settings:
        if (lr := picked(source_of_rate(setting))) is not None:
            yield Cell(setting=setting, lr=lr, seed=seed, real=real)


def _group(task: str, strategies: list[str], **others: Any) -> list[Setting]:
    return [Setting(task=task, strategy=strategy, **others) for strategy in strategies]
