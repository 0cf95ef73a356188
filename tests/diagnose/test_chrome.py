"""Chrome traces of torch.profiler: made ones as DDP writes them, and (full) real ones."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paceline.diagnose.chrome import diagnose_profiles, read_profile
from paceline.errors import UsageError

PHASES = {"data": 2.0, "forward": 20.0, "backward": 40.0, "optimizer": 3.0, "script": 1.0}
"""Milliseconds."""
WORDS = {"data": "data loading", "script": "own code between steps"}


def event(name, ts_ms, dur_ms, cat="user_annotation"):
    return {"ph": "X", "cat": cat, "name": name, "ts": 1e3 * ts_ms, "dur": 1e3 * dur_ms}


def traces(directory, *, slow=(0, "data", 0.0), workers=3, steps=30, kernels=False, every=1):
    """One file a rank; each has a clock of its own. ``every``: optimizer steps come after so many."""
    rng = np.random.default_rng(0)
    own = rng.uniform(0.95, 1.05, (workers, steps, len(PHASES))) * list(PHASES.values())
    rank, phase, extra_ms = slow
    own[rank, :, list(PHASES).index(phase)] += extra_ms
    events = [[] for _ in range(workers)]
    free = np.zeros(workers)
    for k in range(steps):
        data, forward, backward, optimizer, script = own[:, k].T
        launched = free + data + forward + backward
        done = launched.max() + 2.0
        for i in range(workers):
            at = 1e6 * i + free[i]
            end = 1e6 * i + done + optimizer[i] + script[i]
            lasted = done - launched[i]
            events[i] += [
                event(f"ProfilerStep#{k}", at, end - at),
                event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, data[i]),
                event("autograd::engine::evaluate_function: MmBackward0", at + data[i] + forward[i], 1.0),
                event("c10d::allreduce_", 1e6 * i + launched[i] - (30.0 if kernels else 0.0), 0.1),
                event("ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", 1e6 * i + launched[i], lasted,
                      "kernel")
                if kernels else event("gloo:all_reduce", 1e6 * i + launched[i], lasted),
            ]  # fmt: skip
            if k % every == 0:
                events[i].append(event("Optimizer.step#SGD.step", 1e6 * i + done, optimizer[i]))
        free = done + optimizer + script
    for i, own_events in enumerate(events):
        document = {
            "distributedInfo": {"rank": i, "world_size": workers},
            "traceEvents": own_events,
        }
        (directory / f"rank{i}.json").write_text(json.dumps(document))
    return directory


@pytest.mark.parametrize("kernels", [False, True], ids=["gloo", "nccl"])
@pytest.mark.parametrize("phase", PHASES)
def test_the_slow_rank_is_named_with_its_phase(tmp_path, phase, kernels):
    slow = (2, phase, 30.0)
    (finding,) = diagnose_profiles(traces(tmp_path, slow=slow, kernels=kernels)).findings
    assert (finding.ranks, finding.phase) == ((2,), WORDS.get(phase, phase))
    assert finding.cost == pytest.approx(30 / 98, abs=0.05)


def test_equal_ranks_are_well(tmp_path):
    assert diagnose_profiles(traces(tmp_path)).status == "well"


def test_a_missing_rank_is_said(tmp_path):
    (traces(tmp_path) / "rank1.json").unlink()
    assert "(rank 1)" in diagnose_profiles(tmp_path).verdict


def test_accumulation_without_no_sync_is_found(tmp_path):
    causes = [one.cause for one in diagnose_profiles(traces(tmp_path, every=4)).findings]
    assert causes == ["exchange-every-micro-batch"]


def test_compressed_traces_are_read_too(tmp_path):
    for path in list(traces(tmp_path).glob("*.json")):
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert diagnose_profiles(tmp_path).status == "well"


@pytest.mark.parametrize(
    ("text", "lack"),
    [
        ("{", "neither a run's directory nor a Chrome trace"),
        ('{"traceEvents": []}', "does not say of which rank"),
        ('{"traceEvents": [], "distributedInfo": {"rank": 0}}', "Call profiler.step()"),
    ],
)
def test_what_is_no_trace_is_refused_with_the_remedy(tmp_path, text, lack):
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=lack.replace("(", r"\(").replace(")", r"\)")):
        read_profile(path)


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("phase", ["data", "backward", "optimizer"])
def test_real_ddp_traces(tmp_path, phase):
    """Two ranks of DistributedDataParallel over gloo; rank 1 sleeps 30 ms in ``phase``."""
    script = Path(__file__).parent / "profiled_ddp.py"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [
        subprocess.Popen([sys.executable, script, str(rank), str(port), phase, tmp_path])
        for rank in range(2)
    ]
    assert [process.wait(timeout=200) for process in ranks] == [0, 0]
    found = diagnose_profiles(tmp_path).findings
    assert [(one.ranks, one.phase) for one in found] == [((1,), WORDS.get(phase, phase))]
