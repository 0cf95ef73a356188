"""The report shows what was seen of gradients, and the JSON has it all."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import paceline
from paceline.compare.export import as_json
from paceline.compare.figures import figures_of
from paceline.compare.rows import rows_of
from paceline.report.health import health_sections
from paceline.report.page import render_page
from paceline.runs import Run, read_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("run")
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    runtime = paceline.Runtime(out=out)
    with paceline.Worker(model, optimizer, health=2, runtime=runtime) as worker:
        for batch in worker.batches([torch.ones(2, 3)] * 4):
            worker.step(worker(batch).square().mean() * 1e-9)
    return read_run(out)


def test_the_page_has_the_last_look_at_each_parameter(run: Run) -> None:
    page = render_page([run])
    assert "Gradient health" in page
    assert '<th scope="row">weight</th><td>2</td>' in page
    assert "fp16: infinite" in page
    assert "<td>100.0%</td>" in page


def test_a_run_that_did_not_look_has_no_section(run: Run) -> None:
    blind = replace(run, ranks=tuple(replace(rank, health=()) for rank in run.ranks))
    assert health_sections({"sync": [blind]}) == []
    assert "Gradient health" not in render_page([blind])


def test_the_json_has_it_all(run: Run) -> None:
    document = json.loads(as_json(rows_of([figures_of(run)]), None, report=""))
    (weight, bias) = document["rows"][0]["runs"][0]["health"]
    assert (weight["parameter"], bias["parameter"]) == ("weight", "bias")
    assert weight["fp16"] == [1.0, 0.0]
    assert sum(weight["histogram"]) == 6  # none is zero
