"""NVIDIA Cumulus Linux: NVUE commands (5.6 to 5.14), each with its reason; run the file on the switch, then apply.

NVIDIA's NVUE reference has `neighbor <id> type unnumbered` (BGP, since 5.0.0) and says of `static <prefix> via <id>`
that the id is "the IP address, interface, or blackhole" (Static Routing); both read 2026-11-16. The PFC watchdog is off
by default and new in 5.6.0, polling 100 to 5,000 ms, 1 to 1,000 polls (QoS; what is new in 5.6), read 2026-11-17.
"""

from __future__ import annotations

from syncline.install.qos import CLASSES, MAX_MARK_PERCENT, MTU_BYTES, TRAINING
from syncline.install.switch.view import SwitchView

_HASHED = ("source-ip", "destination-ip", "ip-protocol", "source-port", "destination-port")


def nvue_commands(view: SwitchView) -> str:
    """Return the `nv set` commands of one switch as a shell script."""
    return "\n".join([
        "#!/bin/sh -e",
        f"# {view.name}, {view.tier} {view.model.name}; Cumulus Linux 5.15 writes `state enabled` for `enable on`",
        f"nv set system hostname {view.name.replace('/', '-')}",
        "# the router id, reachable over every uplink",
        f"nv set interface lo ip address {view.address.loopback}/32",
        *_ports(view),
        *_bgp(view),
        *_spread(view),
        *_classes(view),
        "nv config apply -y",
    ]) + "\n"  # fmt: skip


def _ports(view: SwitchView) -> list[str]:
    lines = []
    cages = {port.port.cage: port.port.lanes for port in view.ports if port.port.lanes > 1}
    if cages:
        lines.append("# cages that hold several ports")
        lines += [f"nv set interface swp{cage} link breakout {lanes}x" for cage, lanes in sorted(cages.items())]
    for port in view.ports:
        lines += [
            f"# {port.far_device} {port.far_port}, {port.length_m:g} m",
            f"nv set interface {port.name} link mtu {MTU_BYTES}",
            f'nv set interface {port.name} description "{port.far_device} {port.far_port}"',
        ]
        if port.host:
            lines.append(f"nv set interface {port.name} ip address {port.host.leaf_address}/31")
    return lines


def _bgp(view: SwitchView) -> list[str]:
    bgp = "nv set vrf default router bgp"
    lines = [
        "# an AS for each leaf, one for the spines of a pod: a path that went up cannot come up again",
        f"nv set router bgp autonomous-system {view.address.asn}",
        f"nv set router bgp router-id {view.address.loopback}",
        "# a silent neighbour is gone after 3 s",
        f"{bgp} peer-group fabric remote-as external",
        f"{bgp} peer-group fabric timers keepalive 1",
        f"{bgp} peer-group fabric timers hold 3",
        "# paths through different spines are equal",
        f"{bgp} path-selection multipath aspath-ignore on",
        f"# {view.ecmp_width} equal paths are cabled",
        f"{bgp} address-family ipv4-unicast multipaths ebgp {view.ecmp_width}",
        f"{bgp} address-family ipv4-unicast network {view.address.loopback}/32",
    ]
    if view.address.prefix:
        lines += [
            "# all host ports in one route; the blackhole keeps it in the table and the /31s win",
            f"nv set vrf default router static {view.address.prefix} via blackhole",
            f"{bgp} address-family ipv4-unicast network {view.address.prefix}",
        ]
    lines.append("# no addresses on these cables: neighbours find each other (BGP unnumbered)")
    for port in view.fabric_ports:
        lines.append(f"{bgp} neighbor {port.name} peer-group fabric")
        lines.append(f"{bgp} neighbor {port.name} type unnumbered")
    return lines


def _spread(view: SwitchView) -> list[str]:
    lines = [
        f"# a seed of its own for the {view.tier} tier, or a spine repeats the leaf's choice",
        f"nv set system forwarding hash-seed {view.hash_seed}",
        "# queue pairs of two hosts differ in the source port alone; the reference has every field off by default",
        *(f"nv set system forwarding ecmp-hash {field} on" for field in _HASHED),
    ]
    if view.model.adaptive_routing:
        lines += [
            "# RoCE packets go where the queue is short; the NIC puts them back in order",
            "nv set router adaptive-routing enable on",
        ]
        ups = [port for port in view.fabric_ports if port.is_uplink]
        lines += [
            f"nv set interface {port.name} router adaptive-routing enable on" for port in ups or view.fabric_ports
        ]
    return lines


def _classes(view: SwitchView) -> list[str]:
    lines = ["# the mark decides the class"]
    lines += [
        f"nv set qos mapping default-global dscp {d} switch-priority {one.queue}" for one in CLASSES for d in one.dscp
    ]
    lines.insert(1, "nv set qos mapping default-global trust l3")
    for one in CLASSES:
        lines.append(f"# {one.name}: {one.why}")
        lines.append(
            f"nv set qos egress-queue-mapping default-global switch-priority {one.queue} traffic-class {one.queue}"
        )
        base = f"nv set qos egress-scheduler default-global traffic-class {one.queue}"
        lines += (
            [f"{base} mode strict"] if one.weight is None else [f"{base} mode dwrr", f"{base} bw-percent {one.weight}"]
        )
    lines += [
        "# pause the training class only; headroom follows from the longest cable",
        f"nv set qos pfc default-global switch-priority {TRAINING.queue}",
        "nv set qos pfc default-global tx enable",
        "nv set qos pfc default-global rx enable",
        f"nv set qos pfc default-global cable-length {max(1, round(view.longest_m + 0.49))}",
        "# a queue paused for 200 ms, two polls, is drained: a broken NIC must not stop the fabric; off by default",
        "nv set qos pfc-watchdog polling-interval 100",
        "nv set qos pfc-watchdog robustness 2",
        *(f"nv set interface {port.name} qos pfc-watchdog state enable" for port in view.ports),
    ]
    if view.buffer:
        lines += [f"# {line}" for line in view.buffer.lines]
        fastest = max(view.buffer.mark_from_bytes)
        for one in (c for c in CLASSES if c.ecn):
            base = f"nv set qos congestion-control default-global traffic-class {one.queue}"
            lines += [
                f"{base} ecn enable",
                f"{base} red disable",
                f"{base} min-threshold {view.buffer.mark_from_bytes[fastest]}",
                f"{base} max-threshold {view.buffer.mark_all_bytes[fastest]}",
                f"{base} probability {MAX_MARK_PERCENT}",
            ]
    return lines
