"""Trains a small network in the given types on every worker: ``script.py WORDS`` (a JSON object).

``parameters``: their type; everything else: the Worker's keywords. Prints a digest of what came out.
"""

from __future__ import annotations

import hashlib
import json
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paceline


def main() -> None:
    words = json.loads(sys.argv[1])
    dtype = getattr(torch, words.pop("parameters", "float32"))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    inputs = torch.randn(256, 8)
    data = TensorDataset(inputs.to(dtype), inputs.sum(1, keepdim=True))
    loader = DataLoader(data, batch_size=8, shuffle=True)
    norms = {}
    with paceline.Worker(model, optimizer, accumulate=2, **words) as worker:
        for _ in range(8):
            for x, y in worker.batches(loader):
                result = worker.step(nn.functional.mse_loss(worker(x), y))
                if result.applied:
                    norms[result.version] = result.norm
        with worker.evaluate():
            losses = [
                nn.functional.mse_loss(worker(x), y).item() for x, y in worker.batches(loader)
            ]
        loss = worker.mean(sum(losses) / len(losses))
        kinds = {v.dtype for s in optimizer.state_dict()["state"].values() for v in s.values()}
    whole = torch.cat([p.detach().flatten() for p in model.parameters()])
    digest = hashlib.sha256(whole.view(torch.uint8).numpy().tobytes()).hexdigest()[:16]
    print(json.dumps({"loss": loss, "digest": digest, "scale": result.scale, "norms": norms,
                      "state": sorted(map(str, kinds)), "type": str(whole.dtype)}))  # fmt: skip


if __name__ == "__main__":
    main()
