"""Interfaces of the fabric: MTU, addresses, routes, isolation, shaping, bonds."""

from __future__ import annotations

import ipaddress
import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress

from pydantic import BaseModel, Field, ValidationError

from syncline.auditing.expect import Expect, link_at
from syncline.auditing.rule import AuditRule, Sight, odd_ones
from syncline.describe import units
from syncline.describe.names import few
from syncline.finding import Action, Severity
from syncline.host.host import Host
from syncline.host.interface import Interface

ROCE_MTU = 4200
"""RoCE's 4,096 bytes and their headers."""
JUMBO_MTU = 8900
FAST_MBPS = 25_000
TC_QDISC = ("tc", "-j", "-s", "qdisc", "show")


def wanted_mtu(interface: Interface, host: Host, expect: Expect) -> tuple[int, str]:
    """Return the least MTU an interface of the fabric should have, and who says so."""
    if any(port.is_roce for port in host.fabric_ports):
        link = link_at(interface.rate_Bps, False) if interface.speed_Mbps else None
        return min(expect.mtu_bytes or ROCE_MTU, ROCE_MTU), expect.by(
            "RoCE's 4,096 bytes and headers" + (f" on {link.name}" if link else "")
        )
    if expect.mtu_bytes is not None:
        return expect.mtu_bytes, expect.source
    if interface.speed_Mbps >= FAST_MBPS and not host.virtual_by:
        return JUMBO_MTU, "jumbo frames on 25 Gb/s and more"
    return 0, ""


def mtu(host: Host, expect: Expect) -> Iterator[Sight]:
    for interface in host.fabric_interfaces:
        least, by = wanted_mtu(interface, host, expect)
        if interface.is_up and 0 < interface.mtu < least:
            expected = f"at least {least} ({by})"
            yield Sight(interface.name, f"MTU {interface.mtu}", expected, (f"{interface.folder}/mtu",))


def mtu_mixed(host: Host, expect: Expect) -> Iterator[Sight]:
    right = [i for i in host.fabric_interfaces if i.is_up and i.mtu >= wanted_mtu(i, host, expect)[0] > 0]
    usual, odd = odd_ones({interface.name: str(interface.mtu) for interface in right})
    for interface in right:
        if interface.name in odd:
            expected = f"{usual} as on {len(right) - len(odd)} others"
            yield Sight(interface.name, f"MTU {interface.mtu}", expected, (f"{interface.folder}/mtu",))


def address_missing(host: Host, expect: Expect) -> Iterator[Sight]:
    if not any(interface.addresses for interface in host.interfaces):
        return  # `ip` could not be asked; rdma.gid.rocev2 still sees the GID table
    masters = {i.name: i for i in host.interfaces}
    for interface in host.fabric_interfaces:
        owner = masters.get(interface.master, interface)
        has_gid = any(not g.is_link_local and g.interface == interface.name for p in host.fabric_ports for g in p.gids)
        if interface.is_up and has_gid and not owner.addresses:
            yield Sight(interface.name, "no address", "the rail's address", ("ip address",))


def subnet_shared(host: Host, expect: Expect) -> Iterator[Sight]:
    if host.sysctl("net.ipv4.conf.all.arp_ignore") == "1" and host.sysctl("net.ipv4.conf.all.arp_announce") == "2":
        return
    subnets: dict[str, list[str]] = defaultdict(list)
    for interface in host.fabric_interfaces:
        for address in interface.ipv4:
            if interface.is_up and not interface.master and not address.endswith(("/32", "/31")):
                subnets[str(ipaddress.ip_interface(address).network)].append(interface.name)
    for subnet, names in subnets.items():
        if len(names) > 1:
            evidence = ("ip address", "proc/sys/net/ipv4/conf/all/arp_ignore")
            yield Sight(", ".join(names), f"all in {subnet}", "one subnet per rail", evidence)


def rp_filter(host: Host, expect: Expect) -> Iterator[Sight]:
    names = [interface.name for interface in host.fabric_interfaces]
    of_all = host.sysctl("net.ipv4.conf.all.rp_filter") or "0"
    strict = [n for n in names if max(of_all, host.sysctl(f"net.ipv4.conf.{n}.rp_filter") or "0") == "1"]
    if strict and len(names) > 1:
        evidence = ("proc/sys/net/ipv4/conf/all/rp_filter",)
        yield Sight(few(strict), "rp_filter 1 (strict)", "2 or 0", evidence)


def isolation(host: Host, expect: Expect) -> Iterator[Sight]:
    fabric = {interface.name for interface in host.fabric_interfaces}
    others = [i for i in host.interfaces if i.is_up and i.is_physical and i.name not in fabric]
    shared = [name for name in host.default_routes if name in fabric]
    if shared and others:
        yield Sight(", ".join(shared), "carries the default route", f"{others[0].name} carries it", ("proc/net/route",))


def shaped(host: Host, expect: Expect) -> Iterator[Sight]:
    for row in qdiscs(host):
        rate, interface = row.rate_Bps, host.interface(row.dev)
        wanted = expect.rate_Bps or (interface.rate_Bps if interface and interface.is_physical else 0.0)
        if rate and (rate < wanted * 0.99 or not wanted):
            by = expect.by("the link's own rate")
            expected = f"{units.show_rate(wanted)} ({by})" if wanted else "no limit"
            yield Sight(row.dev, f"{row.kind} limits it to {units.show_rate(rate)}", expected, ("tc qdisc show",))


def loss_emulated(host: Host, expect: Expect) -> Iterator[Sight]:
    for row in qdiscs(host):
        if row.kind == "netem" and row.options.loss.loss > 0:
            yield Sight(row.dev, f"netem drops {row.options.loss.loss:.2%}", "no loss", ("tc qdisc show",))


def bond(host: Host, expect: Expect) -> Iterator[Sight]:
    for name in host.root.names("proc/net/bonding"):
        member = ""
        for line in (host.root.text(f"proc/net/bonding/{name}") or "").splitlines():
            key, _, value = (part.strip() for part in line.partition(":"))
            member = value if key == "Slave Interface" else member
            if key == "MII Status" and member and value != "up":
                yield Sight(f"{name} {member}", f"MII status {value}", "up", (f"proc/net/bonding/{name}",))


class _Loss(BaseModel):
    loss: float = 0.0


class _Rate(BaseModel):
    rate: float = 0.0


class _Options(BaseModel):
    rate: float | _Rate = 0.0
    loss: _Loss = Field(_Loss(), alias="loss-random")


class Qdisc(BaseModel):
    """A queueing discipline as `tc -j` prints it."""

    dev: str
    kind: str = ""
    options: _Options = Field(default_factory=lambda: _Options.model_validate({}))

    @property
    def rate_Bps(self) -> float:
        """The rate that a tbf or netem discipline allows, 0 for none."""
        rate = self.options.rate
        return (rate.rate if isinstance(rate, _Rate) else rate) if self.kind in ("tbf", "netem") else 0.0


def qdiscs(host: Host) -> list[Qdisc]:
    """Return the queueing disciplines of fabric interfaces; `tc` is asked quietly, since most hosts shape nothing."""
    text = host.root.command("tc-qdisc", TC_QDISC, quiet=True)
    try:
        rows = json.loads(text) if text else []
    except (ValueError, RecursionError):
        rows = []
    names, found = {interface.name for interface in host.fabric_interfaces}, []
    for row in rows if isinstance(rows, list) else ():
        with suppress(ValidationError):  # another kind's options are its own
            found.append(Qdisc.model_validate(row))
    return [row for row in found if row.dev in names]


RULES = (
    AuditRule("net.mtu", "fabric interfaces have the fabric's MTU", mtu,
        "RoCE falls to packets of 1,024 bytes; peers with another MTU hang or fail; sockets cost more CPU.",
        "ip link set IF mtu 9000 (and in the network configuration), the same on every host and switch port.",
        "nccl #1524 #1957", needs="fabric_interface", severity=Severity.CRITICAL),
    AuditRule("net.mtu.mixed", "fabric interfaces have one MTU", mtu_mixed,
        "Rails with different MTU hang or fail with a local length error when they talk to each other.",
        "Set one MTU on all fabric interfaces.",
        "nccl #1524", needs="fabric_interface"),
    AuditRule("net.address.missing", "every RoCE interface has an address", address_missing,
        "Without an address there is no routable GID: the port cannot be used.",
        "Configure the rail's address on the interface.",
        "nccl #925", needs="roce", severity=Severity.CRITICAL),
    AuditRule("net.subnet.shared",
        "rails have subnets of their own, or ARP answers only for its own interface", subnet_shared,
        "Several interfaces in one subnet: answers leave by another rail, all traffic may use one.",
        "One subnet per rail; or net.ipv4.conf.all.arp_ignore=1, arp_announce=2 and a routing table per interface.",
        "kernel ip-sysctl arp_ignore; NVIDIA multi-rail RoCE", needs="fabric_interface"),
    AuditRule("net.rp_filter", "reverse-path filtering is loose where there are several rails", rp_filter,
        "The kernel drops packets that arrive on one rail and would be answered on another.",
        "sysctl net.ipv4.conf.all.rp_filter=2 (or 0) and the same per interface.",
        "kernel ip-sysctl rp_filter", needs="roce"),
    AuditRule("net.isolation",
        "training has the fabric for itself: the default route leaves by another interface", isolation,
        "Downloads, logs and storage share the rail with collectives and cause congestion on it.",
        "Move the default route to the management interface.",
        "rail design: one fabric for collectives", needs="roce"),
    AuditRule("net.shaped", "no queueing discipline limits a fabric interface below its rate", shaped,
        "Traffic leaves slower than the link could carry: this host is a straggler in every ring.",
        "tc qdisc del dev IF root, after finding who set it.",
        "tc-tbf(8), tc-netem(8), tc-htb(8)", needs="fabric_interface", severity=Severity.CRITICAL),
    AuditRule("net.loss_emulated", "no queueing discipline drops packets on purpose", loss_emulated,
        "A test left netem behind: packets are lost, doubled or damaged on purpose.",
        "tc qdisc del dev IF root",
        "tc-netem(8)", needs="fabric_interface", severity=Severity.CRITICAL),
    AuditRule("net.bond", "every member of a bond is up", bond,
        "The bond runs with part of its bandwidth and no spare.",
        "Check cable, optic and switch port of the member that is down.",
        "kernel Documentation/networking/bonding", needs="interface", action=Action.INSPECT),
)  # fmt: skip
