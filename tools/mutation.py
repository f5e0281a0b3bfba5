"""Do the tests notice? Puts small faults into modules one at a time and runs the nearest tests on each.

    python benchmarks/run.py mutation --keep                      every module below
    python tools/mutation.py watch.rules.hold                one, with every survivor
    python tools/mutation.py sim.step.memory --at-most 40    a sample
    python tools/mutation.py --draw 60 --seed 5              one fault each in 60 modules, drawn by their lines of code

A fault is one changed operator, comparison, condition, number or call of min and max. It is killed when a test fails or
takes ten times as much of a processor. Python imports torch, numpy and pytest once; each fault is tried in a fork of
its own, which imports the changed text in place of the module on the disk, as do the processes that the tests start.
Some survivors change nothing that can be observed.

A draw runs the four nearest test files of the module's room: the test file of the same name, then by the number of
imports between the test file and the module. Time-outs are listed apart: the fault may hang, or the tests may be slow.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib.abc
import importlib.util
import itertools
import math
import os
import random
import re
import resource
import signal
import sys
import tempfile
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
# A draw's packages, each with the tests of its room. GPU kernels are left out: their tests need a GPU.
ROOMS = {
    "sim": "tests/sim", "planning": "tests/planning", "placing": "tests/placing", "sharing": "tests/sharing",
    "watch.rules": "tests/watch", "runtime.sync": "tests/runtime",
}  # fmt: skip
LEFT_OUT = ("runtime.sync.gpu.",)
DRAW_LIMIT_S = 60.0
BUSY = 10
"""Limits count seconds of a processor; on a busy machine, or where a test sleeps, that may be so many times as long."""
NUM_NEAREST = 4
PRELOADED = ("numpy", "pytest", "pydantic", "networkx", "yaml", "scipy.optimize", "torch")
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


def places(source: str) -> list[tuple[int, int]]:
    """Return where a fault can be put: the number of the node in `ast.walk`, and which of the node's faults."""
    tree = ast.parse(source)
    untested = {id(part) for note in _annotations(tree) for part in ast.walk(note)}
    nodes = [(number, node) for number, node in enumerate(ast.walk(tree)) if id(node) not in untested]
    return [(number, kind) for number, node in nodes for kind in range(len(faults(node)))]


def mutant(source: str, place: tuple[int, int]) -> Mutant:
    """Return the module with the fault of one place."""
    number, kind = place
    tree = ast.parse(source)
    node = next(itertools.islice(ast.walk(tree), number, None))
    shown = node.test if isinstance(node, ast.If) else node
    before = ast.unparse(shown)
    faults(node)[kind]()
    shown = node.test if isinstance(node, ast.If) else node
    return Mutant(getattr(node, "lineno", 0), f"{before}  ->  {ast.unparse(shown)}", ast.unparse(tree))


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
    """Yield annotations, decorators and imports for types: a fault there changes nothing that is computed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield node
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


# What a process that a test starts runs first: `sitecustomize` is imported by every Python that finds it.
SITE = """
import sys
sys.path.insert(0, {tools!r})
from mutation import Handed, Path
sys.path.remove({tools!r})
sys.meta_path.insert(0, Handed({name!r}, Path({path!r}), {source!r}))
"""


class Witness:
    """A pytest plugin that writes into a file how many tests have begun, and the last of them."""

    def __init__(self, path: Path) -> None:
        self.path, self.num_begun = path, 0

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.num_begun += 1
        self.path.write_text(f"test {self.num_begun}: {nodeid}")

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.path.write_text(f"import: {report.nodeid}")


@dataclass(frozen=True)
class Trial:
    """What the tests made of a changed module: "passed", "failed" or "too long", the seconds and the last test."""

    verdict: str
    took_s: float
    last_test: str


def tried(module: str, source: str, tests: tuple[str, ...], limit_s: float) -> Trial:
    """Run the tests on a changed module in a fork."""
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.monotonic()
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit_s), math.ceil(limit_s)))
            _be_child(module, source, tests, Path(folder))
        verdict = "too long"
        while verdict == "too long" and time.monotonic() - began_s < BUSY * limit_s:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                if code in (4, 5):  # pytest's: wrong usage, no tests
                    sys.exit(f"pytest cannot run {' '.join(tests)}")
                verdict = "passed" if code == 0 else "failed"
                if -code in (signal.SIGXCPU, signal.SIGKILL):
                    verdict = "too long"
                    break
            time.sleep(0.05)
        else:
            if verdict == "too long":
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
        last = Path(folder) / "last"
        return Trial(verdict, time.monotonic() - began_s, last.read_text() if last.exists() else "")


def _be_child(module: str, source: str, tests: tuple[str, ...], folder: Path) -> None:
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    try:
        import pytest

        name, path = f"syncline.{module}", path_of(module)
        site = SITE.format(tools=str(Path(__file__).parent), name=name, path=str(path), source=source)
        (folder / "sitecustomize.py").write_text(site)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
        sys.meta_path.insert(0, Handed(name, path, source))
        quiet = [
            "-x",
            "-q",
            "-m",
            "not slow",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-p",
            "no:doctest",
            "-o",
            "addopts=",
        ]
        plugins = [Witness(folder / "last")]
        os._exit(int(pytest.main([*quiet, "--import-mode=importlib", *tests], plugins=plugins)))
    finally:
        os._exit(70)


def path_of(module: str) -> Path:
    """Return where a module lies."""
    return ROOT / "src" / "syncline" / f"{module.replace('.', '/')}.py"


def judged(module: str, at_most: int, num_at_once: int = 2) -> dict[str, Any]:
    """Return how many faults of a module the tests killed, and those that they did not."""
    tests, source = TARGETS[module], path_of(module).read_text()
    every = places(source)
    sample = random.Random(SEED).sample(every, min(at_most, len(every)))  # noqa: S311
    chosen = sorted((mutant(source, place) for place in sample), key=lambda each: each.line)
    unchanged = tried(module, source, tests, 600.0)
    if unchanged.verdict != "passed":
        sys.exit(f"the tests of {module} fail without any fault: {' '.join(tests)}")
    limit_s = max(LEAST_LIMIT_S, 10 * unchanged.took_s)
    with ThreadPoolExecutor(num_at_once) as pool:
        verdicts = list(pool.map(lambda each: tried(module, each.source, tests, limit_s).verdict, chosen))
    survived = [each for each, verdict in zip(chosen, verdicts, strict=True) if verdict == "passed"]
    killed = len(chosen) - len(survived)
    print(f"{module}: {killed} of {len(chosen)} killed ({killed / len(chosen):.0%})", file=sys.stderr, flush=True)
    return {
        "module": module, "tests": list(tests), "faults": len(every), "tried": len(chosen), "killed": killed,
        "killed_share": round(killed / len(chosen), 3),
        "survived": [f"line {each.line}: {each.change}" for each in survived],
    }  # fmt: skip


def drawn(num: int, seed: int) -> list[tuple[str, Mutant]]:
    """Draw modules by their lines of code, and one fault in each."""
    rng = random.Random(seed)  # noqa: S311
    sources = {
        module: path.read_text()
        for package in ROOMS
        for path in sorted(path_of(package).with_suffix("").rglob("*.py"))
        if not (module := module_of(path)).startswith(LEFT_OUT)
    }
    lines = [text.count("\n") for text in sources.values()]
    draw: dict[tuple[str, tuple[int, int]], None] = {}
    while len(draw) < num:
        (module,) = rng.choices(list(sources), lines)
        if every := places(sources[module]):
            draw[module, rng.choice(every)] = None
    return [(module, mutant(sources[module], place)) for module, place in draw]


def module_of(path: Path) -> str:
    """Return the dotted name of a file below `src/syncline`, as in `sim.step.memory`."""
    return ".".join(path.relative_to(ROOT / "src" / "syncline").with_suffix("").parts)


@functools.cache
def imports_of(path: Path) -> frozenset[Path]:
    """Return the files of the project that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    bases = [ROOT / ("src" if name.startswith("syncline") else "") / name.replace(".", "/") for name in names]
    tries = [path for base in bases for path in (base.with_suffix(".py"), base / "__init__.py")]
    return frozenset(path for path in tries if path.is_file())


@functools.cache
def distances(test: Path) -> dict[Path, int]:
    """Return how many imports lie between a test file and each file that it reaches."""
    steps, queue = {test: 0}, [test]
    for path in queue:
        for imported in imports_of(path) - steps.keys():
            steps[imported] = steps[path] + 1
            queue.append(imported)
    return steps


def nearest_tests(module: str) -> tuple[str, ...]:
    """Return the few test files of the module's room that are nearest to it, nearest first."""
    room = next(folder for package, folder in ROOMS.items() if f"{module}.".startswith(f"{package}."))
    path, parts = path_of(module), re.split(r"[._]", module.rpartition(".")[2])
    mirrored = ROOT / "tests" / Path(*module.split(".")[:-1])

    def far(test: Path) -> tuple[bool, int, bool]:
        same_name = test.stem.split("_")[1 : 1 + len(parts)] == parts
        return not same_name, distances(test).get(path, 99), test.parent != mirrored

    tests = sorted((ROOT / room).rglob("test_*.py"), key=far)
    return tuple(str(test.relative_to(ROOT)) for test in tests[:NUM_NEAREST])


def print_draw(num: int, seed: int) -> None:
    """Print each fault of a draw with the test that killed it, and then how many were killed."""
    draw = drawn(num, seed)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        trials = pool.map(lambda each: tried(each[0], each[1].source, nearest_tests(each[0]), DRAW_LIMIT_S), draw)
        num_by_verdict: dict[str, int] = {}
        for (module, fault), trial in zip(draw, trials, strict=True):
            verdict = {"failed": "killed", "passed": "survived"}.get(trial.verdict, trial.verdict)
            num_by_verdict[verdict] = num_by_verdict.get(verdict, 0) + 1
            print(f"{verdict:8}  {module}:{fault.line}  {fault.change}  [{trial.last_test}]", flush=True)
    print(*(f"{count} {verdict}" for verdict, count in num_by_verdict.items()), sep=", ")


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
    parser.add_argument("--draw", type=int, help=f"one fault in each of so many modules of {', '.join(ROOMS)}")
    parser.add_argument("--seed", type=int, default=SEED, help="of --draw")
    options = parser.parse_args()
    preload()
    if options.draw:
        print_draw(options.draw, options.seed)
        sys.exit()
    for name in options.modules or TARGETS:
        print(*judged(name, options.at_most)["survived"], sep="\n")
