"""The report is one file that needs nothing else, says what it shows, and stays small."""

import re
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest

from paceline import trace
from paceline.compare.figures import interval
from paceline.compare.target import parse_target
from paceline.report.curves import MAX_RAW_POINTS, loss_curve, metric_curve, smoothed, thinned
from paceline.report.lanes import lanes_chart, spans
from paceline.report.page import render_page
from paceline.runs import read_run
from synthetic_runs import Ring, setup, simulated_run, step, write_run

MAX_BYTES = 2_000_000


@pytest.fixture(scope="module")
def four_runs(tmp_path_factory):
    base = tmp_path_factory.mktemp("runs")
    rings = {
        "1-worker": Ring(workers=1, windows=120, strategy="sync", topology="local"),
        "sync": Ring(staleness=0, strategy="sync"),
        "async": Ring(),
        "ssp:3": Ring(staleness=3, strategy="ssp:3"),
    }
    return [read_run(simulated_run(base / name, ring)) for name, ring in rings.items()]


@pytest.fixture(scope="module")
def page(four_runs):
    return render_page(four_runs, target=parse_target("accuracy=0.9"))


class Tags(HTMLParser):
    """Collects ids, references and unclosed tags of a page."""

    VOID = ("meta", "link", "path", "use", "rect")

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.references = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.ids += [named["id"]] if "id" in named else []
        self.references += [v for k, v in attrs if k in ("href", "src", "xlink:href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag


def test_nothing_outside_the_file_is_referred_to(page):
    tags = Tags(page)
    assert all(ref.startswith(("#", "data:")) for ref in tags.references)
    assert not re.search(r"https?://|@import|<script", page)
    assert set(re.findall(r"url\((.)", page)) <= {"#"}


def test_the_page_is_well_formed_and_every_reference_has_its_place(page):
    tags = Tags(page)
    assert tags.open == []
    assert len(set(tags.ids)) == len(tags.ids)
    inner = {ref[1:] for ref in tags.references if ref.startswith("#")}
    inner |= set(re.findall(r"url\(#([^)]*)\)", page))
    assert inner <= set(tags.ids)


def test_every_figure_has_a_title_and_a_description(page):
    figures = re.findall(r"<svg\b.*?</svg>", page, re.DOTALL)
    assert len(figures) == 4 + 2 + 1
    for figure in figures:
        assert 'role="img"' in figure[:200]
        assert re.search(r"<title[^>]*>\w", figure)
        assert re.search(r"<desc[^>]*>\w", figure)


def test_each_run_has_its_row_its_lanes_and_its_figures(page):
    for label in ("1 worker", "sync", "async", "ssp:3"):
        assert f'<th scope="row">{label}</th>' in page
        assert f"<h3>{label}</h3>" in page
    for title in (
        "speed-up",
        "waiting",
        "version lag: mean of each worker",
        "to accuracy &gt;= 0.9",
    ):
        assert title in page


def test_the_header_says_what_was_trained_from_what_the_launcher_wrote(tmp_path):
    request = {"script": "/x/train.py", "emulate": "/x/cluster.toml"}
    summary = {"request": request, "started": "2026-11-29T17:29:01.123+00:00"}
    write_run(tmp_path, {0: [setup(world_size=4), step()]}, summary=summary)
    subtitle = "train.py · 4 workers · 1,000 parameters · SGD(lr=0.1) · "
    subtitle += "timing of cluster.toml emulated · 2026-11-29 17:29"
    assert subtitle in render_page([read_run(tmp_path)])


def test_seeds_of_one_strategy_share_a_row(tmp_path):
    runs = [
        read_run(simulated_run(tmp_path / str(seed), Ring(windows=20, seed=seed)))
        for seed in range(3)
    ]
    page = render_page(runs)
    assert page.count('<th scope="row">async</th>') == 2 + 1
    assert "over 3 seeds" in page
    assert "significant" not in page


def test_what_runs_say_is_escaped(tmp_path):
    note = trace.Note(time_s=101.0, kind="died", rank=0, text="<script>alert(1)</script>")
    metric = trace.Metric(time_s=101.0, name="a<b>&$x", value=1.0, version=0, samples=1.0)
    head = setup(optimizer="<b>Evil</b>")
    write_run(tmp_path, {0: [head, step(), note, metric]})
    page = render_page([read_run(tmp_path)])
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page
    assert "<b>" not in page


@pytest.mark.parametrize("records", [[], [step()], [step(loss=None)], [step(loss=float("nan"))]])
def test_a_run_that_has_hardly_begun_has_a_report(tmp_path, records):
    write_run(tmp_path, {0: [setup(world_size=2), *records], 1: []})
    assert "Not all workers have closed" in render_page([read_run(tmp_path)])


def test_a_long_run_with_many_workers_stays_small(tmp_path):
    ring = Ring(workers=24, windows=400)
    page = render_page([read_run(simulated_run(tmp_path, ring))])
    assert len(page.encode()) < MAX_BYTES
    assert "The first 16 of 24 workers" in page


def test_lanes_cover_a_workers_whole_time(four_runs):
    run = four_runs[1]
    start_s, end_s = interval(run)
    for own in spans(run).values():
        assert sum(span.length_s for span in own) == pytest.approx(end_s - start_s, abs=0.01)
        ordered = sorted(own, key=lambda span: span.start_s)
        for before, after in pairwise(ordered):
            assert before.start_s + before.length_s <= after.start_s + 1e-9


def test_lanes_say_which_time_they_show(four_runs):
    chart = lanes_chart("sync", four_runs[1], 0.5)
    assert chart.caption.startswith("Shown: 0.50 s of ")


def test_curves_count_the_samples_of_all_workers_and_are_thinned(four_runs):
    curve = loss_curve(four_runs[2])
    assert curve.samples[-1] == 4 * 40 * 32
    assert np.all(np.diff(curve.times_s) >= 0)
    assert len(thinned(curve).values) <= MAX_RAW_POINTS
    assert smoothed(curve).values.mean() == pytest.approx(curve.values.mean(), rel=0.05)
    assert list(metric_curve(four_runs[2], "accuracy").samples) == [1280, 2560, 3840, 5120]
