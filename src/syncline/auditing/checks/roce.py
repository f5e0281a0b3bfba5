"""RoCE: is the class that collectives use lossless (PFC) and marked (ECN), and which field decides?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from syncline.auditing.expect import Expect
from syncline.auditing.rule import AuditRule, CannotTell, Sight
from syncline.finding import Action, Severity
from syncline.host.host import Host

GLOBAL = -1
MIN_PAUSES = 1000
"""Fewer since boot are what a link coming up or one burst leaves behind."""
PAUSE_SHARE = 0.01


@dataclass(frozen=True)
class Qos:
    """How one interface treats priorities."""

    trust: str
    lossless: frozenset[int]
    priority_of_dscp: dict[int, int]
    source: str


def parse_mlnx_qos(text: str) -> Qos | None:
    """Read `mlnx_qos -i IF`."""
    trust = re.search(r"Priority trust state: (\w+)", text)
    enabled = re.search(r"^\s*enabled((?:\s+[01]){8})\s*$", text, re.MULTILINE)
    if enabled is None:
        return None
    lossless = frozenset(i for i, bit in enumerate(enabled.group(1).split()) if bit == "1")
    mapping = {
        int(dscp): int(row.group(1))
        for row in re.finditer(r"prio:(\d) dscp:([\d,]+)", text)
        for dscp in row.group(2).split(",")
        if dscp
    }
    return Qos(trust.group(1) if trust else "", lossless, mapping, "mlnx_qos")


def parse_dcb(pfc: str, app: str) -> Qos | None:
    """Read `dcb pfc show` and `dcb app show`."""
    row = re.search(r"prio-pfc((?:\s+\d:(?:on|off)){8})", pfc)
    if row is None:
        return None
    lossless = frozenset(int(word[0]) for word in row.group(1).split() if word.endswith(":on"))
    named = re.search(r"dscp-prio((?:\s+\S+:\d)+)", app)
    mapping = {}
    for word in named.group(1).split() if named else ():
        dscp, _, prio = word.rpartition(":")
        if (number := _dscp(dscp)) is not None:
            mapping[number] = int(prio)
    return Qos("dscp" if mapping else "", lossless, mapping, "dcb")


def qos(host: Host, interface: str) -> Qos:
    """Return how an interface treats priorities, from whichever tool there is."""
    text = host.root.command(f"mlnx_qos-{interface}", ("mlnx_qos", "-i", interface), quiet=True)
    found = parse_mlnx_qos(text) if text else None
    if found is None:
        pfc = host.root.command(f"dcb-pfc-{interface}", ("dcb", "pfc", "show", "dev", interface), quiet=True)
        app = host.root.command(f"dcb-app-{interface}", ("dcb", "app", "show", "dev", interface), quiet=True)
        found = parse_dcb(pfc or "", app or "")
    if found is None:
        raise CannotTell(f"neither mlnx_qos nor dcb answers for {interface}")
    return found


def traffic_class(host: Host, device: str) -> tuple[int, str]:
    """Return the traffic class of RDMA traffic and who sets it: NCCL, the system, or nobody."""
    text = host.environment.get("NCCL_IB_TC", "")
    if text.isdecimal():
        return int(text), f"NCCL_IB_TC={text}"
    system = re.search(
        r"Global tclass=(\d+)", host.root.text(f"sys/class/infiniband/{device}/tc/1/traffic_class") or ""
    )
    return (int(system.group(1)), f"traffic_class={system.group(1)}") if system else (0, "NCCL_IB_TC is not set")


def _pairs(host: Host) -> list[tuple[str, str]]:
    """Return (RDMA device, interface) of the fabric's RoCE ports."""
    pairs = [
        (port.device, name) for port in host.fabric_ports if port.is_roce and port.is_active for name in port.interfaces
    ]
    return list(dict.fromkeys(pairs))


def pfc_off(host: Host, expect: Expect) -> Iterator[Sight]:
    for device, name in _pairs(host):
        settings = qos(host, name)
        if not settings.lossless:
            observed, expected = "PFC is off for all 8 priorities", "on for the RDMA priority"
            yield Sight(f"{name} ({device})", observed, expected, (settings.source,))


def pfc_class(host: Host, expect: Expect) -> Iterator[Sight]:
    for device, name in _pairs(host):
        settings = qos(host, name)
        value, by = traffic_class(host, device)
        dscp = value >> 2
        priority = settings.priority_of_dscp.get(dscp, dscp >> 3)
        if settings.lossless and priority not in settings.lossless:
            observed, expected = f"DSCP {dscp}, priority {priority} ({by})", f"priority {_listed(settings.lossless)}"
            yield Sight(f"{name} ({device})", observed, expected, (settings.source,))


def trust(host: Host, expect: Expect) -> Iterator[Sight]:
    for device, name in _pairs(host):
        settings = qos(host, name)
        if settings.trust and settings.trust != "dscp":
            yield Sight(f"{name} ({device})", f"trust state {settings.trust}", "dscp", (settings.source,))


def ecn(host: Host, expect: Expect) -> Iterator[Sight]:
    missing = []
    for device, name in _pairs(host):
        base = f"sys/class/net/{name}/ecn"
        if not host.root.exists(base):
            missing.append(name)
            continue
        for priority in sorted(qos(host, name).lossless):
            states = {side: host.root.number(f"{base}/{side}/enable/{priority}") for side in ("roce_np", "roce_rp")}
            off = [side for side, state in states.items() if state == 0]
            if off:
                observed = f"{' and '.join(off)} off for priority {priority}"
                evidence = tuple(f"{base}/{side}/enable/{priority}" for side in off)
                yield Sight(f"{name} ({device})", observed, "on", evidence)
    if missing:
        raise CannotTell(f"this driver does not show ECN settings in sysfs ({', '.join(missing[:8])})")


def pause_class(host: Host, expect: Expect) -> Iterator[Sight]:
    for device, name in _pairs(host):
        lossless = qos(host, name).lossless
        for kind, count in pauses(host, name).items() if lossless else ():  # without one, roce.pfc.off reports it
            if count >= MIN_PAUSES and kind not in lossless:
                shown = "global pause" if kind == GLOBAL else f"pause of priority {kind}"
                observed, expected = f"{count:,} frames of {shown}", f"priority {_listed(lossless)} alone"
                yield Sight(f"{name} ({device})", observed, expected, (f"ethtool -S {name}",))


def pause(host: Host, expect: Expect) -> Iterator[Sight]:
    for device, name in _pairs(host):
        lossless = qos(host, name).lossless
        for priority, count in pauses(host, name).items():
            sent = statistics(host, name).get(f"tx_prio{priority}_packets", 0)
            if priority in lossless and count >= MIN_PAUSES and count > PAUSE_SHARE * max(sent, 1):
                observed = f"{count:,} pauses of priority {priority} for {sent:,} packets sent"
                evidence = f"ethtool -S {name}: rx_prio{priority}_pause"
                yield Sight(f"{name} ({device})", observed, f"below {PAUSE_SHARE:.0%}", (evidence,))


def statistics(host: Host, interface: str) -> dict[str, int]:
    """Return the driver's own counters of an interface."""
    text = host.root.command(f"ethtool-S-{interface}", ("ethtool", "-S", interface), quiet=True)
    if text is None:
        raise CannotTell(f"ethtool -S does not answer for {interface}")
    return {name: int(value) for name, value in re.findall(r"^\s*(\w+): (\d+)\s*$", text, re.MULTILINE)}


def pauses(host: Host, interface: str) -> dict[int, int]:
    """Return the pause frames received, by priority; global ones under `GLOBAL`."""
    counts = statistics(host, interface)
    by_priority = {priority: counts.get(f"rx_prio{priority}_pause", 0) for priority in range(8)}
    return by_priority | {GLOBAL: counts.get("rx_global_pause", 0)}


def _listed(priorities: frozenset[int]) -> str:
    return ", ".join(str(priority) for priority in sorted(priorities))


def _dscp(word: str) -> int | None:
    """Return the number of a DSCP that `dcb` writes as a number or by name: AF31, CS3, EF."""
    if word.isdecimal():
        return int(word)
    if match := re.fullmatch(r"AF([1-4])([1-3])", word):
        return int(match.group(1)) * 8 + int(match.group(2)) * 2
    if match := re.fullmatch(r"CS([0-7])", word):
        return int(match.group(1)) * 8
    return 46 if word == "EF" else None


RULES = (
    AuditRule("roce.pfc.off", "priority flow control is on for one class of RoCE interfaces", pfc_off,
        "The fabric drops packets under incast; RoCE goes back to the lost packet and may fall to 0.x GB/s.",
        "mlnx_qos -i IF --pfc 0,0,0,1,0,0,0,0, and every switch alike; ignore this on a fabric that is ECN only.",
        "nccl #378 #306 #394", needs="roce", severity=Severity.CRITICAL),
    AuditRule("roce.pfc.class", "collectives travel in the lossless class", pfc_class,
        "PFC protects one priority and RDMA travels in another: it is dropped like any other traffic.",
        "Set NCCL_IB_TC so that its DSCP (TC >> 2) maps to the lossless priority: 106 for DSCP 26, priority 3.",
        "NCCL_IB_TC in the NCCL user guide; nccl #378", needs="roce", severity=Severity.CRITICAL),
    AuditRule("roce.trust", "RoCE interfaces trust DSCP", trust,
        "Without VLAN tags there is no PCP to trust: all traffic falls into priority 0.",
        "mlnx_qos -i IF --trust dscp",
        "NVIDIA RoCE configuration guide", needs="roce"),
    AuditRule("roce.ecn", "congestion notification (ECN) is on for the lossless priority", ecn,
        "Senders never slow down: PFC pauses spread through the fabric instead.",
        "echo 1 > /sys/class/net/IF/ecn/roce_np/enable/PRIORITY and the same in roce_rp.",
        "NVIDIA RoCE configuration guide; DCQCN (SIGCOMM 2015)", needs="roce mlx"),
    AuditRule("roce.pause.class", "the fabric pauses the lossless priority and no other", pause_class,
        "Switch and host disagree on which class is lossless: RDMA is dropped while other traffic is paused.",
        "Set PFC of the same priority at both ends of the cable; turn global pause off (ethtool -A IF rx off tx off).",
        "NVIDIA RoCE configuration guide; IEEE 802.1Qbb", needs="roce", severity=Severity.CRITICAL),
    AuditRule("roce.pause", "the fabric seldom pauses this host", pause,
        "The switch stops this port often: incast, a slow receiver, or pauses that spread from elsewhere.",
        "Find where the pauses start: the port that sends most of them; check ECN thresholds there and on the way.",
        "Guo et al., RDMA over commodity Ethernet at scale (SIGCOMM 2016)", needs="roce", action=Action.ESCALATE),
)  # fmt: skip
