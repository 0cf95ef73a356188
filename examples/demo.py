"""What ``make demo`` runs: one worker, sync, async and ssp:3 in an emulated cluster that hiccups.

Four real worker processes train a small CNN on digits. Each step is stretched to the time that
``cluster_hiccups.toml`` gives it, so that waiting looks as it would on four machines. Takes about two
minutes; prints the comparison and the path of the report. Arguments go to ``paceline compare``.
"""

import sys
from pathlib import Path

from paceline.cli import main

EXAMPLES = Path(__file__).resolve().parent

if __name__ == "__main__":
    sys.argv = [
        "paceline", "compare",
        "-n", "4",
        "--strategies", "sync,async,ssp:3",
        "--target", "accuracy=0.95",
        "--emulate", str(EXAMPLES / "cluster_hiccups.toml"),
        *sys.argv[1:],
        str(EXAMPLES / "digits_cnn.py"),
    ]  # fmt: skip
    main()
