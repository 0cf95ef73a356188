"""What the README shows works: Python blocks run, every command and option shown exists.

A console block's lines that begin with ``$ `` are commands. ``paceline`` commands are checked against
the command line's own definition; those that are quick and need no training are run as they stand.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from paceline.cli import paceline

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
QUICK = ("--help", "--version")
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
MAKE_TARGET = re.compile(r"^([\w-]+):", re.MULTILINE)


def blocks(*languages):
    """(first line's number, text) of the README's blocks in one of ``languages``."""
    if not README.exists():
        return []
    text = README.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, found.start()) + 1, found.group(2))
        for found in BLOCK.finditer(text)
        if found.group(1) in languages
    ]


def commands():
    """(line number, words) of every ``$ `` line; a trailing backslash joins the next line."""
    for number, text in blocks("console", "sh", "bash", "shell"):
        for line in text.replace("\\\n", " ").splitlines():
            if line.startswith("$ "):
                yield number, shlex.split(line[2:], comments=True)


COMMANDS = list(commands())
OURS = [(number, words[1:]) for number, words in COMMANDS if words[0] == "paceline"]


@pytest.mark.parametrize(("line", "code"), blocks("python"), ids=lambda value: str(value)[:12])
def test_python_blocks_run(line, code, tmp_path):
    script = tmp_path / "block.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env={"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"README.md, block at line {line}:\n{done.stderr[-2000:]}"


@pytest.mark.parametrize(("line", "words"), OURS, ids=lambda value: str(value)[:60])
def test_commands_shown_exist_with_their_options(line, words):
    context = click.Context(paceline)
    if words[0].startswith("-"):
        assert words[0] in QUICK
        return
    command = paceline.get_command(context, words[0])
    assert command is not None, f"README.md line {line}: there is no 'paceline {words[0]}'"
    if QUICK[0] not in words:
        command.make_context(words[0], list(words[1:]), resilient_parsing=False)


@pytest.mark.parametrize(
    ("line", "words"), [one for one in OURS if set(one[1]) & set(QUICK)], ids=str
)
def test_quick_commands_run(line, words):
    done = subprocess.run(
        [sys.executable, "-m", "paceline.cli", *words], capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_make_targets_shown_exist():
    targets = set(MAKE_TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    shown = {word for _, words in COMMANDS if words[0] == "make" for word in words[1:]}
    assert shown <= targets


def test_files_shown_exist():
    shown = {
        word
        for _, words in COMMANDS
        for word in words
        if re.fullmatch(r"(examples|docs)/\S+", word)
    }
    if README.exists():
        links = re.findall(r"\]\(((?!https?:|#)[^)#]+)", README.read_text(encoding="utf-8"))
        shown |= set(links)
    missing = sorted(path for path in shown if not (ROOT / path).exists())
    assert not missing
