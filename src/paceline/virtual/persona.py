"""What a process has one of and each worker of a virtual run must have its own: swapped at each turn.

Random streams, ``__main__``, output and arguments, who the worker is, how it meets the world. (What
torch keeps per thread, such as grad mode and autocast, needs no swapping; modules that the script
imports are shared.)
"""

from __future__ import annotations

import os
import random
import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TextIO

import torch

from paceline.launch.context import Launch, install, installed
from paceline.virtual.numpy_stream import NumpyStream
from paceline.worker.surroundings import Surroundings, surround


@dataclass(kw_only=True, slots=True)
class Persona:
    """One worker's share of the process. ``main``: its script's module. ``threads``: torch's, of one
    operation."""

    launch: Launch
    surroundings: Surroundings
    main: ModuleType
    threads: int
    _python_stream: Any = field(init=False)
    _numpy_stream: NumpyStream = field(init=False, default_factory=NumpyStream)
    _torch_stream: torch.Tensor = field(init=False)
    _dtype: torch.dtype = field(init=False)
    _output: tuple[TextIO, TextIO, list[str]] = field(init=False)

    def __post_init__(self) -> None:
        self._keep()
        self._output = (sys.stdout, sys.stderr, list(sys.argv))

    def enter(self) -> None:
        """The process is this worker's from now on."""
        random.setstate(self._python_stream)
        self._numpy_stream.enter()
        torch.set_rng_state(self._torch_stream)
        torch.set_default_dtype(self._dtype)
        sys.modules["__main__"] = self.main
        sys.stdout, sys.stderr, sys.argv = self._output
        os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(self.launch.rank)
        install(self.launch)
        surround(self.surroundings)

    def leave(self) -> None:
        """Keep what the worker may have changed."""
        self._numpy_stream.leave()
        self._keep()

    def _keep(self) -> None:
        self._python_stream = random.getstate()
        self._torch_stream = torch.get_rng_state()
        self._dtype = torch.get_default_dtype()
        self._output = (sys.stdout, sys.stderr, sys.argv)
        current = installed()
        if current is not None and current.rank == self.launch.rank:
            self.launch = current


def limit_threads(threads: int) -> None:
    """Let torch use so many: bits depend on it. (Setting it anew would cost each turn.)"""
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
