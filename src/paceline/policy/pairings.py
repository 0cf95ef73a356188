"""Which words cannot work together, whatever is trained: said once, for the Worker and for all commands.

The Worker asks as it is constructed; a command asks before it starts anything, of what its command line
says. Knows neither model nor machine: what these rule out is refused where they are known
(:mod:`paceline.worker.planes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from paceline.compression import WORDS, Compression, Own
from paceline.errors import UsageError
from paceline.policy.grouping import check_rounds, groups_by
from paceline.strategies import Backup, Hybrid, Strategy, Sync, drifts, is_joint

PlaneName = Literal["local", "allreduce", "server", "replicas", "hybrid"]

SIXTEEN_BIT = ("bf16", "fp16")
# Optimizers that compare a gradient with the one before, which per-push updates take from another worker.
_NEEDS_JOINT_UPDATES = ("Rprop",)
_WITHOUT = "batch_norm='freeze' or 'local', or nn.GroupNorm, which needs no batch"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairing:
    """What is said together, each as the Worker's keyword of that name; None: nothing is said of it.

    ``workers``: of the whole run; ``hosts``: what each rank's host is called, None if nobody knows yet.
    ``collectives``: whether workers have processes of their own, which torch can join. ``optimizer``: its
    class's name. ``batch_norm``: None too where the model is known to have no such layer.
    """

    strategy: Strategy
    workers: int
    compress: Compression | None = None
    reduce_dtype: str | None = None
    group_size: int | None = None
    global_batch: int | None = None
    batch_norm: str | None = None
    optimizer: str | None = None
    hosts: Sequence[str] | None = None
    collectives: bool = True


def refuse_pairing(said: Pairing) -> None:
    """Raises UsageError, naming the two and the remedy, for what cannot work together."""
    _refuse_groups(said)
    narrow = said.reduce_dtype if said.reduce_dtype in SIXTEEN_BIT else None
    plane = plane_of(said.strategy, said.workers, collectives=said.collectives)
    refuse_on(plane, said.strategy, compress=said.compress, narrow=narrow)
    if said.workers == 1:
        return
    _refuse_spares(said.strategy, said.workers)
    _refuse_shares(said.global_batch, said.workers)
    if said.batch_norm == "sync":
        strategy_for_norms(said.strategy, said.batch_norm)
    if said.optimizer in _NEEDS_JOINT_UPDATES and not is_joint(said.strategy):
        raise UsageError(
            f"{said.strategy} and {said.optimizer} cannot work together: {said.optimizer} compares a "
            "gradient's sign with the one before, which would be another worker's. Use 'sync'."
        )


def plane_of(strategy: Strategy, workers: int, *, collectives: bool = True) -> PlaneName | None:
    """Which plane joins ``workers``; None if that depends on the model's device and the system. Without
    ``collectives`` (several workers in one process) the server does what all-reduce would."""
    if workers == 1:
        return "local"
    if drifts(strategy):
        return "replicas"
    if isinstance(strategy, Hybrid):
        return "hybrid"
    if not isinstance(strategy, Sync) or strategy.topology == "server" or not collectives:
        return "server"
    return "allreduce" if strategy.topology == "allreduce" else None


def refuse_on(
    plane: PlaneName | None, strategy: Strategy, *, compress: Compression | None, narrow: str | None
) -> None:
    """Raises UsageError for what ``plane`` cannot do with gradients on their way. ``narrow``: the type of 16
    bits that they are to cross the wire in."""
    if plane in ("server", "hybrid"):
        why = "on the server plane gradients cross no wire, or (between hosts) as they are"
        _refuse_narrow(narrow, strategy, why)
        _refuse_own_codec(compress, strategy)
    if plane == "replicas":
        _refuse_narrow(narrow, strategy, "no gradients cross the wire, but parameters")
        _refuse_compression(compress, strategy)
    if compress is None:
        return
    if plane == "allreduce" and compress.pull is not None:
        raise UsageError(
            f"compress={str(compress)!r} and {strategy} by all-reduce cannot work together: there is no "
            "server from which parameters could come. Leave pull out, or use 'sync:server'."
        )
    if narrow is not None:
        raise UsageError(
            f"compress={str(compress)!r} and reduce_dtype cannot work together: both say what gradients "
            "are made of on their way. Leave one of them out."
        )


def strategy_for_norms(strategy: Strategy, mode: str) -> Strategy:
    """``strategy`` with the topology that batch norm in ``mode`` needs, where it leaves a choice.

    Raises UsageError where workers have no step in common, or where one without a batch waits at the
    server, out of the others' reach.
    """
    if mode != "sync":
        return strategy
    if isinstance(strategy, Sync) and strategy.topology == "auto":
        return replace(strategy, topology="allreduce")
    if isinstance(strategy, Sync) and strategy.topology == "allreduce":
        return strategy
    if is_joint(strategy) and not isinstance(strategy, Backup) and not drifts(strategy):
        raise UsageError(
            f"{strategy} and batch_norm='sync' cannot work together: batch norm needs all workers "
            "within forward and backward, and there one that has no batch waits at the server. Use "
            "strategy='sync:allreduce', which makes the same updates."
        )
    raise UsageError(
        f"{strategy} and batch_norm='sync' cannot work together: workers have no step in common, so "
        f"there is no joint batch to take statistics of. Use {_WITHOUT}; or strategy='sync'."
    )


def _refuse_groups(said: Pairing) -> None:
    if not isinstance(said.strategy, Hybrid):
        if said.group_size is not None:
            raise UsageError(
                f"group_size={said.group_size} and {said.strategy} cannot work together: only hybrid:async "
                "and hybrid:ssp:3 have groups. Leave group_size out."
            )
        return
    if said.hosts is not None and said.workers > 1:
        check_rounds(groups_by(said.hosts, said.group_size), said.strategy)


def _refuse_spares(strategy: Strategy, workers: int) -> None:
    if isinstance(strategy, Backup) and strategy.spares >= workers:
        raise UsageError(
            f"{strategy} and {workers} workers cannot work together: an update needs at least one push. "
            f"Use at most backup:{workers - 1}."
        )


def _refuse_shares(global_batch: int | None, workers: int) -> None:
    """Whatever a batch of the loader is: each worker has as many of them."""
    if global_batch is None or global_batch % workers == 0:
        return
    more = workers * (global_batch // workers + 1)
    raise UsageError(
        f"global_batch={global_batch} and {workers} workers cannot work together: all have equally many "
        f"samples of an update. Use a multiple of {workers}, such as {more}."
    )


def _refuse_narrow(narrow: str | None, strategy: Strategy, why: str) -> None:
    if narrow is not None:
        raise UsageError(
            f"reduce_dtype (here {narrow}) and {strategy} cannot work together: {why}. Leave reduce_dtype "
            "out, or use strategy='sync:allreduce'."
        )


def _refuse_compression(compress: Compression | None, strategy: Strategy) -> None:
    if compress is not None:
        raise UsageError(
            f"compress={str(compress)!r} and {strategy} cannot work together: no gradients travel that "
            "could be compressed, but parameters, now and then. Leave compress out, or meet less often: a "
            "larger H."
        )


def _refuse_own_codec(compress: Compression | None, strategy: Strategy) -> None:
    if compress is not None and isinstance(compress.method, Own):
        raise UsageError(
            f"compress={compress} and {strategy} cannot work together: the server is a process of its own, "
            "which has no code of yours to decode with. Use strategy='sync:allreduce', where workers "
            f"decode, or one of {WORDS}."
        )
