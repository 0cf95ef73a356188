"""Runs one script as many workers, turn by turn, until all of them have ended.

Puts the pieces together: an actor and a persona for each rank, the world that they share. When a
worker goes on is said by the events of the simulated clock, in their order, and by nothing else.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from paceline.errors import StoppedError
from paceline.launch.bootstrap import EXIT_RAISED, EXIT_STOPPED
from paceline.launch.context import Launch
from paceline.launch.script import compiled, main_module, script_frames
from paceline.launch.seeding import seed_everything
from paceline.virtual.actors import Actor
from paceline.virtual.hooks import Ending
from paceline.virtual.persona import Persona, limit_threads
from paceline.virtual.sharing import Sharing
from paceline.virtual.world import World
from paceline.worker.session import Session
from paceline.worker.surroundings import Surroundings


@dataclass(kw_only=True, slots=True)
class _Role:
    """One worker. ``exit_code``: as its process would have had, None before its end."""

    rank: int
    ending: Ending
    persona: Persona
    actor: Actor
    joined: bool = False
    exit_code: int | None = None
    flush: Callable[[], None] = lambda: None


class Stage:
    """The workers of ``launch`` (as many as its world size) that all run the script at ``path``."""

    def __init__(self, world: World, launch: Launch, *, path: str, threads: int) -> None:
        self._world = world
        self._path = path
        self._roles: list[_Role] = []
        self._on_stage: _Role | None = None
        self._dressed: Persona | None = None
        self._sharing = Sharing()
        for rank in range(launch.world_size):
            self._cast(replace(launch, rank=rank, local_rank=rank), threads)

    def rank(self) -> int | None:
        """Whose turn it is; None while the server or the clock has it."""
        return None if self._on_stage is None else self._on_stage.rank

    def run(self) -> list[int]:
        """The exit code of every worker, when all have ended."""
        for role in self._roles:
            self._world.engine.at(0.0, self._turn, role.rank)
        self._world.engine.run()
        if self._waiting():
            self._world.shut_down(self._why_nothing_happens())
            self._world.engine.run()
        return [EXIT_STOPPED if one.exit_code is None else one.exit_code for one in self._roles]

    def flush(self) -> None:
        """Put on record what all workers and the server have to say so far."""
        self._world.flush()
        for role in self._roles:
            role.flush()

    # ------------------------------------------------------------------------------- the cast

    def _cast(self, launch: Launch, threads: int) -> None:
        rank = launch.rank
        if launch.seed is not None:
            seed_everything(launch.seed)
        ending = Ending()
        around = Surroundings(
            join=partial(self._join, rank),
            clock_s=self._world.now_s,
            sleep_s=partial(self._sleep, rank),
            exit_hooks=ending.hook,
        )
        self._roles.append(
            _Role(
                rank=rank,
                ending=ending,
                persona=Persona(
                    launch=launch,
                    surroundings=around,
                    main=main_module(self._path),
                    threads=threads,
                ),
                actor=Actor(f"rank {rank}", partial(self._play, rank)),
            )
        )

    def _join(self, rank: int, launch: Launch, *, on_beat: Callable[[], None], **_: Any) -> Session:
        role = self._roles[rank]
        role.joined, role.flush = True, on_beat
        self._sharing.look_through(sys._getframe())
        wake = partial(self._plan, rank, 0.0)
        return self._world.join(launch, wait=role.actor.pause, wake=wake)

    def _sleep(self, rank: int, seconds: float) -> None:
        self._plan(rank, seconds)
        self._roles[rank].actor.pause()

    # ------------------------------------------------------------------------------- the play

    def _plan(self, rank: int, in_s: float) -> None:
        engine = self._world.engine
        engine.at(engine.now_s + in_s, self._turn, rank)

    def _turn(self, rank: int) -> None:
        """Let the worker go on until it waits, in a process that is its own."""
        role = self._roles[rank]
        if self._dressed is not role.persona:
            if self._dressed is not None:
                self._dressed.leave()
            self._dressed = role.persona
            role.persona.enter()
        limit_threads(role.persona.threads)
        self._on_stage = role
        role.actor.resume()
        role.persona.threads = torch.get_num_threads()
        self._on_stage = None

    def _play(self, rank: int) -> None:
        role = self._roles[rank]
        role.exit_code = self._perform(role)
        try:
            role.ending.ended()
        except Exception:
            traceback.print_exc()

    def _perform(self, role: _Role) -> int:
        try:
            exec(compiled(self._path), role.persona.main.__dict__)
        except StoppedError as error:
            print(f"stopped: {error}", file=sys.stderr)
            return EXIT_STOPPED
        except SystemExit as error:
            return _code_of(error)
        except BaseException as error:
            shown = error.with_traceback(script_frames(error.__traceback__, self._path))
            traceback.print_exception(shown)
            with suppress(StoppedError):
                role.ending.failed(error)
            return EXIT_RAISED
        return 0

    # ---------------------------------------------------------------------------- dead ends

    def _waiting(self) -> list[_Role]:
        return [role for role in self._roles if not role.actor.ended]

    def _why_nothing_happens(self) -> str:
        absent = [role for role in self._roles if role.actor.ended and not role.joined]
        if absent:
            ranks = ", ".join(str(role.rank) for role in absent)
            return f"rank {ranks} ended before it made its paceline.Worker"
        ended = [str(role.rank) for role in self._roles if role.actor.ended]
        return f"everyone left waits for rank {', '.join(ended)}, which has ended"


def _code_of(error: SystemExit) -> int:
    """What ``sys.exit(...)`` makes of its argument."""
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return EXIT_RAISED


def many_descriptors() -> None:
    """Each worker has a region of memory, and so has each version: allow as many as the system does."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
