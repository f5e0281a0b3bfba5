from __future__ import annotations

import numpy as np

from syncline.describe import units
from syncline.questions.simulated.rows import CollectiveRow
from syncline.report.chart.plot import matrix
from syncline.report.page.simulate import bandwidth_curve
from syncline.report.text.simulate import method_lines

ROWS = [CollectiveRow(1 << k, 1.0, 1e9 * k, 1e9 * k, "<ring>", "", "flows", True) for k in range(10, 15)]


def test_the_curve_has_a_point_a_size_and_escapes_names() -> None:
    svg = bandwidth_curve(ROWS)
    assert svg.count("<circle") == len(ROWS)
    assert "&lt;ring&gt;" in svg and "<ring>" not in svg
    heights = [float(part.split('"')[1]) for part in svg.split("cy=")[1:]]
    assert heights == sorted(heights, reverse=True)  # more bandwidth is further up


def test_one_size_is_drawn_too() -> None:
    assert bandwidth_curve(ROWS[:1]).count("<circle") == 1


def test_the_matrix_shows_only_pairs_that_talk() -> None:
    traffic = np.array([[0.0, 8.0], [2.0, 0.0]])
    svg = matrix("traffic", traffic, ["a", "b"], units.show_size)
    assert svg.count("<title>") == 2
    assert "a to b: 8 B" in svg


def test_methods_are_explained_once_each() -> None:
    lines = method_lines(["flows", "folded flows", "flows"])
    assert len(lines) == 2
    assert lines[1] == "  folded flows: identical ranks simulated as one; every flow simulated"
