"""Every private name of torch that the runtime uses is in the method page, with the reason."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
OWN = {"self", "cls", "super()", "self._second", "steps", "executor", "bound.executor", "group"}
"""Whose private names are syncline's own."""
OTHERS = {"_current_frames", "_max_workers", "_process_group"}
"""Of Python itself, and the end of a public name."""


def private_names(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and re.match(r"_[a-zA-Z]", node.attr):
            if ast.unparse(node.value) not in OWN or node.attr == "_get_backend":
                found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"_[a-z]\w+", node.value):
            found.add(node.value)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("torch."):
            found |= {part for part in node.module.split(".") if part.startswith("_")}
    return found - OTHERS - {"_C"}


def test_private_names_of_torch_are_listed_with_their_reason() -> None:
    page = (ROOT / "docs/method/runtime.md").read_text(encoding="utf-8").partition("## Private calls of torch")[2]
    listed = set(re.findall(r"`(_\w+)`", page))
    used = set().union(*(private_names(path) for path in (ROOT / "src/syncline/runtime").rglob("*.py")))
    assert used == listed
