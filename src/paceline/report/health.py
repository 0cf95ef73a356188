"""Gradients' magnitudes against what 16-bit types can hold: a table and a map of one run's last look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from paceline.report.svg import LINE_COLOURS, Chart, chart
from paceline.runs import Run
from paceline.trace import Health

MAX_PARAMETERS = 60
COLUMNS = (
    "window", "norm", "largest", "exact zeros", "lost in fp16", "with loss scale", "overflow in fp16",
    "with loss scale", "lost in bf16", "not finite",
)  # fmt: skip
_LIMITS = {"fp16: zero": -25, "fp16: smallest normal": -14, "fp16: infinite": 16}
_INCH_A_ROW = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthSection:
    """``rows``: a parameter's name and its cells. ``left_out``: how many parameters more there are."""

    label: str
    rows: Sequence[Sequence[str]]
    chart: Chart
    left_out: int


def health_sections(labelled: Mapping[str, Sequence[Run]]) -> list[HealthSection]:
    """One for each row of the comparison whose first run looked at its gradients."""
    return [_section(label, runs[0].health) for label, runs in labelled.items() if runs[0].health]


def _section(label: str, looks: Sequence[Health]) -> HealthSection:
    """Parameters that lose most come first."""
    worst = sorted(
        looks, key=lambda look: sum(look.scaled_fp16) + bool(look.non_finite), reverse=True
    )
    shown = worst[:MAX_PARAMETERS]
    return HealthSection(
        label=label,
        rows=[_cells(look) for look in shown],
        chart=_map(label, shown),
        left_out=len(looks) - len(shown),
    )


def _cells(look: Health) -> list[str]:
    return [
        look.parameter, str(look.clock), f"{look.norm:.3g}", f"{look.largest:.3g}",
        f"{look.zeros:.1%}", f"{look.fp16[0]:.1%}", f"{look.scaled_fp16[0]:.1%}",
        f"{look.fp16[1]:.1%}", f"{look.scaled_fp16[1]:.1%}", f"{look.bf16[0]:.1%}",
        str(look.non_finite),
    ]  # fmt: skip


def _map(label: str, looks: Sequence[Health]) -> Chart:
    low = min([look.low for look in looks] + [min(_LIMITS.values()) - 2])
    high = max([look.low + len(look.histogram) for look in looks] + [max(_LIMITS.values()) + 2])
    shares = np.zeros((len(looks), high - low))
    for row, look in enumerate(looks):
        start = look.low - low
        shares[row, start : start + len(look.histogram)] = look.histogram
        shares[row] /= max(1, shares[row].sum())

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.imshow(
            np.ma.masked_equal(shares, 0), aspect="auto", cmap="cividis", vmin=0,
            extent=(low, high, len(looks) - 0.5, -0.5), interpolation="nearest",
        )  # fmt: skip
        for (name, power), colour in zip(_LIMITS.items(), LINE_COLOURS[1:], strict=False):
            axes.axvline(power, color=colour, linewidth=1.2)
            axes.text(power, -0.6, f" {name}", color=colour, fontsize=8, va="bottom")
        axes.set_yticks(range(len(looks)), [look.parameter for look in looks], fontsize=8)
        axes.set_xlabel("log2 of the magnitude, before the loss scale")
        axes.grid(visible=False)

    scale = looks[0].scale
    moved = f" The loss scale {scale:g} moves all to the right by {np.log2(scale):.3g}." * (
        scale != 1
    )
    return chart(
        f"Magnitudes of gradients, {label}",
        "Each row is one parameter's gradient; bright is where many of its elements lie. What is left "
        f"of the first line becomes zero in fp16, what is right of the last one infinite.{moved}",
        (10.0, 1.2 + _INCH_A_ROW * len(looks)),
        draw,
    )
