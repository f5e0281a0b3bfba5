"""Counters: loss, cable errors, flaps, discards and congestion, judged against traffic, or by growth within a second.

Counters run since boot. A count alone says little, so each rule asks either for growth between two readings a second
apart, or for more than a share of the packets that were carried.
"""

from __future__ import annotations

from collections.abc import Iterator

from syncline.audit.expect import Expect
from syncline.audit.measure import MIN_AGAIN, MIN_SEGMENTS, tcp_segments
from syncline.audit.rule import Sight, rule
from syncline.finding import Action, Severity
from syncline.host.host import Host
from syncline.host.interface import Interface
from syncline.host.rdma import RdmaPort

LOSS_SHARE = 1e-6
"""Alert threshold of section 4 of our operations notes: out_of_sequence per packet."""
CNP_SHARE = 1e-2
WAIT_SHARE = 0.1
CABLE_ERRORS = 100
FLAPS = 5
"""Azure's health checks count five lost carriers a day as flapping."""
DROP_SHARE = 1e-3
ERROR_SHARE = 1e-7
RETRANSMIT_SHARE = 1e-3


def growth(host: Host, port: RdmaPort, kind: str, names: tuple[str, ...]) -> dict[str, int]:
    """Return which of the counters grew between the two readings, and by how much."""
    first = port.counters if kind == "counters" else port.hardware
    found = {}
    for name in names:
        if name in first:
            later = host.root.number_later(f"{port.folder}/{kind}/{name}")
            if later is not None and later > first[name]:
                found[name] = later - first[name]
    return found


def judged(host: Host, port: RdmaPort, kind: str, names: tuple[str, ...], share: float) -> Iterator[Sight]:
    """Report counters that grow now, or exceed a share of the port's packets."""
    first = port.counters if kind == "counters" else port.hardware
    grew = growth(host, port, kind, names)
    heavy = {n: first[n] for n in names if first.get(n, 0) > 10 and first[n] > share * max(port.num_packets, 1)}
    if grew:
        shown = ", ".join(f"{name} +{count:,}" for name, count in grew.items())
        yield Sight(
            port.name, f"{shown} within a second", "no growth", tuple(f"{port.folder}/{kind}/{n}" for n in grew)
        )
    elif heavy:
        shown = ", ".join(f"{name} {count:,}" for name, count in heavy.items())
        yield Sight(
            port.name,
            f"{shown} in {port.num_packets:,} packets",
            f"below {share:g} of the packets",
            tuple(f"{port.folder}/{kind}/{n}" for n in heavy),
        )


@rule(
    "rdma.loss",
    "RDMA packets arrive, in order, and are acknowledged in time",
    needs=("rdma",),
    severity=Severity.CRITICAL,
    action=Action.INSPECT,
    meaning="Packets are lost or reordered on the way: each costs a timeout or a go-back.",
    fix="RoCE: check PFC and ECN on every hop. InfiniBand: check cables. Then switch counters of the same path.",
    reference="nccl #378 #306; NVIDIA hardware counters",
)
def loss(host: Host, expect: Expect) -> Iterator[Sight]:
    names = (
        "out_of_sequence",
        "packet_seq_err",
        "local_ack_timeout_err",
        "roce_adp_retrans",
        "implied_nak_seq_err",
        "retrans_timeout_events",
    )
    for port in host.fabric_ports:
        yield from judged(host, port, "hw_counters", names, LOSS_SHARE)


@rule(
    "rdma.rnr",
    "receivers are ready",
    needs=("rdma",),
    action=Action.INSPECT,
    meaning="The receiving process had no buffer posted: a slow or stuck rank, or too small queues.",
    fix="Look for a slow rank on this host first (CPU, GPU clock); then raise queue depth.",
    reference="verbs status 13, RNR_RETRY",
)
def rnr(host: Host, expect: Expect) -> Iterator[Sight]:
    for port in host.fabric_ports:
        yield from judged(host, port, "hw_counters", ("rnr_nak_retry_err", "out_of_buffer"), LOSS_SHARE)


@rule(
    "rdma.congestion",
    "few congestion notifications",
    needs=("roce",),
    action=Action.ESCALATE,
    meaning="The fabric marks more than 1 % of packets: ECMP collisions, incast or oversubscription.",
    fix="Look at ECMP balance (adaptive routing, more QPs per connection) and at what else uses the fabric.",
    reference="DCQCN; Meta, RDMA over Ethernet at scale (SIGCOMM 2024)",
)
def congestion(host: Host, expect: Expect) -> Iterator[Sight]:
    for port in host.fabric_ports:
        handled = port.hardware.get("rp_cnp_handled", 0)
        if port.is_roce and handled > 1000 and handled > CNP_SHARE * max(port.num_packets, 1):
            yield Sight(
                port.name,
                f"rp_cnp_handled {handled:,} in {port.num_packets:,} packets",
                f"below {CNP_SHARE:.0%}",
                (f"{port.folder}/hw_counters/rp_cnp_handled",),
            )


@rule(
    "rdma.credits",
    "InfiniBand ports seldom wait for credits",
    needs=("infiniband",),
    action=Action.ESCALATE,
    meaning="The port has data to send and the other end no room: congestion there, or a slow receiver behind it.",
    fix="Follow the waits from switch port to switch port (perfquery -x); adaptive routing; find the slow receiver.",
    reference="InfiniBand PortXmitWait",
)
def credits(host: Host, expect: Expect) -> Iterator[Sight]:
    for port in host.fabric_ports:
        waited, words = port.counters.get("port_xmit_wait", 0), port.counters.get("port_xmit_data", 0)
        if not port.is_roce and waited > WAIT_SHARE * max(words, 1) and waited > 1000:
            yield Sight(
                port.name,
                f"port_xmit_wait {waited:,} for port_xmit_data {words:,}",
                f"below {WAIT_SHARE:.0%} of it",
                (f"{port.folder}/counters/port_xmit_wait",),
                confidence=0.5,  # a tick is as long as the card's maker likes
            )


@rule(
    "rdma.cable",
    "no bit errors on the cable",
    needs=("rdma",),
    action=Action.INSPECT,
    meaning="A dirty optic or a bad cable: error correction gives up, packets are sent again, the link may drop.",
    fix="Clean or swap the optic, then the cable, then the port; compare the counter at the other end.",
    reference="InfiniBand port counters; perfquery(8)",
)
def cable(host: Host, expect: Expect) -> Iterator[Sight]:
    names = ("symbol_error", "port_rcv_errors", "link_error_recovery", "local_link_integrity_errors")
    for port in host.fabric_ports:
        grew = growth(host, port, "counters", names)
        many = {name: port.counters[name] for name in names if port.counters.get(name, 0) >= CABLE_ERRORS}
        if grew or many:
            shown = ", ".join(f"{n} +{c:,} within a second" for n, c in grew.items()) or ", ".join(
                f"{n} {c:,}" for n, c in many.items()
            )
            yield Sight(
                port.name,
                shown,
                f"below {CABLE_ERRORS}, no growth",
                tuple(f"{port.folder}/counters/{n}" for n in grew or many),
            )


@rule(
    "rdma.flaps",
    "links stay up",
    needs=("rdma",),
    action=Action.INSPECT,
    meaning="Each flap stalls every collective through the port for seconds, or ends the job.",
    fix="Swap optic and cable; set NCCL_IB_TIMEOUT=22 to survive short flaps.",
    reference="azurehpc-health-checks check_ib_link_flapping (5 in a day)",
)
def flaps(host: Host, expect: Expect) -> Iterator[Sight]:
    for port in host.fabric_ports:
        downs = port.counters.get("link_downed", 0)
        if downs >= FLAPS:
            yield Sight(port.name, f"link_downed {downs}", f"below {FLAPS}", (f"{port.folder}/counters/link_downed",))


@rule(
    "rdma.discards",
    "the port discards nothing it should send",
    needs=("rdma",),
    action=Action.ESCALATE,
    meaning="The port is down or congested for longer than packets live.",
    fix="Look for congestion and flow control (credits, PFC storms) at the switch port.",
    reference="InfiniBand PortXmitDiscards",
)
def discards(host: Host, expect: Expect) -> Iterator[Sight]:
    for port in host.fabric_ports:
        yield from judged(host, port, "counters", ("port_xmit_discards",), LOSS_SHARE)


def watched(host: Host) -> tuple[Interface, ...]:
    """Return the interfaces whose counters matter: the fabric's, and those of sockets."""
    return tuple({i.name: i for i in (*host.fabric_interfaces, *host.socket_interfaces)}.values())


@rule(
    "net.errors",
    "interfaces receive and send without errors",
    needs=("interface",),
    action=Action.INSPECT,
    meaning="Frames arrive damaged: cable, optic, or a duplex mismatch.",
    fix="Swap optic and cable; look at ethtool -S for which error.",
    reference="kernel ABI sysfs-class-net-statistics",
)
def errors(host: Host, expect: Expect) -> Iterator[Sight]:
    for interface in watched(host):
        for name, packets in (("rx_errors", "rx_packets"), ("tx_errors", "tx_packets")):
            count, carried = interface.counters.get(name, 0), interface.counters.get(packets, 0)
            if count > 10 and count > ERROR_SHARE * max(carried, 1):
                yield Sight(
                    interface.name,
                    f"{name} {count:,} in {carried:,} packets",
                    f"below {ERROR_SHARE:g}",
                    (f"{interface.folder}/statistics/{name}",),
                )


@rule(
    "net.drops",
    "interfaces drop few packets",
    needs=("interface",),
    meaning="Rings or queues overflow: TCP slows down, UDP loses.",
    fix="Larger rings (ethtool -G), interrupts spread over cores of the card's NUMA node, flow control.",
    reference="kernel ABI sysfs-class-net-statistics",
)
def drops(host: Host, expect: Expect) -> Iterator[Sight]:
    for interface in watched(host):
        for name, packets in (
            ("rx_dropped", "rx_packets"),
            ("tx_dropped", "tx_packets"),
            ("rx_missed_errors", "rx_packets"),
        ):
            count, carried = interface.counters.get(name, 0), interface.counters.get(packets, 0)
            if count > 100 and count > DROP_SHARE * max(carried, 1):
                yield Sight(
                    interface.name,
                    f"{name} {count:,} in {carried:,} packets",
                    f"below {DROP_SHARE:g}",
                    (f"{interface.folder}/statistics/{name}",),
                )


@rule(
    "net.flaps",
    "the carrier of interfaces stays up",
    needs=("interface",),
    action=Action.INSPECT,
    meaning="Each flap stalls the job for seconds; the routing behind it for longer.",
    fix="Swap optic and cable; look at the switch port's log.",
    reference="kernel ABI sysfs-class-net carrier_changes",
)
def carrier_flaps(host: Host, expect: Expect) -> Iterator[Sight]:
    for interface in watched(host):
        if interface.is_physical and interface.num_carrier_changes >= 2 * FLAPS + 2:
            yield Sight(
                interface.name,
                f"{interface.num_carrier_changes} carrier changes since boot",
                f"below {2 * FLAPS + 2}",
                (f"{interface.folder}/carrier_changes",),
            )


@rule(
    "net.tcp.retransmits",
    "TCP sends little twice",
    needs=("interface",),
    action=Action.INSPECT,
    meaning="Packets of this host's connections are lost on the way: a lossy link or an overflowing queue.",
    fix="Find the lossy hop: interface and switch counters on the path; `ss -ti` names the connections.",
    reference="RFC 4022 tcpRetransSegs",
)
def retransmits(host: Host, expect: Expect) -> Iterator[Sight]:
    segments = tcp_segments(host)
    if segments is None:
        return
    sent, again = segments
    if sent >= MIN_SEGMENTS and again >= MIN_AGAIN and again > RETRANSMIT_SHARE * sent:
        severity = Severity.CRITICAL if again > 10 * RETRANSMIT_SHARE * sent else Severity.WARNING
        yield Sight(
            "TCP",
            f"{again / sent:.2%} of {sent:,} segments sent again",
            f"below {RETRANSMIT_SHARE:.1%}",
            ("proc/net/snmp",),
            severity=severity,
        )
