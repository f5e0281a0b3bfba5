"""Counters: loss, cable errors, flaps, discards and congestion, judged against traffic, or by growth within a second.

Counters run since boot. A count alone says little, so each rule asks either for growth between two readings a second
apart, or for more than a share of the packets that were carried.
"""

from __future__ import annotations

from collections.abc import Iterator

from syncline.auditing.expect import Expect
from syncline.auditing.measure import MIN_AGAIN, MIN_SEGMENTS, tcp_segments
from syncline.auditing.rule import AuditRule, Check, Sight
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
_LOSS = (
    "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "roce_adp_retrans", "implied_nak_seq_err",
    "retrans_timeout_events",
)  # fmt: skip
_CABLE = ("symbol_error", "port_rcv_errors", "link_error_recovery", "local_link_integrity_errors")


def growth(host: Host, port: RdmaPort, kind: str, names: tuple[str, ...]) -> dict[str, int]:
    """Return which of the counters grew between the two readings, and by how much."""
    first = port.counters if kind == "counters" else port.hardware
    later = {name: host.root.number_later(f"{port.folder}/{kind}/{name}") for name in names if name in first}
    return {name: value - first[name] for name, value in later.items() if value is not None and value > first[name]}


def per_packet(kind: str, *names: str) -> Check:
    """Return a check of fabric ports: counters that grow now, or exceed a share of the port's packets."""

    def check(host: Host, expect: Expect) -> Iterator[Sight]:
        for port in host.fabric_ports:
            first = port.counters if kind == "counters" else port.hardware
            packets = port.num_packets
            heavy = {n: first[n] for n in names if first.get(n, 0) > 10 and first[n] > LOSS_SHARE * max(packets, 1)}
            if grew := growth(host, port, kind, names):
                shown = ", ".join(f"{name} +{count:,}" for name, count in grew.items())
                yield Sight(port.name, f"{shown} within a second", "no growth", _files(port, kind, grew))
            elif heavy:
                shown = ", ".join(f"{name} {count:,}" for name, count in heavy.items())
                limit = f"below {LOSS_SHARE:g} of the packets"
                yield Sight(port.name, f"{shown} in {packets:,} packets", limit, _files(port, kind, heavy))

    return check


def _files(port: RdmaPort, kind: str, names: dict[str, int]) -> tuple[str, ...]:
    return tuple(f"{port.folder}/{kind}/{name}" for name in names)


def congestion(host: Host, expect: Expect) -> Iterator[Sight]:
    for port in host.fabric_ports:
        handled, evidence = port.hardware.get("rp_cnp_handled", 0), f"{port.folder}/hw_counters/rp_cnp_handled"
        if port.is_roce and handled > 1000 and handled > CNP_SHARE * max(port.num_packets, 1):
            observed = f"rp_cnp_handled {handled:,} in {port.num_packets:,} packets"
            yield Sight(port.name, observed, f"below {CNP_SHARE:.0%}", (evidence,))


def credits(host: Host, expect: Expect) -> Iterator[Sight]:
    for port in host.fabric_ports:
        waited, words = port.counters.get("port_xmit_wait", 0), port.counters.get("port_xmit_data", 0)
        if not port.is_roce and waited > WAIT_SHARE * max(words, 1) and waited > 1000:
            observed, limit = f"port_xmit_wait {waited:,} for port_xmit_data {words:,}", f"below {WAIT_SHARE:.0%} of it"
            evidence = (f"{port.folder}/counters/port_xmit_wait",)
            yield Sight(port.name, observed, limit, evidence, confidence=0.5)  # each maker chooses the length of a tick


def cable(host: Host, expect: Expect) -> Iterator[Sight]:
    for port in host.fabric_ports:
        grew = growth(host, port, "counters", _CABLE)
        many = {name: port.counters[name] for name in _CABLE if port.counters.get(name, 0) >= CABLE_ERRORS}
        if grew or many:
            shown = [f"{n} +{c:,} within a second" for n, c in grew.items()] or [f"{n} {c:,}" for n, c in many.items()]
            evidence = _files(port, "counters", grew or many)
            yield Sight(port.name, ", ".join(shown), f"below {CABLE_ERRORS}, no growth", evidence)


def flaps(host: Host, expect: Expect) -> Iterator[Sight]:
    for port in host.fabric_ports:
        downs = port.counters.get("link_downed", 0)
        if downs >= FLAPS:
            yield Sight(port.name, f"link_downed {downs}", f"below {FLAPS}", (f"{port.folder}/counters/link_downed",))


def watched(host: Host) -> tuple[Interface, ...]:
    """Return the interfaces whose counters matter: the fabric's, and those of sockets."""
    return tuple({i.name: i for i in (*host.fabric_interfaces, *host.socket_interfaces)}.values())


def share_of_packets(least: int, share: float, *names: str) -> Check:
    """Return a check of interfaces: counters above a least count and above a share of the packets of their side."""

    def check(host: Host, expect: Expect) -> Iterator[Sight]:
        for interface in watched(host):
            for name in names:
                count, carried = (interface.counters.get(n, 0) for n in (name, f"{name[:2]}_packets"))
                if count > least and count > share * max(carried, 1):
                    observed, evidence = (
                        f"{name} {count:,} in {carried:,} packets",
                        f"{interface.folder}/statistics/{name}",
                    )
                    yield Sight(interface.name, observed, f"below {share:g}", (evidence,))

    return check


def carrier_flaps(host: Host, expect: Expect) -> Iterator[Sight]:
    limit = 2 * FLAPS + 2
    for interface in watched(host):
        if interface.is_physical and interface.num_carrier_changes >= limit:
            observed = f"{interface.num_carrier_changes} carrier changes since boot"
            yield Sight(interface.name, observed, f"below {limit}", (f"{interface.folder}/carrier_changes",))


def retransmits(host: Host, expect: Expect) -> Iterator[Sight]:
    sent, again = tcp_segments(host) or (0, 0)
    if sent >= MIN_SEGMENTS and again >= MIN_AGAIN and again > RETRANSMIT_SHARE * sent:
        severity = Severity.CRITICAL if again > 10 * RETRANSMIT_SHARE * sent else Severity.WARNING
        observed, limit = f"{again / sent:.2%} of {sent:,} segments sent again", f"below {RETRANSMIT_SHARE:.1%}"
        yield Sight("TCP", observed, limit, ("proc/net/snmp",), severity)


RULES = (
    AuditRule("rdma.loss", "RDMA packets arrive, in order, and are acknowledged in time",
        per_packet("hw_counters", *_LOSS),
        "Packets are lost or reordered on the way: each costs a timeout or a go-back.",
        "RoCE: check PFC and ECN on every hop. InfiniBand: check cables. Then switch counters of the same path.",
        "nccl #378 #306; NVIDIA hardware counters", needs="rdma", severity=Severity.CRITICAL, action=Action.INSPECT),
    AuditRule("rdma.rnr", "receivers are ready",
        per_packet("hw_counters", "rnr_nak_retry_err", "out_of_buffer"),
        "The receiving process had no buffer posted: a slow or stuck rank, or too small queues.",
        "Look for a slow rank on this host first (CPU, GPU clock); then raise queue depth.",
        "verbs status 13, RNR_RETRY", needs="rdma", action=Action.INSPECT),
    AuditRule("rdma.congestion", "few congestion notifications", congestion,
        "The fabric marks more than 1 % of packets: ECMP collisions, incast or oversubscription.",
        "Look at ECMP balance (adaptive routing, more QPs per connection) and at what else uses the fabric.",
        "DCQCN; Meta, RDMA over Ethernet at scale (SIGCOMM 2024)", needs="roce", action=Action.ESCALATE),
    AuditRule("rdma.credits", "InfiniBand ports seldom wait for credits", credits,
        "The port has data to send and the other end no room: congestion there, or a slow receiver behind it.",
        "Follow the waits from switch port to switch port (perfquery -x); adaptive routing; find the slow receiver.",
        "InfiniBand PortXmitWait", needs="infiniband", action=Action.ESCALATE),
    AuditRule("rdma.cable", "no bit errors on the cable", cable,
        "A dirty optic or a bad cable: error correction gives up, packets are sent again, the link may drop.",
        "Clean or swap the optic, then the cable, then the port; compare the counter at the other end.",
        "InfiniBand port counters; perfquery(8)", needs="rdma", action=Action.INSPECT),
    AuditRule("rdma.flaps", "links stay up", flaps,
        "Each flap stalls every collective through the port for seconds, or ends the job.",
        "Swap optic and cable; set NCCL_IB_TIMEOUT=22 to survive short flaps.",
        "azurehpc-health-checks check_ib_link_flapping (5 in a day)", needs="rdma", action=Action.INSPECT),
    AuditRule("rdma.discards", "the port discards nothing it should send",
        per_packet("counters", "port_xmit_discards"),
        "The port is down or congested for longer than packets live.",
        "Look for congestion and flow control (credits, PFC storms) at the switch port.",
        "InfiniBand PortXmitDiscards", needs="rdma", action=Action.ESCALATE),
    AuditRule("net.errors", "interfaces receive and send without errors",
        share_of_packets(10, ERROR_SHARE, "rx_errors", "tx_errors"),
        "Frames arrive damaged: cable, optic, or a duplex mismatch.",
        "Swap optic and cable; look at ethtool -S for which error.",
        "kernel ABI sysfs-class-net-statistics", needs="interface", action=Action.INSPECT),
    AuditRule("net.drops", "interfaces drop few packets",
        share_of_packets(100, DROP_SHARE, "rx_dropped", "tx_dropped", "rx_missed_errors"),
        "Rings or queues overflow: TCP slows down, UDP loses.",
        "Larger rings (ethtool -G), interrupts spread over cores of the card's NUMA node, flow control.",
        "kernel ABI sysfs-class-net-statistics", needs="interface"),
    AuditRule("net.flaps", "the carrier of interfaces stays up", carrier_flaps,
        "Each flap stalls the job for seconds; the routing behind it for longer.",
        "Swap optic and cable; look at the switch port's log.",
        "kernel ABI sysfs-class-net carrier_changes", needs="interface", action=Action.INSPECT),
    AuditRule("net.tcp.retransmits", "TCP sends little twice", retransmits,
        "Packets of this host's connections are lost on the way: a lossy link or an overflowing queue.",
        "Find the lossy hop: interface and switch counters on the path; `ss -ti` names the connections.",
        "RFC 4022 tcpRetransSegs", needs="interface", action=Action.INSPECT),
)  # fmt: skip
