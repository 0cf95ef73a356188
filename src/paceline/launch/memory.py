"""How much memory a run takes: Pss (each shared page divided among those who map it), summed.

The sum over all processes is what the machine really gives, shared memory counted once. Peaks
between two samples are missed. Knows processes by name and pid only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping

import psutil

INTERVAL_S = 1.0
MAX_SHARE = 0.05
"""Reading is slow for many large processes: never spend more than this share of the time on it."""


class PssSampler:
    """Samples named processes, with their children, about once a second in a thread."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self.peak_bytes = 0
        self.peak_by_name: dict[str, int] = dict.fromkeys(pids, 0)
        self._pids = pids
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="paceline-memory", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; the peaks stay readable."""
        self._stop.set()
        self._thread.join()

    def sample(self) -> None:
        """Take one sample now."""
        sizes = {name: family_pss_bytes(pid) for name, pid in self._pids.items()}
        for name, size in sizes.items():
            self.peak_by_name[name] = max(self.peak_by_name[name], size)
        self.peak_bytes = max(self.peak_bytes, sum(sizes.values()))

    def _run(self) -> None:
        pause_s = INTERVAL_S
        while not self._stop.wait(pause_s):
            started_s = time.thread_time()
            self.sample()
            pause_s = max(INTERVAL_S, (time.thread_time() - started_s) / MAX_SHARE)


def family_pss_bytes(pid: int) -> int:
    """Summed Pss of the process and its children, 0 once it has ended."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0
    return sum(_pss_bytes(family))


def _pss_bytes(processes: Iterable[psutil.Process]) -> Iterable[int]:
    for process in processes:
        try:
            info = process.memory_full_info()
        except psutil.Error:  # ended meanwhile
            continue
        yield int(getattr(info, "pss", info.uss))
