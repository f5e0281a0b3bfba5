"""The page of a packet run: what was watched is drawn, in numbers that are the run's."""

from __future__ import annotations

import numpy as np
from tests.sim.packet.packet_fabrics import star

from syncline.report.packet_page import Line, chart_svg, packet_page
from syncline.sim.packet import PacketOptions, Watching, incast, simulate


def test_page_shows_the_incast() -> None:
    network = star()
    down = int(network.link[np.flatnonzero(network.dst == -1)[0]])
    options = PacketOptions(transport="dctcp")
    watching = Watching(2e-6, links=(down,), flows=(0, 1, 2))
    outcome = simulate(network, [incast(network.fabric, 6, 1e6)], options, watching=watching)
    page = packet_page("incast & more", outcome, (20_000, 20_000))
    assert page.startswith("<!doctype html>")
    assert "incast &amp; more" in page
    for text in ("Queues, KB", "marks from here", "leaf-00 -&gt; host-00/nic-0", "connection 2", "Deepest queues"):
        assert text in page
    assert f"{outcome.counters['marks']:,} marked" in page
    assert page.count("<polyline") == 2 + 1 + 1 + 3
    assert "Paused" not in page


def test_a_run_that_was_not_watched_has_figures_only() -> None:
    network = star()
    page = packet_page("plain", simulate(network, [incast(network.fabric, 2, 1e5)], PacketOptions(transport="ndp")))
    assert "<polyline" not in page
    assert "of 2 messages" in page


def test_chart_puts_the_peak_inside() -> None:
    svg = chart_svg(
        np.array([0.0, 1.0, 2.0]), [Line("a", np.array([0.0, 7.3, 1.0])), Line("rule", np.full(3, 2.0), True)]
    )
    assert ">8</text>" in svg
    assert "stroke-dasharray" in svg
    points = svg.split('points="')[1].split('"')[0].split()
    heights = [float(point.split(",")[1]) for point in points]
    assert heights[1] == min(heights) > 10
