"""docs/trace.md describes every record and every column of the trace, in their order."""

import re
from pathlib import Path

from paceline import trace

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "trace.md").read_text(encoding="utf-8")


def described():
    """Record -> the words in code font of its row, in order."""
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE)
    return {name: re.findall(r"`([\w-]+)`", columns) for name, columns in rows}


def test_every_record_has_its_row_with_its_columns_in_order():
    columns = trace.header(role="worker", rank=0, time_s=0.0).columns
    rows = described()
    assert set(rows) == {"header", *columns}
    for name, expected in columns.items():
        assert [word for word in rows[name] if word in expected][: len(expected)] == expected


def test_the_page_names_the_current_version():
    assert f"## Format, version {trace.FORMAT_VERSION}" in PAGE
