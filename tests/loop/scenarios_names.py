"""The scenarios' names, read without importing torch."""

from __future__ import annotations

import ast
from pathlib import Path

_TREE = ast.parse((Path(__file__).parent / "scenarios.py").read_text())

NAMES = [
    node.name
    for node in _TREE.body
    if isinstance(node, ast.FunctionDef)
    and any(isinstance(d, ast.Name) and d.id == "scenario" for d in node.decorator_list)
]
