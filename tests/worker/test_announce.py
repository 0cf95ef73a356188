"""The start line says how many samples are behind a step, and how seldom workers meet."""

from __future__ import annotations

import pytest

from paceline.strategies import DiLoCo, parse_strategy
from paceline.worker.announce import meeting_notice, outer_step, samples_of

OF_ONE = "each worker steps on 2 x 16 = 32 samples (accumulate x batch), and meets the others"


@pytest.mark.parametrize(
    ("word", "workers", "said"),
    [
        ("sync", 4, "4 x 2 x 16 = 128 samples (workers x accumulate x batch)"),
        ("local:8", 1, "1 x 2 x 16 = 32 samples (workers x accumulate x batch)"),
        ("local:8", 4, f"{OF_ONE} every 8 windows"),
        ("local:inf", 4, f"{OF_ONE} never"),
        ("diloco:48:0.7:0.9:4", 4, f"{OF_ONE} every 12 windows"),
    ],
)
def test_samples_of_a_step(word: str, workers: int, said: str) -> None:
    assert samples_of(parse_strategy(word), workers=workers, window=2, batch=16.0) == said


@pytest.mark.parametrize(
    ("word", "total", "said"),
    [
        ("local:inf", 400, "they train 4 models"), ("diloco:50", 399, "a pass has 49 of each"),
        ("diloco:50:0.7:0.9:5", 399, "every 50 windows"),
        ("diloco:50", 400, ""), ("diloco:50", None, ""), ("sync", 4, ""),
    ],
)  # fmt: skip
def test_a_notice_if_workers_meet_more_seldom_than_one_thinks(
    word: str, total: int | None, said: str
) -> None:
    notice = meeting_notice(parse_strategy(word), workers=4, window=2, total=total)
    assert said in notice
    assert bool(notice) == bool(said)
    assert meeting_notice(parse_strategy(word), workers=1, window=2, total=total) == ""


def test_what_diloco_does_is_said_and_in_how_many_fragments() -> None:
    said = outer_step(DiLoCo(windows=48))
    assert said == "outer SGD: lr 0.7, Nesterov momentum 0.9"
    assert outer_step(DiLoCo(windows=48, fragments=4)) == f"{said}; one of 4 fragments at a time"
