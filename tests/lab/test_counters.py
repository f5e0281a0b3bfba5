"""Counters: what links carried, queues, drops and bursts; from real labs and from columns made by hand."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest
from tests.lab.conftest import example
from tests.lab.traffic import Transfer

from syncline.errors import LabError
from syncline.lab import Lab, LinkCounters, draft
from syncline.lab.counters import QUEUE_ROW, SAMPLE_ROW, read_rows
from syncline.lab.inside.sampler import TimedReader
from syncline.timeline import SourceKind

BURSTS = """
import socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(4):
    for _ in range(20):
        out.sendto(bytes(8000), (sys.argv[1], 9))
    time.sleep(0.25)
"""


def by_hand(rows: list[tuple[int, float, float, int]], end_s: float = 2.0) -> LinkCounters:
    blueprint = draft(example("flat"), scale=0.008)  # 8 Mb/s: 1000 bytes a millisecond
    queues = np.array([(rows[0][0], 0.1, 0, 0, 2), (rows[0][0], 0.9, 5000, 1, 7)], QUEUE_ROW)
    return LinkCounters(blueprint, np.array(rows, SAMPLE_ROW), queues, 0.0, end_s, 0.001)


def test_a_burst_that_the_average_hides() -> None:
    first = draft(example("flat")).cables[0].link
    rows = [(first, 0.500 + 0.001 * i, 0.501 + 0.001 * i, 1000) for i in range(20)]
    counters = by_hand(rows)
    (burst,) = counters.bursts(window_s=0.005)
    assert burst.link == "host-00/nic-0 -> leaf-00"
    assert burst.start_s == pytest.approx(0.5)
    assert burst.duration_s == pytest.approx(0.02)
    assert burst.utilisation == pytest.approx(1.0)
    assert burst.average == pytest.approx(0.02)
    assert counters.bursts(calm=0.01) == []
    assert counters.drops() == {burst.link: 5}
    assert counters.peak_backlog_bytes()[burst.link] == 5000
    assert counters.carried_bytes()[burst.link] == 20_000


@pytest.mark.parametrize(
    ("took_s", "readings", "moment_s"),
    [
        ([0.0001, 0.0001], 2, 0.0002),
        ([0.0001, 0.02, 0.0002], 3, 0.0203),  # it stood still while it read: read again
        ([0.0001, 0.02, 0.02, 0.02, 0.02, 0.0001], 5, 0.0801),  # a busy machine: not for ever
        ([0.01, 0.012], 2, 0.022),  # a large namespace takes this long, whoever else computes
    ],
)
def test_counters_carry_the_moment_they_were_read_at(took_s: list[float], readings: int, moment_s: float) -> None:
    clock_s = 0.0
    left_s = list(took_s)

    def read() -> dict[int, tuple[int, int]]:
        nonlocal clock_s
        clock_s += left_s.pop(0)
        return {1: (len(took_s) - len(left_s), 0)}

    reader = TimedReader(read, lambda: clock_s)
    reader()
    counters, now_s = reader()
    assert counters == {1: (readings, 0)}
    assert now_s == pytest.approx(moment_s)


def test_a_timeline_of_links() -> None:
    first = draft(example("flat")).cables[0].link
    timeline = by_hand([(first, 0.0, 1.0, 500_000), (first ^ 1, 0.5, 2.0, 1000)]).timeline()
    use = timeline.link_use()
    place = timeline.links.index("host-00/nic-0 -> leaf-00")
    assert timeline.source.kind is SourceKind.LAB
    assert "links inside hosts (NVLink, PCIe)" in timeline.source.ignores
    assert use.mean_utilisation[place] == pytest.approx(0.25)
    assert timeline.metadata["scale"] == 0.008
    assert timeline.metadata["drops"] == {"host-00/nic-0 -> leaf-00": 5}


def test_rows_that_are_not_whole_are_left() -> None:
    assert len(read_rows(bytes(SAMPLE_ROW.itemsize * 2 + 5), SAMPLE_ROW)) == 2


def test_every_byte_of_a_flow_is_counted_on_every_link_it_crosses(leaf_spine: Lab) -> None:
    with leaf_spine.counters() as recording:
        flow = Transfer(leaf_spine, "host-01", "host-06", size_bytes=1e6).result()
    counters = recording.counters
    carried = counters.carried_bytes()
    names = leaf_spine.blueprint.link_names
    for link in leaf_spine.paths().path("host-01", "host-06"):
        assert flow.size_bytes < carried[names[link]] < 1.05 * flow.size_bytes
    assert counters.timeline().link_use().peak_rate_Bps.max() > 0


def test_counters_are_read_every_millisecond(flat: Lab) -> None:
    gaps_s: list[float] = []
    while len(gaps_s) < 16 and min(gaps_s, default=1.0) >= 0.004:  # the reader, too, waits for the processor
        with flat.counters() as recording:
            Transfer(flat, "host-01", "host-02", size_bytes=1e6).result()
        gaps_s.append(float(np.median(np.diff(np.unique(recording.counters.samples["end_s"])))))
    assert min(gaps_s) < 0.004, gaps_s


def test_bursts_of_a_real_link(flat: Lab) -> None:
    with flat.counters() as recording:
        flat.execute("host-00", [sys.executable, "-c", BURSTS, flat.address("host-01")])
    bursts = [b for b in recording.counters.bursts() if b.link == "host-00/nic-0 -> leaf-00"]
    assert len(bursts) >= 3
    assert max(burst.average for burst in bursts) < 0.35


def test_full_queues_drop_and_it_is_counted(namespaces: None) -> None:
    from syncline.lab import Profile

    with Lab(example("flat"), scale=0.01, profile=Profile(queue_bytes=100_000)) as lab:
        with lab.counters() as recording:
            lab.execute("host-00", [sys.executable, "-c", BURSTS, lab.address("host-01")])
            lab.fault("leaf-00 -> host-02 rate 10%")
            traffic = lab.fault("host-03 -> host-02 traffic 100% for 2s")
            until_s = time.monotonic() + 60
            while not any(event.fault == traffic and event.what == "ended" for event in lab.events):
                assert time.monotonic() < until_s, lab.events
                time.sleep(0.05)
        assert recording.counters.drops()["leaf-00 -> host-02/nic-0"] > 10


def test_nonsense_is_refused(flat: Lab) -> None:
    with pytest.raises(LabError, match=r"every 0\.1 ms to 10 s"):
        flat.counters(interval_s=0)
    with pytest.raises(LabError, match="has not begun"):
        flat.counters().stop()
