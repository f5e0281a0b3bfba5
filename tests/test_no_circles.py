"""No two modules import each other, directly or through others: not for types, and not by a name in a string."""

from __future__ import annotations

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
FACE = "syncline"
"""The package's face names every module and loads it when asked; it is imported before any of them."""


def modules() -> dict[str, Path]:
    """Return every module of the package by its dotted name."""
    paths = (path.relative_to(SOURCE).with_suffix("") for path in SOURCE.rglob("*.py"))
    return {".".join(path.parts).removesuffix(".__init__"): SOURCE / path.with_suffix(".py") for path in paths}


def by_string(node: ast.Call, known: set[str]) -> set[str]:
    """Return the modules that `import_module("syncline.x")` may load; a part in braces stands for any name."""
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if called not in ("import_module", "__import__", "find_spec") or not node.args:
        return set()
    target = node.args[0]
    parts = target.values if isinstance(target, ast.JoinedStr) else [target]
    one_name = r"\w+" if isinstance(target, ast.JoinedStr) else ".*"
    pattern = "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else one_name for part in parts)
    return {name for name in known if re.fullmatch(pattern, name)}


def imported(text: str, known: set[str]) -> set[str]:
    """Return what a module imports of the package, wherever in the file that stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in names}
        elif isinstance(node, ast.Call):
            found |= by_string(node, known)
    return found & known


def test_imports_have_no_circle() -> None:
    paths = modules()
    known = set(paths) - {FACE}
    assert len(known) > 500
    graph = {name: imported(paths[name].read_text(), known) - {name} for name in known}
    TopologicalSorter(graph).prepare()  # raises CycleError with the modules of a circle


def test_an_import_by_string_counts() -> None:
    known = {"syncline.a", "syncline.b.one", "syncline.b.two"}
    assert imported('import_module("syncline.a")', known) == {"syncline.a"}
    assert imported('importlib.import_module(f"syncline.b.{name}")', known) == {"syncline.b.one", "syncline.b.two"}
    assert imported("import_module(name)", known) == known, "a name that nobody can read may be any module"
    with pytest.raises(CycleError):
        TopologicalSorter({"a": {"b"}, "b": {"a"}}).prepare()
