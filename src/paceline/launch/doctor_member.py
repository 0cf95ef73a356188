"""A process of the little group by which ``paceline doctor`` measures: ``RANK WORLD_SIZE STORE PLAN``."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict

from paceline.doctor.speed import speeds


def main() -> None:
    """Rank 0 prints the speeds as a line of JSON."""
    import torch
    from torch._C import _distributed_c10d as stores

    from paceline.transport.gloo_wire import GlooWire

    torch.set_num_threads(1)
    rank, world_size = int(sys.argv[1]), int(sys.argv[2])
    wire = GlooWire(stores.FileStore(sys.argv[3], world_size), rank=rank, world_size=world_size)
    found = speeds(wire, lambda _, array: wire.all_reduce(array), time.perf_counter)
    if found is not None:
        print(json.dumps(asdict(found)), flush=True)
    wire.close()


if __name__ == "__main__":
    main()
