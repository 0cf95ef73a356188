"""A real browser, its network off, opens the report without an error on its console."""

import shutil
import subprocess

import pytest

from paceline.report.page import render_page
from paceline.runs import read_run
from synthetic_runs import Ring, simulated_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--dump-dom",
)  # fmt: skip

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed here")


def console_and_dom(page, directory):
    page_file = directory / "page.html"
    page_file.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={directory / 'profile'}", page_file.as_uri()],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return [line for line in done.stderr.splitlines() if "CONSOLE" in line], done.stdout


def test_the_report_opens_without_a_console_error(tmp_path):
    runs = [
        read_run(simulated_run(tmp_path / "sync", Ring(staleness=0, strategy="sync"))),
        read_run(simulated_run(tmp_path / "async", Ring())),
    ]
    console, dom = console_and_dom(render_page(runs), tmp_path)
    assert console == []
    assert dom.count("<svg") == 5


def test_a_page_with_errors_would_be_noticed(tmp_path):
    console, _ = console_and_dom("<script>console.error('boom')</script>", tmp_path)
    assert "boom" in console[0]
