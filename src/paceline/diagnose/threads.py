"""More threads than cores: computing slows down for everybody, and no worker stands out."""

from __future__ import annotations

from paceline.diagnose.findings import Finding
from paceline.runs import Run


def about_threads(run: Run) -> list[Finding]:
    """A finding if the workers' threads outnumber the host's cores, which ``run.json`` knows."""
    cores = int(run.summary.get("host", {}).get("cores") or 0)
    threads, request = run.setup.threads, run.summary.get("request", {})
    workers = int(request["workers"]) if request.get("hosts") else run.setup.world_size
    if not cores or threads < 2 or workers * threads <= cores:
        return []
    fitting = max(1, cores // workers)
    return [
        Finding(
            cause="too-many-threads", cost=0.0, severity="minor",
            sentence=f"{workers} workers with {threads} threads each share {cores} cores: they take "
            "turns instead of computing.",
            evidence=(f"{workers} x {threads} = {workers * threads} threads on {cores} cores",),
            action=f"paceline run --threads {fitting} (the default), or torch.set_num_threads"
            f"({fitting}) in the script.",
            figures={"threads": threads, "workers": workers, "cores": cores},
        )
    ]  # fmt: skip
