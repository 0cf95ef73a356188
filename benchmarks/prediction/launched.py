"""``paceline run`` on every host of a list at once, joined by a key: what each host's launcher said."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.transport.keys import make_key
from prediction.namespaces import Host


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """``script`` with ``args``; ``workers`` on each host, one thread each; ``words``: further options;
    ``out``: where each host records, in a folder of its number (None: nowhere that lasts)."""

    script: Path
    args: Sequence[str] = ()
    workers: int = 1
    words: Sequence[str] = ()
    out: Path | None = None


def launched(places: Sequence[Host], job: Job, *, timeout_s: float) -> list[str]:
    """What was printed on each host, from the first, which has the server, to the last.

    Raises RuntimeError, with the end of what was said, unless all ended well and in time.
    """
    with tempfile.TemporaryDirectory(prefix="paceline-hosts-") as name:
        key, out = Path(name) / "key", job.out or Path(name)
        make_key(key)
        launchers = [
            subprocess.Popen(
                place.command(
                    sys.executable, "-m", "paceline.cli", "run", "--nnodes", str(len(places)),
                    "--node-rank", str(number), "--master-addr", places[0].address, "--key", str(key),
                    "--threads", "1", "-n", str(job.workers), "--out", str(out / str(number)),
                    *job.words, str(job.script), *job.args,
                ),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for number, place in enumerate(places)
        ]  # fmt: skip
        try:
            said = [one.communicate(timeout=timeout_s)[0] for one in launchers]
        except BaseException:
            for one in launchers:
                one.terminate()
                one.wait()
            raise
    if any(one.returncode for one in launchers):
        raise RuntimeError("\n".join(words[-1500:] for words in said))
    return said
