"""A matrix as a product of two narrow ones: PowerSGD (Vogels, Karimireddy, Jaggi, NeurIPS 2019).

One step of subspace iteration a gradient: ``P = M Q``, made orthonormal, ``Q = M^T P``; ``P Q^T`` is
the projection of M on the columns of P. It begins with the Q of the gradient before (warm start), which
is kept only once that was applied. Ranks can do it together: P and Q are then sums over all of them.
In memory both lie transposed: products with a few long rows are several times as fast as with columns.
"""

from __future__ import annotations

from collections.abc import Generator

import torch

from paceline import payloads
from paceline.compression import PowerSGD
from paceline.gradients.codecs.codec import as_bytes, check_finite, cut
from paceline.payloads import Shape

ROUNDING = 1e-5
"""What is left of a row without the others' directions, as a share of it: less is nothing but rounding."""

Factors = tuple[torch.Tensor, torch.Tensor]


class PowerSGDCodec:
    """Of parameter number ``place``; ``start``: the Q to begin with, None for a random one.

    Holds state of one gradient: :meth:`settle` says what became of the last one.
    """

    def __init__(self, method: PowerSGD, place: int, start: torch.Tensor | None = None) -> None:
        self._method = method
        self._place = place
        self.start = start
        self._next: torch.Tensor | None = None

    @property
    def summed(self) -> torch.Tensor:
        """Q of the last gradient, summed over whoever took part."""
        assert self._next is not None
        return self._next

    def encode(self, values: torch.Tensor, turn: int) -> torch.Tensor:
        """The factors of what this rank has, found alone."""
        return as_bytes(*_alone(self.factors(values)))

    def decode(self, parcel: torch.Tensor, out: torch.Tensor, turn: int) -> None:
        rows, columns = payloads.matrix(tuple(out.shape))
        width = payloads.columns_of(self._method, tuple(out.shape))
        left, rest = cut(parcel, out.dtype, rows * width)
        right, _ = cut(rest, out.dtype, columns * width)
        check_finite(left)
        check_finite(right)
        multiply(left.view(width, rows), right.view(width, columns), out)

    def payload_bytes(self, shape: Shape, item_bytes: int) -> int:
        return payloads.payload_bytes(self._method, shape, item_bytes)

    def summable(self) -> bool:
        return True

    def factors(self, values: torch.Tensor) -> Generator[torch.Tensor, None, Factors]:
        """Yields P, then Q, each to be summed in place over whoever takes part; returns P and this
        rank's own Q. P made orthonormal is the same on all ranks then."""
        matrix = values.reshape(values.shape[0], -1)
        left = self._begin(matrix) @ matrix.T
        yield left
        make_orthonormal(left)
        right = left @ matrix
        own = right.clone()
        yield right
        self._next = right
        return left, own

    def settle(self, applied: bool) -> None:
        """The last gradient was applied, or is as if it had not been."""
        if applied and self._next is not None:
            self.start = self._next
        self._next = None

    def _begin(self, matrix: torch.Tensor) -> torch.Tensor:
        if self.start is not None:
            return self.start.to(matrix)
        width = payloads.columns_of(self._method, tuple(matrix.shape))
        generator = torch.Generator().manual_seed(self._place)  # the same on all ranks
        return torch.randn(width, matrix.shape[1], generator=generator).to(matrix)


def multiply(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
    """``P Q^T`` into ``out``."""
    if out.is_contiguous():
        torch.mm(left.T, right, out=out.view(left.shape[1], -1))
    else:
        out.copy_((left.T @ right).view(out.shape))


def product(left: torch.Tensor, right: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """``P Q^T`` laid out as ``like``."""
    made = torch.empty_like(like)
    multiply(left, right, made)
    return made


def make_orthonormal(rows: torch.Tensor) -> None:
    """Of the same span, by modified Gram-Schmidt; rows without a direction of their own become 0.

    Every rank does it alike, in one order; a blocked QR would be no faster for a few rows.
    """
    whole = torch.linalg.vector_norm(rows, dim=1).tolist()
    for place, row in enumerate(rows):
        norm = float(torch.linalg.vector_norm(row))
        row.mul_(1 / norm if norm > ROUNDING * whole[place] else 0.0)
        rest = rows[place + 1 :]
        rest.sub_(torch.outer(rest @ row, row))


def _alone(steps: Generator[torch.Tensor, None, Factors]) -> Factors:
    """Nobody else takes part."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            factors: Factors = end.value
            return factors
