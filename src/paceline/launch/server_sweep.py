"""Times the server plane of this host: a real run of :mod:`.server_member`, whose trace is read."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from paceline.errors import PacelineError
from paceline.launch.request import RunRequest
from paceline.launch.run import run
from paceline.launch.summary import FIRST_SIGNAL_EXIT
from paceline.measure.planes import exchanges
from paceline.measure.sweep import Timing
from paceline.runs import read_workers

SCRIPT = Path(__file__).with_name("server_member.py")
LAST_WORDS = 1500


def time_server(workers: int) -> list[Timing]:
    """Push and pull of each size by ``workers`` processes and a server, one thread each.

    Raises KeyboardInterrupt if a signal ended it, and PacelineError with its last words if it failed.
    """
    said = io.StringIO()
    with tempfile.TemporaryDirectory(prefix="paceline-") as name:
        out = Path(name) / "run"
        request = RunRequest(
            script=SCRIPT, workers=workers, strategy="sync:server", threads=1, quiet=True, out=out
        )
        result = run(request, stdout=said, stderr=said)
        if result.exit_code >= FIRST_SIGNAL_EXIT:
            raise KeyboardInterrupt
        if result.exit_code != 0:
            raise PacelineError(
                f"the server plane cannot be timed: {said.getvalue()[-LAST_WORDS:].strip()}"
            )
        return exchanges(read_workers(out))
