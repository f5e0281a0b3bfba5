"""Research: every study imports, and the data of the package are those that research derives."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from syncline.validation.systems import shipped

ROOT = Path(__file__).parents[1]
#: Need packages that the development environment does not have, or run when imported.
APART = ("research.__main__", "research.preview.gpu", "research.preview.host", "research.preview.real")
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "research").rglob("*.py")
    if "tests" not in path.parts
)


@pytest.mark.parametrize("name", [name for name in MODULES if name not in APART])
def test_a_study_imports(name: str) -> None:
    importlib.import_module(name)


def test_the_package_holds_what_research_derives() -> None:
    package_data = importlib.import_module("research.package_data")
    assert shipped("nccl-tests.csv.gz") == package_data.nccl_tests(), "run: python -m research.package_data"


def test_every_set_stands_together_in_the_published_rows() -> None:
    published = importlib.import_module("research.published")
    num_rows = {"training": 0, "collectives": 0}
    for blind_set in published.BLIND_SETS:
        num_rows["training"] += len(published.training_rows(blind_set))
        num_rows["collectives"] += len(published.collective_rows(blind_set))
    assert num_rows == {"training": 1567, "collectives": 5238}
