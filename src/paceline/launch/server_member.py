"""The script that ``paceline measure`` has N workers run to time the server plane: one flat parameter a size.

Run as a script by ``paceline run``, never imported. The trace has the times.
"""

from __future__ import annotations

import torch

import paceline
from paceline.measure.planes import ROUNDS
from paceline.measure.sweep import SIZES_BYTES


class Flat(torch.nn.Module):
    """``size_bytes`` of parameters whose forward costs next to nothing; their gradient is all ones."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        self.flat = torch.nn.Parameter(torch.zeros(size_bytes // 4))

    def forward(self, _: torch.Tensor) -> torch.Tensor:
        return self.flat.sum()


def main() -> None:
    """Exchange each size :data:`ROUNDS` times."""
    for size_bytes in SIZES_BYTES:
        model = Flat(size_bytes)
        worker = paceline.Worker(model, torch.optim.SGD(model.parameters(), lr=0.1))
        for batch in worker.batches([torch.zeros(1)] * (ROUNDS * worker.world_size)):
            worker.step(worker(batch))
        worker.close()


if __name__ == "__main__":
    main()
