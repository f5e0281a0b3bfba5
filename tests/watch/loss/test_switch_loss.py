"""Loss inside a fabric: what switches keep is counted one by one and names the link by which it came."""

from __future__ import annotations

import pytest

from syncline.watch.link_map import LinkMap
from syncline.watch.links import KnownLink
from syncline.watch.loss.lost_packets import MEMORY_S, PATIENCE_S, LostPackets
from syncline.watch.loss.switch_loss import SwitchLoss
from syncline.watch.metric import Key

CABLES = (
    ("host-00/eth0", "host-00/nic-0", "leaf-00/p0", "leaf-00"),
    ("host-01/eth0", "host-01/nic-0", "leaf-01/p0", "leaf-01"),
    ("host-02/eth0", "host-02/nic-0", "leaf-00/p3", "leaf-00"),
    *((f"leaf-0{i}/p{j + 1}", f"leaf-0{i}", f"spine-0{j}/p{i}", f"spine-0{j}") for i in (0, 1) for j in (0, 1)),
)
OWNER = {f"10.0.0.{i}": f"host-0{i}/eth0" for i in range(3)}
ACROSS, BESIDE = ("host-00/eth0", "10.0.0.1"), ("host-00/eth0", "10.0.0.2")
SIZE = 9000.0


def links() -> LinkMap:
    wires: dict[tuple[str, str], KnownLink] = {}
    for a, a_name, b, b_name in CABLES:
        for near, src, far, dst in ((a, a_name, b, b_name), (b, b_name, a, a_name)):
            known = KnownLink(f"{src} -> {dst}", src=src, dst=dst)
            wires[near, "tx"] = wires[far, "rx"] = known
    return LinkMap(wires)


def reading(
    packets: float, lost_at: str = "", lost: float = 0.0, *, waiting: float = 0.0, size: float = SIZE,
    resent: tuple[tuple[str, str], float] | None = None,
) -> dict[Key, float]:  # fmt: skip
    """Return counters after so many packets from host-00 over spine-01 to host-01, some kept by one switch."""
    path = ("leaf-00/p0", "leaf-00/p2", "spine-01/p0", "spine-01/p1", "leaf-01/p2", "leaf-01/p0")
    found = {
        Key(f"net.{way}_{what}", port): 0.0
        for a, _, b, _ in CABLES for port in (a, b) for way in ("rx", "tx") for what in ("packets", "bytes")
    }  # fmt: skip
    left = packets
    for came, went in zip(path[::2], path[1::2], strict=True):
        found |= {Key("net.rx_packets", came): left, Key("net.rx_bytes", came): left * size}
        left -= (lost if came.partition("/")[0] == lost_at else 0.0) + waiting
        found |= {Key("net.tx_packets", went): left, Key("net.tx_bytes", went): left * size}
        found |= {Key("net.backlog_packets", went): waiting, Key("net.backlog_bytes", went): waiting * size}
    for each in (ACROSS, BESIDE):
        found[Key("tcp.path_retransmitted", *each)] = resent[1] if resent is not None and resent[0] == each else 0.0
    return found


def test_a_lost_packet_is_told_once_when_the_next_reading_misses_it_too() -> None:
    loss = SwitchLoss(links())
    assert loss.look(reading(100.0)) == {}
    assert loss.look(reading(200.0, "spine-01", 1.0)) == {}  # it may be on its way
    assert loss.look(reading(300.0, "spine-01", 1.0)) == {"spine-01": 1.0}
    assert loss.look(reading(400.0, "spine-01", 1.0)) == {}
    loss.look(reading(500.0, "spine-01", 4.0))
    assert loss.look(reading(600.0, "spine-01", 3.0)) == {"spine-01": 2.0}


def test_what_waits_in_a_queue_what_is_small_and_what_a_switch_says_itself_is_not_lost() -> None:
    loss = SwitchLoss(links())
    looks = [reading(0.0), *[reading(100.0, waiting=9.0)] * 2, *[reading(200.0, "leaf-00", 3.0, size=66.0)] * 2]
    assert [loss.look(each) for each in looks] == [{}] * 5
    own = SwitchLoss(links())
    own.look(reading(100.0))
    assert own.look(reading(100.0, "spine-01", -5.0)) == {}
    assert own.look(reading(100.0, "spine-01", -5.0)) == {"spine-01": -5.0}
    own.look(reading(200.0, "spine-01", -4.0))
    assert own.look(reading(200.0, "spine-01", -4.0)) == {"spine-01": 1.0}


def test_without_every_port_nothing_is_said() -> None:
    assert SwitchLoss(links()).look({Key("net.rx_packets", "leaf-00/p0"): 1.0}) is None
    assert SwitchLoss(links()).look(reading(1.0) | {Key("net.up", "leaf-00/p1"): 0.0}) is None
    assert SwitchLoss(LinkMap()).look({}) is None


@pytest.mark.parametrize(
    ("switch", "place"),
    [
        ("leaf-00", ("host-00/eth0", "tx")),
        ("spine-01", ("spine-01/p0", "rx")),
        ("leaf-01", ("leaf-01/p2", "rx")),
    ],
)
def test_the_switch_that_keeps_packets_names_the_link(switch: str, place: tuple[str, str]) -> None:
    lost = LostPackets(links())
    assert lost.update(reading(100.0), {}, 0.0, OWNER) == {}
    assert lost.update(reading(200.0, switch, 2.0, resent=(ACROSS, 2.0)), {}, 0.25, OWNER) == {}
    assert lost.update(reading(300.0, switch, 2.0, resent=(ACROSS, 2.0)), {}, 0.5, OWNER) == {place: 8.0}
    assert lost.update(reading(400.0, switch, 2.0, resent=(ACROSS, 2.0)), {}, 0.75, OWNER) == {}


@pytest.mark.parametrize("path", [ACROSS, BESIDE])
def test_what_no_switch_keeps_is_lost_on_the_last_cable(path: tuple[str, str]) -> None:
    lost = LostPackets(links())
    lost.update(reading(100.0), {}, 0.0, OWNER)
    assert lost.update(reading(200.0, resent=(path, 1.0)), {}, 1.0, OWNER) == {}
    late_s = 1.0 + PATIENCE_S
    found = lost.update(reading(300.0, resent=(path, 1.0)), {}, late_s, OWNER)
    assert found == {(OWNER[path[1]], "rx"): pytest.approx(1 / PATIENCE_S)}


def test_a_lone_path_through_one_switch_that_keeps_packets_lost_them_on_its_first_cable() -> None:
    lost = LostPackets(links())
    lost.update(reading(100.0), {}, 0.0, OWNER)
    lost.update(reading(200.0, "leaf-00", 1.0, resent=(BESIDE, 1.0)), {}, 1.0, OWNER)
    found = lost.update(reading(300.0, "leaf-00", 1.0, resent=(BESIDE, 1.0)), {}, 1.0 + PATIENCE_S, OWNER)
    assert list(found) == [("host-00/eth0", "tx")]


def test_paths_that_share_an_end_are_laid_on_it_at_once() -> None:
    lost = LostPackets(links())
    other = Key("tcp.path_retransmitted", "host-02/eth0", "10.0.0.0")
    lost.update(reading(100.0) | {other: 0.0}, {}, 0.0, OWNER)
    found = lost.update(reading(200.0, resent=(BESIDE, 2.0)) | {other: 1.0}, {}, 0.5, OWNER)
    assert found == {("host-00/eth0", "tx"): 4.0, ("host-00/eth0", "rx"): 2.0}


def sent_again(more: dict[Key, float]) -> dict[tuple[str, str], float]:
    """Return what is said to be lost of a path that sends again, beside what else is read."""
    from syncline.watch.counter import Growth

    sent = {Key("net.tx_bytes", key.device): Growth(1_000_000, 1.0) for key in more}
    lost, found = LostPackets(links()), {}
    for at_s in (0.0, 1.0, 1.0 + PATIENCE_S, 1.0 + MEMORY_S):
        found.update(lost.update(reading(100.0, resent=(ACROSS, at_s)) | more, sent, at_s, OWNER))
    return found


@pytest.mark.parametrize(
    "device", ["leaf-01/p0", "leaf-00/p2", "spine-01/p1", "host-01/eth0", "leaf-00/p0", "spine-00/p0"]
)
def test_what_waits_long_there_or_back_is_sent_again_and_not_lost(device: str) -> None:
    assert sent_again({Key("net.backlog_bytes", device): 9e6}) == {}
    assert sent_again({Key("net.backlog_bytes", device): 1.0})


def test_what_cannot_leave_is_not_lost_and_a_queue_elsewhere_excuses_nothing() -> None:
    assert sent_again({Key("net.up", "host-00/eth0"): 0.0}) == {}
    assert sent_again({Key("net.backlog_bytes", "leaf-00/p3"): 9e6})


def test_what_a_queue_counted_is_not_counted_again() -> None:
    from syncline.watch.counter import Growth

    dropped = {Key("net.qdisc_drops", "leaf-01/p0"): Growth(3, 1.0)}
    lost = LostPackets(links())
    for at_s in (0.0, 1.0, 1.0 + PATIENCE_S):
        assert lost.update(reading(100.0, resent=(ACROSS, at_s)), dropped, at_s, OWNER) == {}
