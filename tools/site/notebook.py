"""Notebooks, run cell by cell in this process: what a page shows is what the code gives today."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from blocks import BlockError, Kept


def notebook_page(path: Path, kept: Kept) -> tuple[str, str, str]:
    """Return a notebook as a page, its title, and the first text it prints."""
    source = path.read_text("utf-8")
    text = kept.get("notebook", source)
    if text is None:
        text = kept.put(json.dumps(run_notebook(path)), "notebook", source)
    cells = json.loads(text)
    lines = []
    for kind, code, said in cells:
        lines += [code, ""] if kind == "markdown" else ["```python", code, "```", "", *_said(said)]
    title = next(code for kind, code, _ in cells if kind == "markdown").splitlines()[0].lstrip("# ")
    first = next((said for _, _, said in cells if said), "")
    lines += [f"The notebook: `examples/notebooks/{path.name}`.", ""]
    return "\n".join(lines), title, first


def run_notebook(path: Path) -> list[tuple[str, str, str]]:
    """Run every cell of a notebook in order; return (kind, source, what it printed)."""
    cells: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["cells"]
    scope: dict[str, object] = {"__name__": "__main__"}
    done = []
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="syncline-notebook-") as folder:
        os.chdir(folder)
        try:
            for number, cell in enumerate(cells):
                source = "".join(cell["source"])
                said = _run(source, scope, f"{path.name} cell {number}") if cell["cell_type"] == "code" else ""
                done.append((cell["cell_type"], source, said))
        finally:
            os.chdir(before)
    return done


def _run(source: str, scope: dict[str, object], where: str) -> str:
    """Run a cell as a notebook does: its last expression is printed."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(tree, where, "exec"), scope)  # noqa: S102 - our own notebooks
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), where, "eval"), scope)  # noqa: S307
                if value is not None:
                    print(value)
    except Exception as error:
        raise BlockError(f"{where} ends with {type(error).__name__}: {error}") from error
    return out.getvalue().rstrip()


def _said(said: str) -> list[str]:
    return ["```text", said, "```", ""] if said else []
