"""The figures that README and Learn print are what their commands give today."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import figures  # noqa: E402  (tools/ is no package)

pytestmark = pytest.mark.slow


def test_no_figure_is_stale() -> None:
    assert figures.stale(figures.figures()) == [], "run python tools/figures.py"


def test_a_wrong_figure_is_found() -> None:
    names = {name for page in figures.PAGES for name, _ in figures.MARKED.findall(page.read_text("utf-8"))}
    assert len(names) > 10
    assert len(figures.stale(dict.fromkeys(names, "-"))) >= len(names)
