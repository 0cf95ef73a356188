"""The layers of docs/architecture.md hold: no import points upwards, not even inside a function.

A type-checking-only import (``if TYPE_CHECKING:``) counts like any other: it too is knowledge.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "paceline"
LAYERS = {
    0: (
        "clocks",
        "compression",
        "encounters",
        "errors",
        "events",
        "nvml",
        "recipes",
        "strategies",
        "trials",
        "values",
    ),
    1: ("policy", "trace", "cost", "payloads"),
    2: (
        "simulate",
        "runs",
        "compare",
        "report",
        "diagnose",
        "advise",
        "checkpoints",
        "measure",
        "doctor",
        "terminal",
    ),
    3: ("gradients", "transport", "recorder"),
    4: ("worker", "server", "launch", "virtual", "replay"),
    5: ("cli",),
}
LAYER_OF = {name: layer for layer, names in LAYERS.items() for name in names}
IMPURE = {"time", "random", "threading", "os", "torch", "numpy", "socket", "subprocess", "secrets",
          "multiprocessing", "asyncio", "pathlib", "io"}  # fmt: skip
STANDARD_ONLY_BUT = {"trace": {"msgspec"}}
TORCH_FREE_COMMANDS = ("import paceline", *[
    f"import sys; sys.argv = ['paceline', {arguments}]; from paceline.cli import main; main()"
    for arguments in ("'--help'", *[
        f"'{name}', '--help'"
        for name in ("run", "compare", "report", "replay", "diagnose", "measure", "doctor", "advise")
    ])
])  # fmt: skip
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def part_of(path):
    """The module or package directly below ``paceline`` that ``path`` belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path):
    """Absolute names of everything that ``path`` imports, wherever it does so."""
    package = ["paceline", *path.relative_to(SOURCE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{stem}.{alias.name}" for alias in node.names)


def own_parts(path):
    """Parts of paceline that ``path`` imports from."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("paceline.")}


def foreign(path):
    """Top-level packages other than paceline that ``path`` imports."""
    return {name.split(".")[0] for name in imports(path)} - {"paceline", "__future__"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_its_own_and_lower_layers_only(path):
    layer = LAYER_OF.get(part_of(path))
    assert layer is not None, f"{part_of(path)} has no layer: give it one here and in the docs"
    public = {"__version__"}
    above = {part for part in own_parts(path) - public if LAYER_OF.get(part, 99) > layer}
    assert not above


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if LAYER_OF.get(part_of(path), 99) <= 1],
    ids=lambda path: str(path.relative_to(SOURCE)),
)
def test_the_core_has_no_io_clock_thread_or_randomness(path):
    allowed = STANDARD_ONLY_BUT.get(part_of(path), set())
    used = foreign(path)
    assert not used & IMPURE
    assert used <= set(sys.stdlib_module_names) | allowed


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if LAYER_OF.get(part_of(path), 99) == 2],
    ids=lambda path: str(path.relative_to(SOURCE)),
)
def test_analysis_needs_no_torch(path):
    assert "torch" not in foreign(path)


def test_no_import_cycle():
    graph = {module_name(path): set() for path in MODULES}
    for path in MODULES:
        for name in top_level_imports(path):
            found = name if name in graph else name.rpartition(".")[0]
            if found in graph:
                graph[module_name(path)].add(found)
    while leaves := [name for name, needs in graph.items() if not needs & graph.keys()]:
        for name in leaves:
            del graph[name]
    assert not graph, f"these import each other: {sorted(graph)}"


def module_name(path):
    parts = ["paceline", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def top_level_imports(path):
    """What ``path`` imports when it is itself imported."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("statement", TORCH_FREE_COMMANDS)
def test_importing_paceline_and_torch_free_commands_load_no_torch(statement):
    check = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('heavy:', sorted({'torch', 'numpy', 'matplotlib'}"
        " & set(sys.modules)), file=sys.stderr))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", check + statement],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "heavy: []" in done.stderr


def loads_torch(arguments):
    """Whether ``paceline`` with these arguments does; it must end well."""
    statement = (
        f"import sys; sys.argv = ['paceline', *{arguments!r}]\n"
        "import atexit; atexit.register(lambda: print('torch' in sys.modules, file=sys.stderr))\n"
        "from paceline.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", statement], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stderr.strip() != "False"


def test_the_report_command_loads_no_torch(tmp_path):
    from synthetic_runs import Ring, simulated_run

    assert not loads_torch(["report", str(simulated_run(tmp_path / "run", Ring(windows=5)))])


def test_the_simulate_command_loads_no_torch(tmp_path):
    page = tmp_path / "page.html"
    cluster = ["simulate", "--workers", "4,8", "--step", "1", "--late", "1x3", "--steps", "20"]
    assert not loads_torch([*cluster, "--timeline", "3", "--html", str(page)])
    assert "<svg" in page.read_text()
