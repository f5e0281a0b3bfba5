"""EOS files of `fabric build` before Arista's own validated designs (pyavd): its schema, and the lines it would write.

Each switch is described anew, from the same view, as the structured configuration that Arista's templates take. pyavd
refuses keys and values that its schema of EOS does not have, and renders the rest as EOS prints it. Every line of ours
must be among those, under the same heading. Needs `pip install pyavd`. What it does not show: that a switch loads it.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

from syncline.fabric import load
from syncline.install.installation import install
from syncline.install.qos import CLASSES, MAX_MARK_PERCENT, TRAINING
from syncline.install.qos import EOS_MTU_BYTES as MTU
from syncline.install.view import SwitchView

#: Two tiers of Tomahawk 5, of Tomahawk 4, of a deep-buffered chassis, three tiers, rails.
FABRICS: tuple[dict[str, Any], ...] = tuple(
    {"hosts": hosts, "host": {"gpu": "H100", "gpus": 8, "nics": nics, "nic": "ConnectX-7", "link": "400GbE"},
     "network": {"link": "400GbE", "switch": switch, **network}}
    for hosts, nics, switch, network in (
        (8, 2, "7060X6-64PE", {"topology": "leaf-spine", "hosts_per_leaf": 4}),
        (32, 8, "7060DX5-64S", {"topology": "rail-optimized"}),
        (16, 8, "7808R3", {"topology": "leaf-spine", "hosts_per_leaf": 8}),
        (128, 8, "7060DX5-64S", {"topology": "fat-tree"}),
    )
)  # fmt: skip
#: Lines that Arista's templates have no key for, and where they are documented.
OUTSIDE = {
    "ip load-sharing trident fields": "EOS manual, ECMP hash fields of Trident and Tomahawk; in public EOS files",
    "bgp bestpath as-path multipath-relax": "EOS manual, BGP; on by default, which is why templates leave it out",
}


def structured(view: SwitchView) -> dict[str, Any]:
    """Return the switch as Arista's templates take it."""
    rates = sorted({port.rate_Bps for port in view.ports})
    bgp: dict[str, Any] = {
        "as": str(view.address.asn), "router_id": str(view.address.loopback),
        "maximum_paths": {"paths": view.ecmp_width, "ecmp": view.ecmp_width},
        "peer_groups": [{"name": "FABRIC", "timers": "1 3", "send_community": "all"}],
        "neighbor_interfaces": [
            {"name": port.name, "peer_group": "FABRIC", "peer_filter": "ANY"} for port in view.fabric_ports
        ],
        "address_family_ipv4": {
            "networks": [{"prefix": f"{view.address.loopback}/32"}],
            "peer_groups": [{"name": "FABRIC", "activate": True,
                             "next_hop": {"address_family_ipv6": {"enabled": True, "originate": True}}}],
        },
    }  # fmt: skip
    found: dict[str, Any] = {
        "hostname": view.name.replace("/", "-"), "service_routing_protocols_model": "multi-agent", "ip_routing": True,
        "ip_routing_ipv6_interfaces": True, "ipv6_unicast_routing": True,
        "qos": {"map": {
            "dscp": [f"{dscp} to traffic-class {one.queue}" for one in CLASSES for dscp in one.dscp],
            "traffic_class": [f"{one.queue} to tx-queue {one.queue}" for one in CLASSES],
        }},
        "priority_flow_control": {"watchdog": {"timeout": "0.2", "recovery_time": "0.4"}},
        "qos_profiles": [_profile(view, rate) for rate in rates],
        "loopback_interfaces": [
            {"name": "Loopback0", "description": "router id", "ip_address": f"{view.address.loopback}/32"}
        ],
        "ethernet_interfaces": [_port(port) for port in view.ports],
        "peer_filters": [
            {"name": "ANY", "sequence_numbers": [{"sequence": 10, "match": "as-range 1-4294967295 result accept"}]}
        ],
        "router_bgp": bgp,
    }  # fmt: skip
    if view.model.adaptive_routing:
        found["ip_hardware"] = {"fib": {"load_balance_distribution": {"dynamic": {"enabled": True}}}}
    if view.address.prefix:
        bgp["address_family_ipv4"]["networks"].append({"prefix": str(view.address.prefix)})
        found["static_routes"] = [{"prefix": str(view.address.prefix), "interface": "Null0"}]
    return found


def _profile(view: SwitchView, rate_Bps: float) -> dict[str, Any]:
    queues = []
    for one in CLASSES:
        queue: dict[str, Any] = {"id": one.queue, "priority": "priority strict"}
        if one.weight_percent is not None:
            queue |= {"priority": "no priority", "bandwidth_percent": one.weight_percent}
        if one.ecn and view.buffer:
            low, high = view.buffer.mark_from_bytes[rate_Bps], view.buffer.mark_all_bytes[rate_Bps]
            queue["random_detect"] = {"ecn": {"threshold": {
                "units": "bytes", "min": low, "max": high, "max_probability": MAX_MARK_PERCENT, "weight": 0,
            }}}  # fmt: skip
        queues.append(queue)
    flow = {"enabled": True, "priorities": [{"priority": TRAINING.queue, "no_drop": True}]}
    name = f"TRAINING-{round(rate_Bps * 8 / 1e9)}G"
    return {"name": name, "trust": "dscp", "priority_flow_control": flow, "uc_tx_queues": queues}


def _port(port: Any) -> dict[str, Any]:
    found = {
        "name": port.name, "description": f"{port.far_device} {port.far_port}, {port.length_m:g} m", "mtu": MTU,
        "switchport": {"enabled": False}, "service_profile": f"TRAINING-{round(port.rate_Bps * 8 / 1e9)}G",
    }  # fmt: skip
    return found | ({"ip_address": f"{port.host.leaf_address}/31"} if port.host else {"ipv6_enable": True})


def placed(text: str) -> set[tuple[str, ...]]:
    """Return the lines of a configuration, each under its headings."""
    found: set[tuple[str, ...]] = set()
    path: list[str] = []
    for line in text.splitlines():
        word = line.strip()
        if not word or word.startswith("!") or word == "end":
            continue
        depth = (len(line) - len(line.lstrip())) // 3
        path = [*path[:depth], word]
        found.add(tuple(path))
    return found


def run() -> dict[str, Any]:
    """Return how many lines of ours Arista's templates write too."""
    try:
        import pyavd
    except ImportError:
        return {"missing": ["pyavd is not installed: pip install pyavd"]}

    switches, refused, lines, same = 0, [], 0, 0
    outside: dict[str, int] = dict.fromkeys(OUTSIDE, 0)
    strange: set[str] = set()
    unwritten: set[str] = set()
    for cluster in FABRICS:
        built = install(load(cluster), system="eos")
        for view in built.switches:
            switches += 1
            described = structured(view)
            checked = pyavd.validate_structured_config(described).validation_result
            refused += [f"{view.name}: {error.path} {error.message}" for error in checked.violations]
            refused += [f"{view.name}: unknown key {key}" for key in checked.ignored_eos_config_keys]
            theirs = placed(pyavd.get_device_config(described))
            ours = placed(built.files[f"switches/{view.name.replace('/', '-')}/startup-config"])
            lines, same = lines + len(ours), same + len(ours & theirs)
            unwritten |= {" / ".join(path) for path in theirs - ours}
            for path in ours - theirs:
                named = next((name for name in OUTSIDE if path[-1].startswith(name)), None)
                if named is None:
                    strange.add(" / ".join(path))
                else:
                    outside[named] += 1
    return {
        "pyavd": metadata.version("pyavd"), "fabrics": len(FABRICS), "switches": switches, "lines": lines,
        "written_alike": same, "outside": {name: [outside[name], why] for name, why in OUTSIDE.items()},
        "strange": sorted(strange)[:20], "theirs_alone": sorted(unwritten)[:20], "refused": refused[:20],
        "not_shown": "that a switch loads the file: no EOS was run",
    }  # fmt: skip
