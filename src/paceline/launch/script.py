"""The user's script, as ``python script.py`` would show it: ``__main__``, tracebacks without our frames."""

from __future__ import annotations

import os
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType


def present(script: str, args: list[str]) -> None:
    """Let ``sys.argv`` and ``sys.path`` be as the script expects them."""
    sys.argv = [script, *args]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.abspath(script))


def compiled(path: str) -> CodeType:
    """The script at the absolute ``path``. Raises SyntaxError."""
    code: CodeType = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    return code


def main_module(path: str) -> ModuleType:
    """A fresh ``__main__`` for the script at ``path``."""
    module = ModuleType("__main__")
    module.__file__ = path
    module.__loader__ = SourceFileLoader("__main__", path)
    module.__dict__.update(__builtins__=sys.modules["builtins"], __cached__=None)
    return module


def script_frames(tb: TracebackType | None, path: str) -> TracebackType | None:
    """The traceback from the script's own first frame on; None if it never ran (syntax error)."""
    found = tb
    while found is not None and found.tb_frame.f_code.co_filename != path:
        found = found.tb_next
    return found
