"""No two modules import each other, directly or through others, and not for types either."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"


def modules() -> dict[str, Path]:
    """Return every module of the package by its dotted name."""
    paths = (path.relative_to(SOURCE).with_suffix("") for path in SOURCE.rglob("*.py"))
    return {".".join(path.parts).removesuffix(".__init__"): SOURCE / path.with_suffix(".py") for path in paths}


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    """Return what a module imports of the package, wherever in the file that stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in names}
    return found & known.keys()


def test_imports_have_no_circle() -> None:
    known = modules()
    assert len(known) > 500
    graph = {name: imported(path, known) - {name} for name, path in known.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError with the modules of a circle
