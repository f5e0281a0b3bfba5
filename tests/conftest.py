"""Settings every test shares."""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings
from tests.forks import Forks

# Shared machines are slow at times: a deadline would fail a good test. The same cases are drawn in every run, so that a
# clone which passes once passes again; `HYPOTHESIS_PROFILE=deep` draws new ones, and many more.
_ANYWHERE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", parent=_ANYWHERE, max_examples=30, derandomize=True)
settings.register_profile("deep", parent=_ANYWHERE, max_examples=3000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
# Agents and jobs of different tests must not meet: only where a test names a socket.
os.environ["SYNCLINE_WATCH"] = ""
# Answers that speak of today are the same on any day.
os.environ["SOURCE_DATE_EPOCH"] = "1794787200"  # 2026-11-16
# As `syncline` does: tests make many objects and hardly a ring, and 8 % of their time went into looking for rings.
gc.set_threshold(100_000, 20, 100)
# Where tests mostly wait: for labs, ranks, browsers and clocks. The others compute.
WAITING = (
    *(
        "tests/test_examples.py",
        "tests/browser/",
        "tests/distributed/",
        "tests/drill/",
        "tests/lab/",
        "tests/rehearsal/",
    ),
    *("tests/runtime/", "tests/watch/", "tests/cli/bench/", "tests/cli/lab/", "tests/cli/test_watch.py"),
    *("tests/auditing/test_in_a_lab.py", "tests/bench/test_tournament_lab.py"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, metavar="N", help="run files in N forks of one process")
    parser.addoption("--regenerate-examples", action="store_true", help="keep what the examples print as expected")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--forks"):
        config.pluginmanager.register(Forks(config.getoption("--forks")))
    config.pluginmanager.register(_Examples())  # what stands in a conftest alone is not asked about `src`


class _Examples:
    """Looks for doctests only in files that have one: a thousand others need not be imported and searched."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        found = yield
        if file_path.suffix == ".py" and ">>>" not in file_path.read_text("utf-8"):
            return [node for node in found if not isinstance(node, DoctestModule)]
        return found


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep ten thousand tests and what they import out of the garbage collector's way: they stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deal files that wait among files that compute, so that forks seldom all wait, or all compute, at once.

    The last to be handed out compute: nobody is left waiting alone at the end.
    """
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    places: dict[str, float] = {}
    for waits, last in ((True, 0.8), (False, 1.0)):
        mine = [file for file in files if file.startswith(WAITING) is waits]
        *before, total = itertools.accumulate((len(files[file]) for file in mine), initial=0)
        places |= {file: last * num / total for file, num in zip(mine, before, strict=True)}
    items[:] = itertools.chain.from_iterable(files[file] for file in sorted(files, key=places.__getitem__))


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_open() -> Iterator[None]:
    """Blame a socket or file that nobody closed on its own module, not on the test that garbage is collected in.

    What is left then stays to the end, and is not looked through again: that took an eighth of all time.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup() -> None:
    """Let tests have one environment: previews in the same one fork from the same process that has imported torch."""
    os.environ.pop("PYTEST_CURRENT_TEST", None)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call() -> None:
    """Let tests have one environment, as their fixtures have."""
    os.environ.pop("PYTEST_CURRENT_TEST", None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Print as into a pipe: the width of a terminal, or one that an earlier test has left, is nobody's business."""
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
