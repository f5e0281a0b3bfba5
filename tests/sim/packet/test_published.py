"""The published results in examples/published still come out: values within a quarter, bounds kept."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "examples" / "published"
NAMES = ("dctcp", "cubic", "recovery", "hpcc", "fairness")


@pytest.mark.parametrize("name", NAMES)
def test_published_results_come_out(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    for module in (*NAMES, "figure"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    for figure in importlib.import_module(name).figures():
        assert figure.points
        assert [point for point in figure.points if not point.holds] == [], figure.title
    for module in (*NAMES, "figure"):
        sys.modules.pop(module, None)
