"""The page of a packet run: what was watched is drawn, in numbers that are the run's."""

from __future__ import annotations

import re

import numpy as np
from tests.sim.packet.packet_fabrics import leaf_spine, router_ring, star

from syncline.report.page.packet import in_a_sentence, packet_drawings, watched
from syncline.report.page.page import answer_page
from syncline.sim.packet import PacketOptions, Watching, incast, messages, senders, simulate
from syncline.sim.packet.flow_table import flow_table


def test_page_shows_the_incast() -> None:
    network = star()
    down = int(network.link[np.flatnonzero(network.dst == -1)[0]])
    options = PacketOptions(transport="dctcp")
    watching = Watching(2e-6, links=(down,), flows=(0, 1, 2))
    outcome = simulate(network, [incast(network.fabric, 6, 1e6)], options, watching=watching)
    page = answer_page(["incast & more"], packet_drawings([("", outcome)]))
    assert page.startswith("<!doctype html>")
    assert "incast &amp; more" in page
    for text in ("Queue, KB", "marks from ", "leaf-00 -&gt; host-00/nic-0", "connection 2", "Deepest queues"):
        assert text in page
    assert f"{100 * outcome.counters['marks'] / outcome.counters['data_packets']:.1f} %" in page
    assert page.count("<polyline") == 2 + 1 + 2 + 3
    assert "<h2>Paused" not in page
    assert not re.search(r"https?://|<script", page)  # nothing is fetched


def test_two_runs_stand_side_by_side_over_the_same_links() -> None:
    network = star()
    load = [incast(network.fabric, 4, 2e5)]
    runs = [(name, simulate(network, load, PacketOptions(name))) for name in ("dctcp", "ndp")]
    drawings = watched(runs, [flow_table(outcome) for _, outcome in runs])
    drawn, page = {one.heading: str(one.drawn) for one in drawings}, answer_page(["two"], drawings)
    assert "<th>dctcp p99</th>" in page and 'aria-label="Completion times of dctcp, ndp"' in page
    first, second = drawn["Queue, KB"].replace("&gt;", ">").split("<section>")[1:]
    assert "<h3>dctcp</h3>" in first and "<h3>ndp</h3>" in second
    assert "leaf-00 -> host-00/nic-0" in first and "leaf-00 -> host-00/nic-0" in second
    assert {"Deepest queues dctcp", "Deepest queues ndp"} <= drawn.keys()


def test_many_connections_are_a_band_and_pauses_are_bars() -> None:
    network = leaf_spine()
    ports = np.flatnonzero((network.src >= 0) & (network.dst == 0))[:2]
    watching = Watching(1e-6, links=tuple(int(network.link[p]) for p in ports), flows=tuple(range(12)))
    options = PacketOptions(transport="roce", pause_bytes=40_000)
    outcome = simulate(network, [incast(network.fabric, 12, 1e6)], options, watching=watching)
    page = answer_page(["incast"], packet_drawings([("", outcome)]))
    assert page.count("<polygon") == 1
    assert "What all 12 connections delivered" in page
    assert "connection 3" not in page
    assert "<h2>Paused" in page
    assert "Marked packets" not in page


def test_parallel_cables_are_told_apart() -> None:
    network = leaf_spine(16, 4)
    names = [network.port_name(port) for port in range(network.num_ports)]
    twins = [port for port in range(network.num_ports) if names.count(names[port]) > 1][:2]
    assert twins, "two cables join a leaf and a spine here"
    watching = Watching(1e-6, links=tuple(int(network.link[p]) for p in twins))
    outcome = simulate(network, [incast(network.fabric, 2, 1e5)], PacketOptions(transport="ndp"), watching=watching)
    page = answer_page(["incast"], packet_drawings([("", outcome)])).replace("&gt;", ">")
    assert f"{names[twins[0]]} (1)" in page
    assert f"{names[twins[1]]} (2)" in page


def test_a_run_that_was_not_watched_has_figures_only() -> None:
    network = star()
    outcome = simulate(network, [incast(network.fabric, 2, 1e5)], PacketOptions(transport="ndp"))
    page = answer_page(["plain"], packet_drawings([("", outcome)]))
    assert "<polyline" not in page
    assert "Messages: 2; finished after" in page


def test_the_sentence_says_what_happened() -> None:
    network = star()
    ends = senders(network.fabric)
    alone = simulate(network, [messages(ends[1], ends[0], 1e6)], PacketOptions(transport="line-rate"))
    assert in_a_sentence(alone).endswith("No queue held more than a packet.")
    many = simulate(network, [incast(network.fabric, 8, 1e6)], PacketOptions(transport="line-rate"))
    wait_us = many.ports["peak_bytes"].max() / 50e3
    assert "The busiest link, leaf-00 -> host-00/nic-0, was sending 99 % of that time." in in_a_sentence(many)
    assert f"a wait of {wait_us:.4g} us" in in_a_sentence(many)
    ring = router_ring()
    around = senders(ring.fabric)
    locked = simulate(ring, [messages(around, np.roll(around, -2), 8e6)], PacketOptions("roce", pause_bytes=9000))
    assert in_a_sentence(locked).endswith("5 ports wait for each other.")
