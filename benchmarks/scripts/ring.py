"""One host of a ring: measures latency, each link's bandwidth and an all-reduce, and rank 0 prints them.

``ring.py RANK WORLD_SIZE ADDRESS PORT BYTES``, over gloo. A host sends to the next one; the answer says
that all has come. The latency of a hop is a small all-reduce's over the hops that it has. Of several
rounds the fastest counts: other work on this machine only ever adds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

ROUNDS = 15
SMALL = 8


def main() -> None:
    rank, world_size, port, size_bytes = (int(sys.argv[place]) for place in (1, 2, 4, 5))
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://{sys.argv[3]}:{port}", rank=rank, world_size=world_size
    )
    hops = 2 * (world_size - 1)
    payload, small = torch.zeros(size_bytes // 4), torch.zeros(SMALL)
    said = {
        "hop_s": together(lambda: dist.all_reduce(small)) / hops,
        "bytes_per_s": [
            bandwidth(sender, rank, world_size, payload) for sender in range(world_size)
        ],
        "all_reduce_s": together(lambda: dist.all_reduce(payload)),
    }
    if rank == 0:
        print(json.dumps(said), flush=True)
    dist.destroy_process_group()


def together(act: Callable[[], object]) -> float:
    """Seconds of ``act``, done by everyone at once: the slowest rank's."""
    spent = []
    for _ in range(ROUNDS):
        dist.barrier()
        spent.append(seconds(act))
    slowest = torch.tensor(spent)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return min(slowest.tolist())


def bandwidth(sender: int, rank: int, world_size: int, payload: torch.Tensor) -> float:
    """Bytes a second from ``sender`` to the next rank, without what an empty message takes."""
    dist.barrier()
    small_s = [there_and_back(sender, rank, world_size, torch.zeros(1)) for _ in range(ROUNDS)]
    large_s = [there_and_back(sender, rank, world_size, payload) for _ in range(ROUNDS)]
    way_s = torch.tensor([min(large_s) - min(small_s)])
    dist.broadcast(way_s, src=sender)
    return payload.numel() * 4 / way_s.item()


def there_and_back(sender: int, rank: int, world_size: int, payload: torch.Tensor) -> float:
    receiver, answer = (sender + 1) % world_size, torch.zeros(1)

    def exchange() -> None:
        if rank == sender:
            dist.send(payload, receiver)
            dist.recv(answer, receiver)
        elif rank == receiver:
            dist.recv(payload, sender)
            dist.send(answer, sender)

    return seconds(exchange)


def seconds(act: Callable[[], object]) -> float:
    began_s = time.monotonic()
    act()
    return time.monotonic() - began_s


if __name__ == "__main__":
    main()
