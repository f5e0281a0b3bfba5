"""Arista EOS: a running configuration with its reasons as comments."""

from __future__ import annotations

from syncline.install.qos import CLASSES, MAX_MARK_PERCENT, TRAINING
from syncline.install.switch.view import SwitchPort, SwitchView

MTU = 9214
"""The largest routed frame EOS takes."""


def eos_config(view: SwitchView) -> str:
    """Return the configuration of one switch."""
    return "\n".join([
        f"! {view.name}, {view.tier} {view.model.name}",
        f"hostname {view.name.replace('/', '-')}",
        "! needed for BGP unnumbered",
        "service routing protocols model multi-agent",
        "ip routing ipv6 interfaces",
        "ipv6 unicast-routing",
        "!",
        *_classes(view),
        *_hash(view),
        f"! give the {view.tier} tier hash seed {view.hash_seed}, by the command of this chip: with one seed",
        "! everywhere a spine repeats the leaf's choice",
        *(["! path by load, not by hash alone, where the chip can", "ip hardware fib load-balance distribution dynamic"]
          if view.model.adaptive_routing else []),
        "!",
        "interface Loopback0",
        "   description router id",
        f"   ip address {view.address.loopback}/32",
        "!",
        *[line for port in view.ports for line in _interface(port)],
        *_bgp(view),
        "end",
    ]) + "\n"  # fmt: skip


def _hash(view: SwitchView) -> list[str]:
    """Return which fields choose a path; chips of the Jericho line take ports in by themselves and have no such key."""
    why = "! hash source ports: the queue pairs of two hosts differ in nothing else"
    if not view.model.asic.startswith(("Tomahawk", "Trident")):
        return [f"{why}; this chip does so by default"]
    return [why, "ip load-sharing trident fields ip source-ip source-port destination-ip destination-port"]


def _classes(view: SwitchView) -> list[str]:
    lines = ["! marks decide the class; only the training class may be paused"]
    for one in CLASSES:
        for dscp in one.dscp:
            lines += [f"! {one.name}: {one.why}", f"qos map dscp {dscp} to traffic-class {one.queue}"]
    lines += [f"qos map traffic-class {one.queue} to tx-queue {one.queue}" for one in CLASSES]
    lines += ["! a queue paused for 200 ms is drained: a broken NIC must not stop the fabric",
              "priority-flow-control pause watchdog default timeout 0.2",
              "priority-flow-control pause watchdog default recovery-time 0.4"]  # fmt: skip
    for line in view.buffer.lines if view.buffer else []:
        lines.append(f"! {line}")
    for rate in sorted({port.rate_Bps for port in view.ports}):
        lines += _profile(view, rate)
    return [*lines, "!"]


def _profile(view: SwitchView, rate_Bps: float) -> list[str]:
    lines = [f"qos profile TRAINING-{round(rate_Bps * 8 / 1e9)}G", "   qos trust dscp", "   priority-flow-control on",
             f"   priority-flow-control priority {TRAINING.queue} no-drop"]  # fmt: skip
    for one in CLASSES:
        lines.append(f"   uc-tx-queue {one.queue}")
        lines.append("      priority strict" if one.weight is None else f"      bandwidth percent {one.weight}")
        if one.weight is not None:
            lines.insert(-1, "      no priority")
        if one.ecn and view.buffer:
            low, high = view.buffer.mark_from_bytes[rate_Bps], view.buffer.mark_all_bytes[rate_Bps]
            lines.append(
                f"      random-detect ecn minimum-threshold {low} bytes maximum-threshold {high} bytes "
                f"max-mark-probability {MAX_MARK_PERCENT} weight 0"
            )
    return [*lines, "!"]


def _interface(port: SwitchPort) -> list[str]:
    lines = [f"interface {port.name}", f"   description {port.far_device} {port.far_port}, {port.length_m:g} m",
             f"   mtu {MTU}", "   no switchport",
             f"   service-profile TRAINING-{round(port.rate_Bps * 8 / 1e9)}G"]  # fmt: skip
    lines.append(f"   ip address {port.host.leaf_address}/31" if port.host else "   ipv6 enable")
    return [*lines, "!"]


def _bgp(view: SwitchView) -> list[str]:
    lines = [f"router bgp {view.address.asn}", f"   router-id {view.address.loopback}",
             f"   ! {view.ecmp_width} equal paths are cabled",
             f"   maximum-paths {view.ecmp_width} ecmp {view.ecmp_width}",
             "   bgp bestpath as-path multipath-relax", "   neighbor FABRIC peer group",
             "   neighbor FABRIC timers 1 3", "   neighbor FABRIC send-community"]  # fmt: skip
    for port in view.fabric_ports:
        lines += [f"   ! {port.far_device} {port.far_port}",
                  f"   neighbor interface {port.name} peer-group FABRIC peer-filter ANY"]  # fmt: skip
    lines += ["   address-family ipv4", "      neighbor FABRIC activate",
              "      neighbor FABRIC next-hop address-family ipv6 originate",
              f"      network {view.address.loopback}/32"]  # fmt: skip
    if view.address.prefix:
        lines += ["      ! all host ports in one route", f"      network {view.address.prefix}", "!",
                  "! so that the prefix is in the table; the /31s below it are longer and win",
                  f"ip route {view.address.prefix} Null0"]  # fmt: skip
    return [*lines, "!", "peer-filter ANY", "   10 match as-range 1-4294967295 result accept", "!"]
