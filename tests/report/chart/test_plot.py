"""Charts: values are where the axes say, labels are round, names are escaped and every drawing has a label."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from syncline.report.chart.bars import BarPart, BarRow, bars, ink_on, stacked
from syncline.report.chart.lanes import ChartLane, lanes
from syncline.report.chart.plot import Axis, Line, log_ticks, matrix, plot, tornado
from syncline.report.chart.svg import element

NASTY = '<b>"mine" & \x07'


def test_the_peak_is_inside_and_labels_are_round() -> None:
    time_s = np.array([0.0, 1.0, 2.0]) * 1e-4
    lines = [Line("a", time_s, [0.0, 7.3, 1.0]), Line("rule", time_s, np.full(3, 2.0), is_rule=True)]
    svg = plot("x", lines, Axis.time(2e-4), Axis.even(7.3))
    assert ">8</text>" in svg
    assert "stroke-dasharray" in svg
    assert [f">{x}<" in svg for x in ("0 us", "25", "50", "200")] == [True] * 4
    heights = [float(point.split(",")[1]) for point in svg.split('points="')[1].split('"')[0].split()]
    assert heights[1] == min(heights) > 10


@pytest.mark.parametrize(("end_s", "words"), [(1.5e-3, "1,400"), (4e-3, "4"), (3.0, "3")])
def test_time_is_written_in_the_unit_people_read(end_s: float, words: str) -> None:
    axis = Axis.time(end_s)
    assert axis.high == end_s
    assert axis.ticks[-1][1] == words
    assert axis.ticks[0][1] == {1.5e-3: "0 us", 4e-3: "0 ms", 3.0: "0 s"}[end_s]


def test_logarithmic_axes_have_labels_however_narrow() -> None:
    assert log_ticks(1e-6, 1e-3) == pytest.approx([1e-6, 1e-5, 1e-4, 1e-3])
    assert log_ticks(1.6e-4, 4.3e-4) == pytest.approx([2e-4, 2.5e-4, 3e-4, 4e-4])
    assert log_ticks(1e-4, 1e-4) == pytest.approx([1e-4])
    assert log_ticks(30, 1200) == pytest.approx([50, 100, 200, 500, 1000])
    assert Axis.log(10, 1000, str).share([10, 100, 1000]) == pytest.approx([0, 0.5, 1])


def test_spans_cover_their_time_and_ends_are_marked() -> None:
    axis = Axis.time(4.0)
    svg = lanes("x", [ChartLane("link", {("on", "red"): [(1.0, 3.0), (4.0, 4.0)]})], axis, [(3.0, "done", "predicted")])
    assert 'd="M150 25.5m192.5 0h385m192.5 0h0.4"' in svg  # a moment without length is still seen
    assert ">done</text>" in svg


def test_a_tornado_reaches_from_the_answer_to_both_ends() -> None:
    svg = tornado("x", [("price", 80.0, 130.0)], 100.0, "${:.0f}".format)
    boxes = {look: (float(x), float(width)) for x, width, look in
             re.findall(r'<rect x="([\d.]+)" y="8" width="([\d.]+)" height="16" class="(\w+)-end"', svg)}  # fmt: skip
    assert boxes["low"][0] + boxes["low"][1] == pytest.approx(boxes["high"][0], abs=0.2)
    assert boxes["high"][1] / boxes["low"][1] == pytest.approx(30 / 20, rel=0.01)


def test_bars_are_as_long_as_their_values() -> None:
    rows = [BarRow("a", [[BarPart("x", 1.0, "#000000"), BarPart("y", 3.0, "#ffffff")]], ["4"]),
            BarRow("b", [[BarPart("z", 2.0, "#000000")]], ["2"])]  # fmt: skip
    assert re.findall(r"width:([\d.]+)%", bars(rows)) == ["25.00", "75.00", "50.00"]
    assert re.findall(r"width:([\d.]+)%", bars(rows, own_scale=True)) == ["25.00", "75.00", "100.00"]


@pytest.mark.parametrize(
    "drawing",
    [
        plot(NASTY, [Line(NASTY, [0, 1], [0, 1], titles=[NASTY, ""])], Axis.named([NASTY, "b"]), Axis.even(1)),
        lanes(NASTY, [ChartLane(NASTY, {(NASTY, "red"): [(0.0, 1.0)]})], Axis.time(1.0)),
        tornado(NASTY, [(NASTY, 1.0, 2.0)], 1.5, str),
        matrix(NASTY, np.array([[0.0, 8.0], [2.0, 0.0]]), [NASTY, "b"], str),
        stacked([BarPart(NASTY, 1.0, "#ffffff")], 1.0),
        bars([BarRow(NASTY, [[BarPart(NASTY, 1.0, "#ffffff")]], [NASTY])]),
    ],
)
def test_names_are_escaped_and_drawings_have_labels(drawing: str) -> None:
    root = ET.fromstring(f"<div>{drawing}</div>")  # the drawing is well-formed, whatever a name holds
    assert not list(root.iter("b")) or all(bold.text != '"mine" & ' for bold in root.iter("b"))
    for svg in root.iter("svg"):
        assert svg.get("role") == "img" and svg.get("aria-label") == NASTY.replace("\x07", "\ufffd")


def test_text_on_a_colour_is_readable() -> None:
    assert (ink_on("#ffffff"), ink_on("#2158a8")) == ("#000", "#fff")


def test_attributes_are_written_short() -> None:
    assert element("rect", x=1.04, y=-0.01, class_="a", fill=None) == '<rect x="1" y="0" class="a"/>'
