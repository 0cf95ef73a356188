"""What is trained: the parameters an optimizer holds, in its order, and a description to compare.

Every rank describes its model, optimizer and options; ranks that differ are refused with the first
difference before anything is shared. What cannot be trained in a group is refused here, with the
remedy. Nothing here knows how gradients travel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch import nn

from paceline.errors import UsageError
from paceline.gradients.layout import FlatLayout, dense_stride, layout_of
from paceline.gradients.precision.plan import wide
from paceline.payloads import Parameters
from paceline.transport.messages import OptimizerSpec, Tensor

_NOT_HYPERPARAMETERS = {"params", "param_names"}
_PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True, kw_only=True, slots=True)
class Trainable:
    """A parameter that training changes. ``group``: the optimizer's; ``index``: among all it holds."""

    name: str
    parameter: nn.Parameter
    group: int
    index: int


class Buffer(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    name: str
    shape: tuple[int, ...]
    dtype: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Everything in which ranks must agree. ``options``: strategy and Worker options, as text."""

    tensors: list[Tensor]
    optimizer: OptimizerSpec
    buffers: list[Buffer]
    options: dict[str, str]

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        return msgspec.msgpack.decode(data, type=cls)


def trainable(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Trainable]:
    """The parameters to train, in the optimizer's order (groups in order, parameters in order).

    Tied weights come once; frozen ones (``requires_grad=False``) not at all. Raises UsageError for
    models and optimizers that no plane can train, with the remedy.
    """
    _refuse_wrapped(model)
    _refuse_closure(optimizer)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found: dict[int, Trainable] = {}
    index = -1
    for number, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            index += 1
            if id(parameter) not in names:
                raise _foreign(parameter, number)
            if parameter.requires_grad and id(parameter) not in found:
                found[id(parameter)] = Trainable(
                    name=names[id(parameter)], parameter=parameter, group=number, index=index
                )
    if not found:
        raise UsageError(
            "The optimizer holds no parameter with requires_grad=True: nothing to train."
        )
    return list(found.values())


def refuse_for_group(model: nn.Module, trainables: list[Trainable]) -> None:
    """Raises UsageError for what cannot be trained by several workers on any plane."""
    for name, module in model.named_modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse:
            raise UsageError(
                f"{name or 'the model'} is an embedding with sparse=True: sparse gradients cannot be "
                f"joined between workers. Build it with sparse=False."
            )
    devices = {trainable.parameter.device for trainable in trainables}
    if len(devices) > 1:
        listed = ", ".join(sorted(map(str, devices)))
        raise UsageError(
            f"The model lies on several devices ({listed}): one worker trains on one device."
        )


def refuse_for_server(optimizer: torch.optim.Optimizer, trainables: list[Trainable]) -> None:
    """Raises UsageError for what the server plane cannot train (the collective plane can)."""
    cls = type(optimizer)
    if getattr(torch.optim, cls.__name__, None) is not cls:
        raise UsageError(
            f"optimizer={cls.__module__}.{cls.__qualname__}: the server can run optimizers of "
            f"torch.optim only. Use strategy='sync:allreduce', where each worker runs its own."
        )
    device = trainables[0].parameter.device
    if device.type != "cpu":
        raise UsageError(
            f"The model is on {device}: on the server plane parameters on the CPU are built, CUDA is "
            f"planned. Use strategy='sync:allreduce'."
        )


def tensors_of(trainables: list[Trainable]) -> list[Tensor]:
    """The manifest's entries, in order."""
    return [
        Tensor(
            name=one.name, shape=tuple(one.parameter.shape), stride=dense_stride(one.parameter),
            dtype=_type_name(one.parameter), group=one.group,
        )
        for one in trainables
    ]  # fmt: skip


def gradient_shapes(trainables: Sequence[Trainable]) -> Parameters:
    """What is known of the gradients' sizes."""
    return [(tuple(p.shape), wide(p.dtype).itemsize) for p in (one.parameter for one in trainables)]


def flat_layout(trainables: list[Trainable], order: Sequence[int] | None = None) -> FlatLayout:
    """Where the parameters (or their gradients) lie in one flat piece of memory."""
    return layout_of(
        [
            (one.name, tuple(one.parameter.shape), dense_stride(one.parameter), one.parameter.dtype)
            for one in trainables
        ],
        order,
    )


def in_models_order(model: nn.Module, trainables: Sequence[Trainable]) -> list[int]:
    """The trainables' numbers in the order in which the model names them: its layers' order.

    The optimizer's own puts all weights before all biases where only weights decay.
    """
    turn = {id(parameter): number for number, parameter in enumerate(model.parameters())}
    return sorted(range(len(trainables)), key=lambda place: turn[id(trainables[place].parameter)])


def hyperparameters(
    optimizer: torch.optim.Optimizer, *, lr_factor: float = 1.0
) -> list[dict[str, Any]]:
    """Each group's hyper-parameters as plain numbers and words; learning rates times ``lr_factor``.

    Whatever else a script keeps in its groups (callables, notes) is left out.
    """
    groups = [_plain_items(group) for group in optimizer.param_groups]
    if lr_factor != 1.0:
        groups = [{**group, "lr": group["lr"] * lr_factor} for group in groups]
    return groups


def describe(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    trainables: list[Trainable],
    options: Mapping[str, str],
) -> Manifest:
    """What this rank trains, to be compared with :func:`first_difference`."""
    cls = type(optimizer)
    return Manifest(
        tensors=tensors_of(trainables),
        optimizer=OptimizerSpec(name=cls.__name__, groups=hyperparameters(optimizer)),
        buffers=[
            Buffer(name=name, shape=tuple(buffer.shape), dtype=_type_name(buffer))
            for name, buffer in model.named_buffers()
        ],
        options=dict(options),
    )


def first_difference(mine: Manifest, theirs: Manifest) -> str | None:
    """The first thing in which the two differ, as text (mine first), or None if they agree."""
    ours, others = dict(_facts(mine)), dict(_facts(theirs))
    for label in {**ours, **others}:
        if label not in others:
            return f"{label} is {ours[label]!r} against nothing"
        if label not in ours:
            return f"{label} is nothing against {others[label]!r}"
        if ours[label] != others[label]:
            return f"{label} is {ours[label]!r} against {others[label]!r}"
    return None


def _facts(manifest: Manifest) -> Iterator[tuple[str, Any]]:
    for option, text in manifest.options.items():
        yield f"option {option}", text
    yield "the optimizer's class", manifest.optimizer.name
    for number, tensor in enumerate(manifest.tensors):
        yield f"the name of parameter {number}", tensor.name
        yield f"the shape of {tensor.name}", tuple(tensor.shape)
        yield f"the memory format (strides) of {tensor.name}", tuple(tensor.stride)
        yield f"the type of {tensor.name}", tensor.dtype
        yield f"the optimizer group of {tensor.name}", tensor.group
    for number, group in enumerate(manifest.optimizer.groups):
        for key, value in group.items():
            yield f"{key} of optimizer group {number}", value
    for number, buffer in enumerate(manifest.buffers):
        yield f"the name of buffer {number}", buffer.name
        yield f"the shape of buffer {buffer.name}", tuple(buffer.shape)
        yield f"the type of buffer {buffer.name}", buffer.dtype


def _plain_items(group: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: _plain(value) for key, value in group.items() if key not in _NOT_HYPERPARAMETERS}
    return {key: value for key, value in plain.items() if value is not Ellipsis}


def _plain(value: Any) -> Any:
    """The value if it is plain (numbers, words, lists of them), else Ellipsis."""
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else ...
    if isinstance(value, (list, tuple)):
        items = [_plain(item) for item in value]
        return ... if ... in items else items
    if not isinstance(value, _PLAIN):
        return ...
    item = getattr(value, "item", None)  # numpy's float is a float, too
    return value if item is None else item()


def _type_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _refuse_wrapped(model: nn.Module) -> None:
    for module in model.modules():
        kinds = {cls.__name__ for cls in type(module).__mro__}
        if "DistributedDataParallel" in kinds:
            raise UsageError(
                "The model is wrapped in DistributedDataParallel, which would average gradients a "
                "second time. Delete the line `model = DistributedDataParallel(model, ...)`."
            )
        if "DataParallel" in kinds:
            raise UsageError(
                "The model is wrapped in DataParallel, which replicates it once more inside each "
                "worker. Delete the line `model = DataParallel(model)`."
            )
        if kinds & {"FullyShardedDataParallel", "FSDPModule"}:
            raise UsageError(
                "The model is sharded by FSDP: paceline trains replicas (FSDP is planned). "
                "Delete the line that calls fully_shard or FullyShardedDataParallel."
            )
    for name, parameter in model.named_parameters():
        if any(
            cls.__name__ == "DTensor"
            for cls in type(parameter).__mro__ + type(parameter.data).__mro__
        ):
            raise UsageError(f"{name} is a DTensor: paceline trains replicas of plain parameters.")


def _refuse_closure(optimizer: torch.optim.Optimizer) -> None:
    if isinstance(optimizer, torch.optim.LBFGS):
        raise UsageError(
            "optimizer=LBFGS evaluates the loss several times a step (a closure), which a group "
            "cannot do. Use another optimizer of torch.optim, e.g. AdamW."
        )


def _foreign(parameter: torch.Tensor, group: int) -> UsageError:
    return UsageError(
        f"Optimizer group {group} holds a parameter of shape {tuple(parameter.shape)} that is not in "
        f"the model. Build the optimizer from model.parameters(), after the model is complete."
    )
