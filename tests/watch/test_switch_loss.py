"""Loss inside a fabric: the switch that keeps packets names the link by which they came."""

from __future__ import annotations

import pytest

from syncline.watch.link_map import KnownLink, LinkMap
from syncline.watch.metric import Key
from syncline.watch.switch_loss import SLOW_S, WINDOW_S, SwitchLoss

CABLES = (
    ("host-00/eth0", "host-00/nic-0", "leaf-00/p0", "leaf-00"),
    ("host-01/eth0", "host-01/nic-0", "leaf-01/p0", "leaf-01"),
    *((f"leaf-0{i}/p{j + 1}", f"leaf-0{i}", f"spine-0{j}/p{i}", f"spine-0{j}") for i in (0, 1) for j in (0, 1)),
)
OWNER = {"10.0.0.0": "host-00/eth0", "10.0.0.1": "host-01/eth0"}
PATH = ("host-00/eth0", "10.0.0.1")
LOSSY = {PATH: 20.0}


def links() -> LinkMap:
    wires: dict[tuple[str, str], KnownLink] = {}
    for a, a_name, b, b_name in CABLES:
        for near, src, far, dst in ((a, a_name, b, b_name), (b, b_name, a, a_name)):
            known = KnownLink(f"{src} -> {dst}", src=src, dst=dst)
            wires[near, "tx"] = wires[far, "rx"] = known
    return LinkMap(wires)


def reading(packets: float, lost_at: str = "", share: float = 0.0, backlog_bytes: float = 0.0) -> dict[Key, float]:
    """Return counters after so many packets from host-00 over spine-01 to host-01, some kept by one switch."""
    path = ("leaf-00/p0", "leaf-00/p2", "spine-01/p0", "spine-01/p1", "leaf-01/p2", "leaf-01/p0")
    found = {Key(f"net.{way}_packets", port): 0.0 for a, _, b, _ in CABLES for port in (a, b) for way in ("rx", "tx")}
    left = packets
    for came, went in zip(path[::2], path[1::2], strict=True):
        found[Key("net.rx_packets", came)] = left
        left *= 1 - (share if came.partition("/")[0] == lost_at else 0.0)
        found[Key("net.tx_packets", went)] = left - backlog_bytes / 1500
        found[Key("net.backlog_bytes", went)] = backlog_bytes
        left -= backlog_bytes / 1500
    return found


@pytest.mark.parametrize(
    ("switch", "port"),
    [
        ("leaf-00", ("host-00/eth0", "tx")),
        ("spine-01", ("spine-01/p0", "rx")),
        ("leaf-01", ("leaf-01/p2", "rx")),
    ],
)
def test_the_switch_that_keeps_packets_names_the_link(switch: str, port: tuple[str, str]) -> None:
    loss = SwitchLoss(links())
    assert loss.look(reading(0.0), 0.0) is None  # nothing to compare with yet
    kept = loss.look(reading(10_000.0, switch, 0.01), WINDOW_S)
    assert kept is not None
    assert kept == pytest.approx({switch: 100 / WINDOW_S})
    rates = {("net.rx_bytes", "leaf-01/p2"): 1e6, ("net.rx_bytes", "leaf-01/p1"): 1e3}
    assert loss.place(LOSSY, OWNER, kept, rates) == {PATH: port}


def test_packets_that_wait_in_a_queue_are_not_lost() -> None:
    loss = SwitchLoss(links())
    loss.look(reading(0.0), 0.0)
    assert loss.look(reading(10_000.0, backlog_bytes=150_000.0), WINDOW_S) == {}


def test_a_switch_that_passes_everything_on_leaves_the_last_cable() -> None:
    loss = SwitchLoss(links())
    assert loss.place(LOSSY, OWNER, {"spine-00": 9.0}, {}) == {PATH: ("spine-00/p0", "rx")}
    assert loss.place(LOSSY, OWNER, {}, {}) == {PATH: ("host-01/eth0", "rx")}
    assert loss.place({("host-00/eth0", "192.0.2.9"): 5.0}, OWNER, {}, {}) == {}


def test_a_loss_below_what_a_switch_shows_is_laid_nowhere_until_it_shows() -> None:
    loss = SwitchLoss(links())
    loss.look(reading(0.0), 0.0)
    kept = loss.look(reading(1_500.0, "spine-01", 0.001), WINDOW_S)
    assert kept == {}
    assert loss.place({PATH: 1.0}, OWNER, kept, {}) == {PATH: None}
    assert loss.place(LOSSY, OWNER, kept, {}) == {PATH: ("host-01/eth0", "rx")}
    late = loss.look(reading(1_000.0 * SLOW_S, "spine-01", 0.001), SLOW_S)
    assert late is not None
    assert late == pytest.approx({"spine-01": 1.0})
    assert loss.place({PATH: 1.0}, OWNER, late, {}) == {PATH: ("spine-01/p0", "rx")}


def test_paths_that_share_an_end_are_left_to_it() -> None:
    lossy = {PATH: 20.0, ("host-01/eth0", "10.0.0.0"): 15.0}
    assert SwitchLoss(links()).place(lossy, OWNER, {"leaf-00": 9.0}, {}) == {}


def test_without_every_switch_nothing_is_said() -> None:
    loss = SwitchLoss(links())
    assert loss.look({Key("net.rx_packets", "leaf-00/p0"): 1.0}, 0.0) is None
    assert SwitchLoss(LinkMap()).look({}, 0.0) is None
