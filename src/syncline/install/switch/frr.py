"""FRR: BGP unnumbered on every cable between switches, ECMP over all of them; also the routing part of SONiC."""

from __future__ import annotations

from syncline.install.qos import CLASSES
from syncline.install.switch.view import SwitchView


def frr_conf(view: SwitchView, *, with_addresses: bool = True) -> str:
    """Return `frr.conf`. SONiC keeps addresses in its database, so there they are left out."""
    lines = [
        f"! {view.name}, {view.tier} {view.model.name}: {len(view.host_ports)} host ports, "
        f"{len(view.fabric_ports)} to switches",
        "frr defaults datacenter",
        f"hostname {view.name}",
        "log syslog informational",
        "! plain multipath routes: after a port has flapped, a kernel nexthop group would stay one path short",
        "no zebra nexthop kernel enable",
        "!",
    ]
    if with_addresses:
        lines += _interfaces(view)
    own = view.address
    lines += [
        f"router bgp {own.asn}",
        " ! the loopback, so that a session names the switch and not one of its ports",
        f" bgp router-id {own.loopback}",
        " ! paths through different spines differ in AS; without this only one would be used",
        " bgp bestpath as-path multipath-relax",
        " ! neighbours are our own switches: no policy is asked for",
        " no bgp ebgp-requires-policy",
        " ! the leaf's prefix is announced whole, though only its /31s are in the table",
        " no bgp network import-check",
        " neighbor FABRIC peer-group",
        " neighbor FABRIC remote-as external",
        " ! a silent neighbour is gone after 3 s; a port that is down is seen at once",
        " neighbor FABRIC timers 1 3",
        " ! retry soon: a switch that comes back must not wait two minutes",
        " neighbor FABRIC timers connect 5",
    ]
    for port in view.fabric_ports:
        lines.append(f" ! {port.far_device} {port.far_port}")
        lines.append(f" neighbor {port.name} interface peer-group FABRIC")
    lines += [" !", " address-family ipv4 unicast", f"  network {own.loopback}/32"]
    if own.prefix:
        lines += [f"  ! all {len(view.host_ports)} host ports in one route", f"  network {own.prefix}"]
    lines += [
        f"  ! {view.ecmp_width} equal paths are cabled",
        f"  maximum-paths {view.ecmp_width}",
        " exit-address-family",
        "!",
        "line vty",
        "!",
    ]
    return "\n".join(lines) + "\n"


def sysctl_conf(view: SwitchView) -> str:
    """Return the kernel settings of a Linux switch."""
    return "\n".join([
        f"# {view.name}",
        "# it is a router",
        "net.ipv4.ip_forward = 1",
        "net.ipv6.conf.all.forwarding = 1",
        "# hash ports too: flows of two hosts must not all take one path",
        "net.ipv4.fib_multipath_hash_policy = 1",
        f"# a seed of its own for every tier ({view.tier}), or a spine repeats the leaf's choice (Linux 6.11 or newer)",
        f"-net.ipv4.fib_multipath_hash_seed = {view.hash_seed + 1}",
        "# answers may come back another way",
        "net.ipv4.conf.all.rp_filter = 0",
        "net.ipv4.conf.default.rp_filter = 0",
        "# a route over a cable that is out is no route",
        "net.ipv4.conf.all.ignore_routes_with_linkdown = 1",
    ]) + "\n"  # fmt: skip


def classes_nft(view: SwitchView) -> str:
    """Return nftables rules that count each class as it is forwarded, and leave its mark alone."""
    lines = [f"# {view.name}: packets and bytes by class; `nft list counters` shows whether marks survive the path",
             "table inet classes {"]  # fmt: skip
    lines += [f"  counter {one.name} {{ }}" for one in CLASSES]
    lines += ["  chain forward {", "    type filter hook forward priority 0; policy accept;"]
    for one in CLASSES:
        marks = ", ".join(str(dscp) for dscp in one.dscp)
        lines += [f"    # {one.why}", f"    ip dscp {{ {marks} }} counter name {one.name}"]
    return "\n".join([*lines, "  }", "}"]) + "\n"


def _interfaces(view: SwitchView) -> list[str]:
    lines = ["interface lo", f" ip address {view.address.loopback}/32", "exit", "!"]
    for port in view.ports:
        lines += [f"interface {port.name}", f" description {port.far_device} {port.far_port}, {port.length_m:g} m"]
        if port.host:
            lines.append(f" ip address {port.host.leaf_address}/31")
        else:
            lines += [
                " ! BGP finds its neighbour by router advertisements, so this cable needs no address",
                " no ipv6 nd suppress-ra",
                " ipv6 nd ra-interval 10",
            ]
        lines += ["exit", "!"]
    return lines
