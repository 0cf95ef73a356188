"""Carries out the probes of ``paceline advise``: each a run of its own, kept, and reused if it is the same.

The same: script, bytes of it, arguments, trial, workers, seed, cluster and kind of time. What it comes to
is :mod:`paceline.advise`'s business, and so is what is probed next.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from paceline.advise.outcomes import Candidate, Outcome, outcome_of
from paceline.errors import UsageError
from paceline.launch.request import RunRequest, checked, core_count
from paceline.launch.summary import FIRST_SIGNAL_EXIT, RunResult
from paceline.runs import Run, rank_files, read_run
from paceline.trials import as_file_name

Execute = Callable[[RunRequest, TextIO], RunResult]
Tell = Callable[[str], None]
DONE = "probe.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """What all probes have in common. ``cluster``: whose time counts, ``virtual`` whether the probes
    live in it; without, they take this machine's. ``out``: holds a directory a probe."""

    script: Path
    args: tuple[str, ...]
    workers: int
    cluster: Path | None
    virtual: bool
    out: Path

    def request(self, candidate: Candidate, seed: int) -> RunRequest:
        """The run that is the probe."""
        trial = candidate.trial
        request = RunRequest(
            script=self.script,
            args=self.args,
            workers=candidate.workers,
            strategy=trial.strategy,
            overrides=trial.overrides,
            lr_factor=trial.lr_factor,
            virtual=self.cluster if self.virtual else None,
            seed=seed,
            threads=max(1, core_count() // self.workers),
        )
        return checked(request)

    def directory(self, candidate: Candidate, seed: int) -> Path:
        """Where it is recorded: the name says what it is, and ends with a digest of all that counts."""
        request = self.request(candidate, seed)
        said = [
            self.script.read_bytes().hex(), *request.script_args(), str(candidate.trial),
            candidate.workers, seed, request.threads,
            self.cluster.read_text() if self.virtual and self.cluster else "",
        ]  # fmt: skip
        digest = hashlib.sha256(json.dumps(said).encode()).hexdigest()[:10]
        return self.out / f"{as_file_name(str(candidate))}-seed-{seed}-{digest}"


@dataclass(kw_only=True)
class Probes:
    """The probes so far. ``interrupted``: Ctrl-C; what was finished is kept."""

    bench: Bench
    execute: Execute
    tell: Tell
    clock: Callable[[], float]
    most: int
    outcomes: list[Outcome] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    interrupted: bool = False

    def carry_out(self, candidates: Iterable[Candidate], seeds: int) -> bool:
        """All ``candidates`` with so many seeds. False after Ctrl-C."""
        try:
            for candidate in candidates:
                for seed in range(len(self.of(candidate)), seeds):
                    self._one(candidate, seed)
        except KeyboardInterrupt:
            self.interrupted = True
        return not self.interrupted

    def of(self, candidate: Candidate) -> list[Outcome]:
        """What its probes came to."""
        return [one for one in self.outcomes if one.candidate == candidate]

    def _one(self, candidate: Candidate, seed: int) -> None:
        directory = self.bench.directory(candidate, seed)
        number = len(self.outcomes) + 1
        name = f"probe {number} (of at most {self.most}): {candidate}, seed {seed}"
        if (directory / DONE).exists():
            self._keep(candidate, seed, directory)
            self.tell(f"{name}: there already")
            return
        self.tell(f"{name} ...")
        began_s = self.clock()
        failure = self._run(candidate, seed, directory)
        took_s = self.clock() - began_s
        _write_whole(directory / DONE, json.dumps({"took_s": took_s, "failure": failure}))
        self._keep(candidate, seed, directory)
        self.tell(f"{name}: {failure or f'took {took_s:.1f} s'}{self._outlook(took_s)}")

    def _run(self, candidate: Candidate, seed: int, directory: Path) -> str:
        """ "" or why there is no result. An unfinished directory of this very probe is begun anew."""
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(parents=True)
        run_directory = directory / "run"
        log = directory / "output.log"
        with log.open("w", encoding="utf-8") as lines:
            request = replace(self.bench.request(candidate, seed), out=run_directory)
            result = self.execute(request, lines)
        if result.exit_code >= FIRST_SIGNAL_EXIT:
            raise KeyboardInterrupt
        if result.exit_code:
            return f"{result.sentence} (see {log})"
        if not rank_files(run_directory):
            raise UsageError(
                f"{self.bench.script} trained nothing: it never iterated the batches of a paceline.Worker."
            )
        return ""

    def _keep(self, candidate: Candidate, seed: int, directory: Path) -> None:
        said = json.loads((directory / DONE).read_text())
        took_s, failure = float(said["took_s"]), str(said["failure"])
        if failure:
            self.outcomes.append(
                Outcome(candidate=candidate, seed=seed, took_s=took_s, failure=failure)
            )
            return
        run = read_run(directory / "run")
        self.runs.append(run)
        self.outcomes.append(outcome_of(run, candidate, took_s=took_s))

    def _outlook(self, took_s: float) -> str:
        left = self.most - len(self.outcomes)
        return f"; at most {left} more, about {left * took_s / 60:.0f} min" if left > 0 else ""


def _write_whole(path: Path, text: str) -> None:
    """So that it is there whole or not at all, whenever the process ends."""
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    os.replace(new, path)
