"""How many bytes a compressed gradient has: by formula, without a tensor. Pure.

``shape``: of a parameter; ``item_bytes``: of one of its gradient's values (4 in float32). The codecs
produce exactly these sizes (a test holds it), and whoever decodes refuses any other. With n values, k
of them sent, b bytes each:

=========  ======================================================================================
topk       k (b + 4): value and 32-bit index                     (Aji and Heafield, EMNLP 2017)
randomk    k b: both sides draw the same indices                 (Stich et al., NeurIPS 2018)
powersgd   (rows + columns) r b: the two factors                 (Vogels et al., NeurIPS 2019)
int8       n + b n / 1024: a scale for each block                (Dettmers, ICLR 2016)
sign       n / 8 + b: a scale for the whole                      (Karimireddy et al., ICML 2019)
=========  ======================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from paceline.compression import Int8, Method, Own, PowerSGD, RandomK, Sign, TopK
from paceline.errors import bad_value

BLOCK = 1024
"""Values that share a scale in int8."""

SMALL = 1024
"""Parameters of fewer values are sent whole: they are no traffic, and often matter most."""

ALIGNMENT_BYTES = 8
HEADER_BYTES = 16

Shape = tuple[int, ...]
Parameters = Sequence[tuple[Shape, int]]
"""Each one's shape, and the bytes of one value of its gradient."""


def dense_bytes(shape: Shape, item_bytes: int) -> int:
    """Of the whole gradient."""
    return prod(shape) * item_bytes


def payload_bytes(method: Method, shape: Shape, item_bytes: int) -> int:
    """Of the gradient of one parameter, encoded."""
    count = prod(shape)
    match method:
        case TopK():
            return kept(count, method.density) * (item_bytes + 4)
        case RandomK():
            return kept(count, method.density) * item_bytes
        case PowerSGD():
            rows, columns = matrix(shape)
            return (rows + columns) * columns_of(method, shape) * item_bytes
        case Int8():
            return count + ceil(count / BLOCK) * item_bytes
        case Sign():
            return ceil(count / 8) + item_bytes
        case Own():
            return _promised(method, shape, item_bytes)


def _promised(method: Own, shape: Shape, item_bytes: int) -> int:
    promised = method.codec.payload_bytes(shape, item_bytes)
    if not isinstance(promised, int) or promised < 0:
        raise bad_value(
            f"{method}.payload_bytes({shape}, {item_bytes})",
            promised,
            "a whole number of bytes >= 0",
        )
    return promised


def is_whole(method: Method | None, shape: Shape, item_bytes: int) -> bool:
    """Whether a parameter is sent as it is: small, of one dimension, or no smaller when encoded."""
    if method is None or len(shape) < 2 or prod(shape) < SMALL:
        return True
    return payload_bytes(method, shape, item_bytes) >= dense_bytes(shape, item_bytes)


def parcel_bytes(method: Method | None, shape: Shape, item_bytes: int) -> int:
    """What one parameter adds to a push, padding included."""
    whole = is_whole(method, shape, item_bytes)
    if whole or method is None:
        return aligned(dense_bytes(shape, item_bytes))
    return aligned(payload_bytes(method, shape, item_bytes))


def push_bytes(method: Method | None, parameters: Parameters) -> int:
    """Of a push with the gradients of ``parameters`` (shape and item_bytes of each)."""
    return HEADER_BYTES + sum(parcel_bytes(method, shape, size) for shape, size in parameters)


def kept(count: int, density: float) -> int:
    """How many of ``count`` values are sent: at least one."""
    return max(1, round(count * density))


def matrix(shape: Shape) -> tuple[int, int]:
    """Rows and columns of a parameter as a matrix: its first dimension against all others."""
    return shape[0], prod(shape[1:])


def columns_of(method: PowerSGD, shape: Shape) -> int:
    """Of each factor: not more than the matrix has."""
    return min(method.rank, *matrix(shape))


def aligned(size_bytes: int) -> int:
    """Parcels begin where every type may begin."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
