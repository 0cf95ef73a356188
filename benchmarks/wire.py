"""``make bench-wire``: the same between hosts at 1 Gb/s, dense and compressed; root, ip and tc.

About ten minutes. Options as of run.py; the rows are parts/wire.py's.
"""

import sys

from parts import wire
from run import main

if __name__ == "__main__":
    sys.exit(main((wire,)))
