"""What a measurement says first where links and steps have something to say, and what to do next."""

import json
from dataclasses import replace

import pytest

from paceline.measure.headline import headline, next_steps
from paceline.measure.sentences import Judged, judge
from paceline.measure.steps import StepModel
from paceline.measure.text import as_json, render

from .fabricated import measured_group

SLOW = StepModel(step_s=0.03, jitter=0.1, factors={2: 1.95}, recorded=240)
UNDECIDED = Judged(
    slow=(), doubts=("latency: links differ so much that only a factor of 9 would show",)
)


@pytest.mark.parametrize(
    ("judged", "said"),
    [
        (UNDECIDED, "Rank 2's machine takes 1.95 times as long a step. By bandwidth no link is slow. "
                    "Undecided: latency: links differ so much that only a factor of 9 would show."),
        (Judged(slow=(), doubts=()), "No link, port or host stands out.\n"
                                     "Rank 2's machine takes 1.95 times as long a step."),
    ],
)  # fmt: skip
def test_a_slow_machine_is_in_the_headline(judged, said):
    assert headline(judged, SLOW) == said


@pytest.mark.parametrize("steps", [None, replace(SLOW, factors={2: 1.2})])
def test_else_it_is_the_links_alone(steps):
    assert headline(UNDECIDED, steps) == UNDECIDED.verdict


def test_emulated_steps_are_no_machines():
    steps = replace(
        SLOW, origin="the timing is emulated: it is that of c.toml, not of this machine"
    )
    assert headline(UNDECIDED, steps).startswith(
        "Rank 2's steps take 1.95 times as long (emulated). By bandwidth"
    )
    assert not any("doctor" in line for line in next_steps(UNDECIDED, steps, "c.toml"))
    measured = measured_group(rates=[125e6] * 4)
    assert "Steps\n  the timing is emulated" in render(measured, UNDECIDED, steps, "c.toml")


def test_next_names_the_commands_that_look_on():
    measured = measured_group(rates=[125e6] * 4)
    shown = render(measured, judge(measured), SLOW, "cluster.toml")
    next_block = shown[shown.index("Next") :].partition("\n\n")[0]
    assert "Run 'paceline doctor' on rank 2's machine" in next_block
    assert "paceline diagnose" in next_block
    assert "paceline advise --for cluster.toml SCRIPT" in next_block
    assert json.loads(as_json(measured, judge(measured), SLOW, "c"))["verdict"] in shown
