"""What ``batch_norm=`` may be, and what is worth saying about it.

Words only: how layers are changed is :mod:`paceline.worker.batch_norm`'s business. No tensors.
"""

from __future__ import annotations

from typing import Any, Literal

from paceline.errors import bad_value

NormMode = Literal["local", "sync", "freeze"]
"""``local``: statistics of each worker's own micro-batches; ``sync``: of all workers' micro-batches
of a moment; ``freeze``: the running statistics, unchanged."""


def norm_mode(value: Any) -> NormMode:
    """The mode that ``batch_norm=value`` names; None is ``local``. Raises UsageError."""
    if value is None:
        return "local"
    if value in ("local", "sync", "freeze"):
        mode: NormMode = value
        return mode
    raise bad_value("batch_norm", value, "None, 'local', 'sync' or 'freeze'")


def accumulation_notice(mode: NormMode, *, workers: int, window: int, batch: float) -> str:
    """What accumulation does not do for batch norm, in one line; "" if there is nothing to say.

    ``batch``: samples of a micro-batch; ``window``: micro-batches per update of each worker.
    """
    if mode == "freeze" or window == 1:
        return ""
    update = f"{workers} x {window} x {batch:g} = {workers * window * batch:g} samples"
    joined = mode == "sync" and workers > 1
    seen = f"{workers} x {batch:g} = {workers * batch:g}" if joined else f"{batch:g}"
    return (
        f"batch norm takes its statistics of {seen} samples, while an update has {update} (workers x "
        "accumulate x batch): accumulation does not make its batch larger. nn.GroupNorm and "
        "batch_norm='freeze' do not depend on the batch."
    )
