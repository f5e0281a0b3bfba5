"""The fence an import contract cannot see: only `cli` prints or exits."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import syncline

ROOT = Path(syncline.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

PRINTS_OR_EXITS = {
    "print", "exit", "quit", "breakpoint", "input", "sys.exit", "os._exit", "os.abort", "typer.Exit", "typer.echo",
    "sys.stdout.write", "sys.stderr.write", "SystemExit",
}  # fmt: skip
PARTS = re.compile(rf"\b({'|'.join(name.rpartition('.')[2] for name in PRINTS_OR_EXITS)})\b")


def calls(path: Path) -> list[tuple[str, int]]:
    """Return the dotted name and line of everything called or raised in a file, where it has a part of such a name."""
    text = path.read_text()
    nodes = list(ast.walk(ast.parse(text))) if PARTS.search(text) else []
    found = [(dotted(node.func), node.lineno) for node in nodes if isinstance(node, ast.Call)]
    return found + [(dotted(node.exc), node.lineno) for node in nodes if isinstance(node, ast.Raise)]


def dotted(node: ast.expr | None) -> str:
    """Return `a.b.c` as it is written; nothing where an object is computed first."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


#: A captured script is left where its last step ends: nothing of its own ending (an upload, a checkpoint) is wanted.
#: GPUs are loaded by a program of its own, which can hang alone; its rows are read by the audit that started it.
#: Kernels are timed by a program that runs where there is a GPU, with nothing of syncline installed; its lines say how
#: many are left.
#: A rehearsal's rank ends while threads of gloo may still need the interpreter, which would abort while torn down.
ALLOWED = {
    ("rehearsal/worker.py", "os._exit"),
    ("previewing/capture/__main__.py", "os._exit"),
    ("previewing/capture/measure.py", "sys.exit"),
    ("previewing/capture/measure.py", "sys.stdout.write"),
    ("previewing/capture/own.py", "os._exit"),
    ("previewing/capture/rank.py", "os._exit"),
    ("previewing/capture/rehearsed.py", "os._exit"),
    ("runtime/gpu_load.py", "sys.stdout.write"),
}


def is_command_line(path: Path) -> bool:
    return path.is_relative_to(ROOT / "cli")


def test_only_the_command_line_prints_or_exits() -> None:
    found = []
    for path in MODULES:
        own = path.relative_to(ROOT).as_posix()
        if not is_command_line(path):
            found += [
                f"{own}:{line}: {name}"
                for name, line in calls(path)
                if name in PRINTS_OR_EXITS and (own, name) not in ALLOWED
            ]
    assert found == []


def test_the_fence_sees_what_it_should(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("import sys\nprint('x')\nif 1:\n    sys.exit(1)\nraise SystemExit\n")
    assert calls(bad) == [("print", 2), ("sys.exit", 4), ("SystemExit", 5)]


def test_every_exception_is_a_file_that_is_there() -> None:
    assert not [path for path, _ in ALLOWED if not (ROOT / path).is_file()]
