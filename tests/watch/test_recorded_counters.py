"""Counters as they were read in a lab, given to what lays losses on links."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from syncline.watch.counter import CounterBank
from syncline.watch.link_map import LinkMap
from syncline.watch.links import KnownLink
from syncline.watch.loss.lost_packets import LostPackets
from syncline.watch.metric import Key

SLOW: dict[str, Any] = json.loads(Path(__file__).with_name("recorded").joinpath("slow_link.json").read_text())
BESIDE = ("host-01/eth0", "10.1.0.10")
"""From the host behind the slow link to the next: its packets go another way, their acknowledgements wait."""


def under_one_leaf() -> LinkMap:
    wires: dict[tuple[str, str], KnownLink] = {}
    for i in range(4):
        nic, port = f"host-0{i}/nic-0", f"leaf-00/p{i}"
        wires[f"host-0{i}/eth0", "tx"] = wires[port, "rx"] = KnownLink(f"{nic} -> leaf-00", src=nic, dst="leaf-00")
        wires[port, "tx"] = wires[f"host-0{i}/eth0", "rx"] = KnownLink(f"leaf-00 -> {nic}", src="leaf-00", dst=nic)
    return LinkMap(wires)


def readings() -> list[tuple[float, dict[Key, float]]]:
    keys = [Key(metric, device) for device in SLOW["devices"] for metric in SLOW["metrics"]]
    keys += [Key("tcp.path_retransmitted", *path) for path in SLOW["paths"]]
    return [(row[0], dict(zip(keys, row[1:], strict=True))) for row in SLOW["looks"]]


def told(looks: list[tuple[float, dict[Key, float]]]) -> dict[tuple[str, str], float]:
    """Return all that is said to be lost."""
    lost, bank, found = LostPackets(under_one_leaf()), CounterBank(), {}
    for at_s, reading in looks:
        found.update(lost.update(reading, bank.update(reading, at_s), at_s, SLOW["owners"]))
    return found


def test_packets_whose_acknowledgements_wait_behind_a_slow_link_are_not_lost() -> None:
    looks = readings()
    again = Key("tcp.path_retransmitted", *BESIDE)
    assert looks[-1][1][again] - looks[0][1][again] >= 2
    assert told(looks) == {}


def test_the_same_packets_sent_again_without_a_queue_are_lost() -> None:
    without = [
        (at_s, {key: value for key, value in reading.items() if key.metric != "net.backlog_bytes"})
        for at_s, reading in readings()
    ]
    assert told(without)
