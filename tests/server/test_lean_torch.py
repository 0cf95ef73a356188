"""The server process builds every torch.optim optimizer without torch's compiler."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from paceline.server.lean_torch import leave_out_the_compiler
leave_out_the_compiler()
import io, sys, torch
for name in dir(torch.optim):
    cls = getattr(torch.optim, name)
    optimizers = isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer)
    if not optimizers or name in ("Optimizer", "LBFGS", "SparseAdam"):
        continue
    p = torch.nn.Parameter(torch.ones(3, 3))
    optimizer = cls([p], lr=0.1)
    p.grad = torch.full((3, 3), 0.5)
    torch.nn.utils.clip_grad_norm_([p], 1.0)
    optimizer.step()
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    optimizer.load_state_dict(torch.load(file, weights_only=True))
    optimizer.step()
    assert not torch.equal(p, torch.ones(3, 3)), name
    print(name)
assert type(sys.modules["torch._dynamo"]).__name__ == "_NoCompiler"
"""


def test_every_optimizer_steps_saves_and_loads_without_the_compiler() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {"SGD", "Adam", "AdamW", "RMSprop"} <= set(done.stdout.split())
