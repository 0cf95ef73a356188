"""Numbers are printed with three digits that matter and a unit that people use."""

import math

import pytest

from paceline.compare import units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0042, "4.20 ms"), (0.5, "500 ms"), (1.25, "1.25 s"), (48.14, "48.1 s"), (119.4, "119 s"),
        (185, "3 min 05 s"), (7440, "2 h 04 min"), (math.inf, "–"),
    ],
)  # fmt: skip
def test_durations(seconds, text):
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (812.3, "812 B"), (4100, "4.10 kB"), (999_700, "1.00 MB"), (1.52e9, "1.52 GB"),
     (3e13, "30.0 TB")],
)  # fmt: skip
def test_sizes(size, text):
    assert units.size(size) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0.0, "0"), (3, "3"), (3.25, "3.25"), (62.4, "62"), (12_480, "12,480")]
)
def test_counts(count, text):
    assert units.count(count) == text


def test_shares_and_ratios():
    assert (units.share(0.374), units.ratio(3.206)) == ("37 %", "3.21x")
