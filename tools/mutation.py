"""Do the tests notice? Small faults are put into a module one at a time, and its own tests are run on each.

    python benchmarks/run.py mutation --keep                      every module below
    python tools/mutation.py watch.rules.hold                one, with every survivor
    python tools/mutation.py sim.step.memory --at-most 40    a sample

A fault is one changed operator, comparison, condition, number or call of min and max. It is killed when a test fails or
takes ten times as long. Python imports torch, numpy and pytest once; each fault is tried in a fork of its own, into
which the changed module is handed in place of the one on the disk. Some survivors change nothing that can be observed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SEED = 17
AT_MOST = 40
LEAST_LIMIT_S = 30.0
LINKS = "(near or touches or link or degraded or average or bursts or pause) and not ten_thousand and not noisy"
TARGETS = {
    "schedule.proof.safety": ("tests/schedule/proof/test_safety.py",),
    "schedule.proof.liveness": ("tests/schedule/proof/test_liveness.py",),
    "schedule.proof.replay": ("tests/schedule/proof/test_replay.py",),
    "watch.rules.hold": ("tests/watch/rules/test_hold.py",),
    "watch.rules.cause": ("tests/watch/rules/test_cause.py",),
    "watch.rules.link_rules": (
        "tests/watch/rules/test_link_rules.py",
        "tests/watch/rules/test_link_bounds.py",
        "tests/watch/test_rules.py",
        "-k",
        LINKS,
    ),
    "sim.step.memory": ("tests/sim/step/test_memory_twin.py",),
    "sim.step.cost": ("tests/sim/step/test_cost_twin.py",),
    "sim.step.arithmetic.params": ("tests/sim/step/test_cost_twin.py",),
    "runtime.alive.verdict": ("tests/runtime/alive/test_verdict.py",),
    "runtime.alive.pace": ("tests/runtime/alive/test_pace.py",),
    "runtime.sync.exchange": ("tests/runtime/sync/test_exchange.py", "tests/runtime/sync/test_piece.py"),
    "runtime.sync.piece": ("tests/runtime/sync/test_piece.py",),
    "codec.dense": ("tests/codec/test_bounds.py",),
}
PRELOADED = ("numpy", "pytest", "pydantic", "networkx", "yaml", "torch")
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.Pow: ast.Mult,
}  # fmt: skip
SWAPPED = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """A module with one fault: where, what was changed, and the whole text."""

    line: int
    change: str
    source: str


def mutants(source: str) -> Iterator[Mutant]:
    """Yield the module with each fault that can be put into it."""
    tree = ast.parse(source)
    told = {id(part) for note in _annotations(tree) for part in ast.walk(note)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in told:
            continue
        for kind in range(len(faults(node))):
            changed = copy.deepcopy(tree)
            there = next(each for i, each in enumerate(ast.walk(changed)) if i == number)
            before = ast.unparse(there)
            faults(there)[kind]()
            after = ast.unparse(there)
            if before != after:
                yield Mutant(getattr(node, "lineno", 0), f"{before}  ->  {after}", ast.unparse(changed))


def faults(node: ast.AST) -> list[Any]:
    """Return what can be done wrong at a node, as functions that do it."""
    found: list[Any] = []
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARED:
            found.append(lambda: setattr(node, "ops", [COMPARED[type(op)]()]))
        case ast.BinOp(op=operator, left=left) if type(operator) in COMPUTED and not _is_text(left):
            found.append(lambda: setattr(node, "op", COMPUTED[type(operator)]()))
        case ast.BoolOp(op=join, values=values):
            found.append(lambda: setattr(node, "op", ast.And() if isinstance(join, ast.Or) else ast.Or()))
            found += [lambda i=i: values.pop(i) for i in range(len(values)) if len(values) > 1]
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            found.append(lambda: setattr(node, "operand", ast.UnaryOp(ast.Not(), inner)))
        case ast.Constant(value=bool(value)):
            found.append(lambda: setattr(node, "value", not value))
        case ast.Constant(value=int(value) | float(value)):
            found.append(lambda: setattr(node, "value", value + 1 if value in (0, 1) else value * 1.5))
        case ast.Call(func=ast.Name(id=name) as called) if name in SWAPPED:
            found.append(lambda: setattr(called, "id", SWAPPED[name]))
        case ast.Call(func=ast.Attribute(attr=name) as reached) if name in SWAPPED:
            found.append(lambda: setattr(reached, "attr", SWAPPED[name]))
        case ast.If() | ast.IfExp():
            found.append(lambda: setattr(node, "test", ast.Constant(True)))
            found.append(lambda: setattr(node, "test", ast.Constant(False)))
        case _:
            pass
    return found


def _annotations(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what only says a type, and decorators: a fault there does nothing, or nothing that is computed."""
    for node in ast.walk(tree):
        yield from getattr(node, "decorator_list", ())
        for name in ("annotation", "returns"):
            if isinstance(note := getattr(node, name, None), ast.AST):
                yield note


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


class Handed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Hands a text in place of one module."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self.name, self.path, self.source = name, path, source

    def find_spec(self, fullname: str, *_: Any) -> Any:
        return importlib.util.spec_from_loader(fullname, self, origin=str(self.path)) if fullname == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self.path)
        exec(compile(self.source, str(self.path), "exec"), module.__dict__)  # noqa: S102 - our own module, changed


def tried(module: str, source: str, tests: tuple[str, ...], limit_s: float) -> tuple[str, float]:
    """Run the tests on a changed module in a fork; return "passed", "failed" or "too long", and the seconds."""
    began_s = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_child(module, source, tests)
    while time.monotonic() - began_s < limit_s:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "passed" if os.waitstatus_to_exitcode(status) == 0 else "failed", time.monotonic() - began_s
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "too long", limit_s


def _be_child(module: str, source: str, tests: tuple[str, ...]) -> None:
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    try:
        import pytest

        sys.meta_path.insert(0, Handed(f"syncline.{module}", path_of(module), source))
        quiet = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:doctest", "-o", "addopts="]
        os._exit(int(pytest.main([*quiet, "--import-mode=importlib", *tests])))
    finally:
        os._exit(70)


def path_of(module: str) -> Path:
    """Return where a module lies."""
    return ROOT / "src" / "syncline" / f"{module.replace('.', '/')}.py"


def judged(module: str, at_most: int, num_at_once: int = 2) -> dict[str, Any]:
    """Return how many faults of a module the tests killed, and those that they did not."""
    tests, source = TARGETS[module], path_of(module).read_text()
    every = list(mutants(source))
    chosen = sorted(random.Random(SEED).sample(every, min(at_most, len(every))), key=lambda each: each.line)  # noqa: S311
    verdict, usual_s = tried(module, source, tests, 600.0)
    if verdict != "passed":
        sys.exit(f"the tests of {module} fail without any fault: {' '.join(tests)}")
    limit_s = max(LEAST_LIMIT_S, 10 * usual_s)
    with ThreadPoolExecutor(num_at_once) as pool:
        verdicts = list(pool.map(lambda each: tried(module, each.source, tests, limit_s)[0], chosen))
    survived = [each for each, verdict in zip(chosen, verdicts, strict=True) if verdict == "passed"]
    killed = len(chosen) - len(survived)
    print(f"{module}: {killed} of {len(chosen)} killed ({killed / len(chosen):.0%})", file=sys.stderr, flush=True)
    return {
        "module": module, "tests": list(tests), "faults": len(every), "tried": len(chosen), "killed": killed,
        "killed_share": round(killed / len(chosen), 3),
        "survived": [f"line {each.line}: {each.change}" for each in survived],
    }  # fmt: skip


def preload() -> None:
    """Import what every fork needs, once."""
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    for name in PRELOADED:
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name)


def run() -> dict[str, Any]:
    """Return the verdict on every module."""
    preload()
    return {"seed": SEED, "at_most": AT_MOST, "modules": [judged(module, AT_MOST) for module in TARGETS]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Put small faults into a module and run its tests on each.")
    parser.add_argument("modules", nargs="*", choices=[[], *TARGETS], help="as in schedule.proof.safety")
    parser.add_argument("--at-most", type=int, default=10_000, help="faults to try, chosen at random")
    options = parser.parse_args()
    preload()
    for name in options.modules or TARGETS:
        print(*judged(name, options.at_most)["survived"], sep="\n")
