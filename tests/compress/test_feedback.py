"""Error feedback over a thousand pushes with skips, deaths and resumes, against a naive account."""

from __future__ import annotations

import math
import random

import pytest
import torch

from compress.models import WORDS, layout, packer, unpacker, views
from paceline.gradients.codecs.feedback import shared_out
from paceline.gradients.codecs.packing import Moment, Packer

QUICK, PUSHES = 60, 1000
DOUBLE = layout(torch.float64)
pytestmark = pytest.mark.usefixtures("one_thread")
State = dict[str, dict[str, torch.Tensor]]


class Account:
    """The naive one: weight times gradient, what was applied of it, and what died with a worker."""

    def __init__(self) -> None:
        self.given, self.sent, self.lost = views(DOUBLE), views(DOUBLE), views(DOUBLE)

    def applied(self, given: list[torch.Tensor], sent: list[torch.Tensor], unit: float) -> None:
        for total, one in zip(self.given + self.sent, given + sent, strict=True):
            total += one * unit

    def died(self, state: State) -> None:
        for place, total in enumerate(self.lost):
            total += state["residuals"].get(f"p{place}", torch.tensor(0.0))

    def check(self, states: list[State]) -> None:
        for place, given in enumerate(self.given):
            kept = sum(s["residuals"].get(f"p{place}", torch.tensor(0.0)) for s in states)
            there = self.sent[place] + self.lost[place] + kept
            assert float((there - given).abs().max()) <= 1e-10 * max(1.0, float(given.abs().max()))


def resumed(word: str, states: list[State], count: int) -> list[Packer]:
    """As a run goes on from its checkpoint with ``count`` workers."""
    residuals = {rank: state["residuals"] for rank, state in enumerate(states)}
    starts = states[0]["starts"]
    return [
        packer(
            word,
            DOUBLE,
            {"residuals": shared_out(residuals, rank=rank, world_size=count), "starts": starts},
        )
        for rank in range(count)
    ]


@pytest.mark.parametrize("word", WORDS)
def test_nothing_is_lost_in_a_few_pushes(word: str) -> None:
    push_and_account(word, QUICK)


@pytest.mark.full
@pytest.mark.parametrize("word", [*WORDS, "topk:0.05,warmup=0"])
def test_nothing_is_lost_and_nothing_invented(word: str) -> None:
    push_and_account(word, PUSHES)


def push_and_account(word: str, pushes: int) -> None:
    """Pushes of three workers that are applied, dropped or refused, while some die and all resume."""
    draw, generator = random.Random(word), torch.Generator().manual_seed(1)
    workers = [packer(word, DOUBLE) for _ in range(3)]
    reader, account, out = unpacker(word, DOUBLE), Account(), views(DOUBLE)
    gradients = views(DOUBLE)
    done = turn = 0
    while done < pushes:
        turn += 1
        what, rank = draw.random(), draw.randrange(len(workers))
        if what < 0.01:
            account.died(workers[rank].state())
            workers[rank] = packer(word, DOUBLE)
            continue
        if what < 0.02:
            workers = resumed(word, [one.state() for one in workers], draw.randint(1, 5))
            continue
        scale, weight = 2.0 ** draw.randint(-3, 12), draw.choice((1.0, 8.0, 3.0))
        for one in gradients:
            one.copy_(torch.randn(one.shape, generator=generator, dtype=one.dtype) * scale)
        given = [one.clone() for one in gradients]
        moment = Moment(turn=turn, share=min(1.0, turn / (pushes / 10)), unit=weight / scale)
        packed = workers[rank].pack(gradients, b"\1\1\1", moment)
        if what < 0.2:  # dropped, or refused
            workers[rank].settle(False)
            continue
        sent = gradients
        if packed.parcel is not None:
            reader.unpack(packed.parcel.numpy().tobytes(), out, b"\1\1\1")
            sent = out
        workers[rank].settle(True)
        account.applied(given, sent, moment.unit)
        done += 1
    account.check([one.state() for one in workers])


@pytest.mark.parametrize("word", WORDS)
def test_what_is_refused_leaves_not_a_bit_of_a_trace(word: str) -> None:
    """An infinity that the correction brings about, then a drop: as if neither had been."""
    of, ends = layout(), []
    for disturbed in (False, True):
        one, generator = packer(word, of), torch.Generator().manual_seed(2)
        for turn in range(4):
            gradients = views(of)
            for values in gradients:
                values.copy_(torch.randn(values.shape, generator=generator))
            if disturbed and turn == 2:
                spoiled = [values * 1.0 for values in gradients]
                spoiled[0][3, 3] = math.inf
                packed = one.pack(spoiled, b"\1\1\1", Moment(turn=turn, share=1.0, unit=1.0))
                assert packed.bad == 0
                one.settle(False)
                one.pack(
                    [v.clone() for v in gradients], b"\1\1\1", Moment(turn=9, share=1.0, unit=4.0)
                )
                one.settle(False)
            one.pack(gradients, b"\1\1\1", Moment(turn=turn, share=1.0, unit=1.0))
            one.settle(True)
        ends.append(one.state())
    for key in ("residuals", "starts"):
        assert ends[0][key].keys() == ends[1][key].keys()
        for name, value in ends[0][key].items():
            assert torch.equal(value, ends[1][key][name])


def test_a_loss_scale_is_no_part_of_a_residual() -> None:
    """To the last bit: the scale is a power of two."""
    of, kept = layout(), []
    for scale in (1.0, 2.0**16):
        one, generator = packer("topk:0.05,warmup=0", of), torch.Generator().manual_seed(3)
        for turn in range(3):
            gradients = views(of)
            for values in gradients:
                values.copy_(torch.randn(values.shape, generator=generator) * scale)
            one.pack(gradients, b"\1\1\1", Moment(turn=turn, share=1.0, unit=32.0 / scale))
            one.settle(True)
        kept.append(one.state()["residuals"])
    assert all(torch.equal(kept[0][name], kept[1][name]) for name in kept[0])


def test_without_feedback_nothing_is_kept() -> None:
    one, gradients = packer("sign,feedback=off", layout()), views(layout())
    gradients[0].normal_()
    one.pack(gradients, b"\1\1\1", Moment(turn=0, share=1.0, unit=1.0))
    one.settle(True)
    assert one.state()["residuals"] == {}


def test_a_residual_waits_for_a_window_that_uses_its_parameter() -> None:
    of = layout()
    one, gradients = packer("topk:0.05,warmup=0", of), views(of)
    gradients[0].normal_()
    one.pack(gradients, b"\1\1\1", Moment(turn=0, share=1.0, unit=1.0))
    one.settle(True)
    before = one.state()["residuals"]["p0"].clone()
    one.pack(views(of), b"\0\1\1", Moment(turn=1, share=1.0, unit=1.0))
    one.settle(True)
    assert torch.equal(one.state()["residuals"]["p0"], before)
