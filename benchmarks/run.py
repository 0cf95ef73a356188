"""``make bench``: every benchmark of the repository, one after another, each in its own process.

Figures depend on the machine; ratios within one call are what to compare. Nothing here is a test.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BENCHMARKS = (
    ("policy core: decisions per second on one core", "policy.py"),
    ("server: push + decision + pull of one client on an idle server", "server_latency.py"),
)


def main() -> int:
    failed = 0
    for title, name in BENCHMARKS:
        print(f"\n== {title}  (benchmarks/{name})", flush=True)
        failed |= subprocess.run([sys.executable, str(HERE / name)], check=False).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
