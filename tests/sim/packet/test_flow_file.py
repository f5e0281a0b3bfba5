"""Flows in from files, a row a flow out."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from tests.sim.packet.packet_fabrics import leaf_spine, rails, star

from syncline.errors import SimulationError
from syncline.sim.packet import PacketOptions, background, incast, messages, senders, simulate
from syncline.sim.packet.flow_file import MOST_CLASSES, parse_flows, read_flows
from syncline.sim.packet.flow_table import flow_table
from syncline.sim.packet.traffic import WEB_SEARCH

CM = """Nodes 128
Connections 3
Triggers 1
2->4 id 3 trigger 7 size 1000
1->0 id 1 start 0 size 2000000 send_done_trigger 7
2->0 id 2 start 5000000 size 2000000
trigger id 7 oneshot
"""
BARRIER = """Nodes 128
Connections 4
1->0 id 1 start 0 size 2000000 send_done_trigger 5
2->4 id 2 start 5000000 size 30000 recv_done_trigger 5
3->5 id 3 start 0 size 10000 send_done_trigger 5
4->6 id 4 trigger 5 size 1000
"""
SIMAI = """0
0 0 1 262144 0 0 2 RING 0 3 64 1 100 1 3 0 1 5 0 0 3 0
5 1 2 262144 0 1 2 RING 0 3 64 102 100 1 0 2 0 3 0 0 0 3 0
3 3 0 1000 0 0 2 RING 0 3 64 300 100 1 2 0 1 5 0 0 3 0 0
"""
"""In the form of flow_output.txt of aliyun/SimAI, whose first line says 0 too."""
FLOW_TXT = "2\n0 1 3 100 200000 2.000000000\n5 2 3 100 1000 2.5\n"


def test_formats_are_told_by_content() -> None:
    rows = parse_flows(CM)
    assert [(row.source, row.destination, row.size_bytes, row.after) for row in rows] == [
        ("1", "0", 2_000_000, ()), ("2", "0", 2_000_000, ()), ("2", "4", 1000, (0,))]  # fmt: skip
    assert rows[1].start_s == pytest.approx(5e-6)
    assert [(row.source, row.destination, row.size_bytes, row.start_s) for row in parse_flows(FLOW_TXT)] == [
        ("0", "1", 200_000, 2.0), ("5", "2", 1000, 2.5)]  # fmt: skip
    ours = parse_flows("start,source,destination,bytes,class\n0,0,1,2MB,\n5us,3,host-01/nic-0,64KiB,0\n")
    assert [(row.start_s, row.size_bytes) for row in ours] == [(0.0, 2e6), (5e-6, 65536)]


@pytest.mark.parametrize(
    ("text", "word"),
    [("2\n0 1 3 100 200000 2.0\n", "declares 2 flows"), ("hello\n", "neither CSV"),
     ("start,source,bytes\n0,0,1\n", "no column destination"), ("Nodes 4\nConnections 1\n0-1 size 3\n", "line 3"),
     ("Nodes 4\nConnections 1\n0->1 id 1 trigger 3 size 3\n", "no connection fires trigger 3"),
     ("start,source,destination,bytes\nsoon,0,1,5\n", "flow 1 cannot be read"),
     ("start,source,destination,bytes,class\n0,0,1,5,7\n", "class 7 is not one of 0 to 6"),
     ("start,source,destination,bytes\n0,2,1\n", "it has 3 columns, and the header 4"),
     ("start,source,destination,bytes\n0,2,1,5,0\n", "it has 5 columns, and the header 4"),
     ("Nodes 4\nConnections many\n0->1 start 0 size 5\n", "line 2 reads"),
     (f"{BARRIER}trigger id 5 barrier count 4\n", "trigger 5 counts 4, but 3 fire it"),
     (f"{BARRIER}trigger id 5 oneshot\n", "trigger 5 counts 1, but 3 fire it"),
     (SIMAI.replace(" 2 0 3 0 ", " 2 0 4 0 "), "waits for flow 4, which is not there"),
     (SIMAI.replace("3 0 0\n", "3 0 700\n"), "line 4 sets its own start or delay"),
     (SIMAI.replace("5 0 0 3 0\n5", "5 0 0 3 0\nx"), "line 3 reads"),
     (f"{BARRIER}trigger id 5 multishot\n", "line 7 reads"),
     ("Nodes 4\nConnections 2\n0->1 id 1 trigger 1 size 9 send_done_trigger 2\n"
      "1->2 id 2 trigger 2 size 9 send_done_trigger 1\n", "in a ring"),
     ("Nodes 432\nConnections 1\n368->0 start 0.000000 size 0\n", "line 3: the flow has no size")],
)  # fmt: skip
def test_what_cannot_be_read_is_said_with_its_place(text: str, word: str) -> None:
    with pytest.raises(SimulationError, match=word):
        parse_flows(text, "f")


def test_files_as_their_authors_ship_them() -> None:
    """HPCC's flow.txt counts 2 flows, lists more and ends in prose; htsim's older matrices have decimals and no ids."""
    shipped = "2\n2 1 3 100 200000000 2\n3 1 3 100 200000000 2\n4 1 3 100 150000000 2\n\nFirst line: # of flows\n"
    assert [row.source for row in parse_flows(shipped)] == ["2", "3"]
    (row,) = parse_flows("Nodes 432\nConnections 1\n368->0 start 1000000.000000 size 4096\n")
    assert row.start_s == pytest.approx(1e-6)
    assert row.size_bytes == 4096


def test_flows_of_a_collective_as_simai_lists_them_wait_for_their_parents() -> None:
    rows = [(row.source, row.destination, row.size_bytes, row.after) for row in parse_flows(SIMAI)]
    assert rows == [("0", "1", 262144, ()), ("3", "0", 1000, ()), ("1", "2", 262144, (0, 1))]


def test_ends_of_simai_are_gpus(tmp_path: Path) -> None:
    """Between GPUs of one host a flow takes NVLink, 450 GB/s, and not the PCIe of their NICs, 55 GB/s."""
    file = tmp_path / "flow_output.txt"
    file.write_text(SIMAI)
    traffic = read_flows(file, rails().fabric)
    assert traffic.src.tolist() == rails().fabric.gpus[[0, 3, 1]].tolist()
    table = flow_table(simulate(rails(), [traffic], PacketOptions("roce")))
    assert 262_144 / 450e9 < table.time_s[0] < 262_144 / 100e9
    with pytest.raises(SimulationError, match="names GPU 3, and small has 2"):
        read_flows(file, leaf_spine(2, 1).fabric)


def test_an_end_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "f.csv"
    file.write_text("start,source,destination,bytes\n0,0,99,5\n")
    with pytest.raises(SimulationError, match='flow 1 names "99"'):
        read_flows(file, star().fabric)


def test_a_flow_that_waits_starts_when_the_other_has_arrived(tmp_path: Path) -> None:
    file = tmp_path / "f.cm"
    file.write_text(CM)
    traffic = read_flows(file, leaf_spine().fabric)
    outcome = simulate(leaf_spine(), [traffic], PacketOptions("roce"))
    table = flow_table(outcome)
    assert len(table) == 3 and table.num_missing == 0
    assert table.start_s[2] == pytest.approx(table.end_s[0])


def test_flows_behind_a_barrier_start_when_the_last_of_the_others_has_arrived(tmp_path: Path) -> None:
    file = tmp_path / "f.cm"
    file.write_text(f"{BARRIER}6->7 id 5 trigger 5 size 1000\ntrigger id 5 count 3 barrier\n".replace("ns 4", "ns 5"))
    table = flow_table(simulate(leaf_spine(), [read_flows(file, leaf_spine().fabric)], PacketOptions("roce")))
    ends = table.end_s[:3]
    assert len(np.unique(ends)) == 3
    assert table.start_s[3:] == pytest.approx([ends.max()] * 2)


def test_a_flow_alone_has_a_slowdown_of_one(tmp_path: Path) -> None:
    network = leaf_spine()
    ends = senders(network.fabric)
    load = messages(ends[0], ends[8], [1, 1000, 4096, 5000, 1_000_000], np.arange(5) * 1e-3)
    table = flow_table(simulate(network, [load], PacketOptions("roce")))
    assert table.slowdown == pytest.approx(1.0, abs=1e-4)
    table.write(tmp_path / "t.csv")
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines()))
    assert [int(row["bytes"]) for row in rows] == [1, 1000, 4096, 5000, 1_000_000]
    assert len(rows[0]["path"].split(" ")) >= 4
    pq = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow")
    table.write(tmp_path / "t.parquet")
    assert pq.read_table(tmp_path / "t.parquet").column("slowdown").to_numpy() == pytest.approx(table.slowdown)


def test_slowdowns_by_size_and_the_distribution() -> None:
    network = leaf_spine()
    load = background(network.fabric, 0.5, 300e-6, sizes=WEB_SEARCH, seed=1)
    table = flow_table(simulate(network, [load], PacketOptions("hpcc")))
    rows = table.by_size()
    assert sum(row.count for row in rows[:-1]) == rows[-1].count == len(load)
    assert all(0.9999 < row.p50 <= row.p95 <= row.p99 <= row.p999 for row in rows)
    time, share = table.cdf()
    assert (np.diff(time) >= 0).all() and share[-1] == 1
    assert time[-1] == pytest.approx(table.time_s.max())


def test_incast_slows_down_by_the_number_of_senders() -> None:
    network = star()
    table = flow_table(simulate(network, [incast(network.fabric, 8, 1e6)], PacketOptions("roce")))
    assert table.slowdown.max() == pytest.approx(8, rel=0.05)


def test_flows_inside_a_host_have_a_slowdown_too() -> None:
    network = rails()
    ends = senders(network.fabric)
    alone = flow_table(simulate(network, [messages(ends[2], ends[1], 20_000_000)], PacketOptions("roce")))
    both = flow_table(simulate(network, [messages(ends[2:4], ends[1], 20_000_000)], PacketOptions("roce")))
    assert (alone.num_inside, both.num_inside) == (1, 2)
    assert alone.slowdown == pytest.approx(1.0, abs=1e-4)
    assert both.slowdown.max() == pytest.approx(2.0, rel=0.01)


def test_a_file_of_comments_has_no_flows() -> None:
    assert parse_flows("") == parse_flows("# nothing\n\n  \n") == []


def test_a_class_beyond_the_last_is_refused_with_its_flow() -> None:
    rows = "start,source,destination,bytes,class\n0,0,1,2MB,{}\n"
    assert parse_flows(rows.format(MOST_CLASSES))[0].traffic_class == MOST_CLASSES
    for beyond in (-1, MOST_CLASSES + 1):
        with pytest.raises(SimulationError, match=f"flow 1 cannot be read: class {beyond} is not one of 0 to"):
            parse_flows(rows.format(beyond))
