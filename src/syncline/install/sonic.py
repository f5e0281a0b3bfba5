"""SONiC: the tables of `config_db.json`. JSON has no comments, so `config_db.why.md` gives the reason of each."""

from __future__ import annotations

from math import log2

from syncline.describe.plain import JsonObject
from syncline.install.names import CAGE_LANES, lldp_port
from syncline.install.qos import ALPHA, CLASSES, MAX_MARK_PERCENT, MTU_BYTES, TRAINING, whole_metres
from syncline.install.view import SwitchPort, SwitchView

_TYPES = {1: "ToRRouter", 2: "LeafRouter", 3: "SpineRouter"}
"""SONiC's words for tiers: what we call a spine is a LeafRouter there."""
WHY = {
    "DEVICE_METADATA": "who the switch is; routing comes from frr.conf (split); "
    "the hash seed follows from `type` (0, 10, 25), so it differs by tier",
    "LOOPBACK_INTERFACE": "the router id, reachable over every uplink",
    "PORT": "speed, FEC and MTU of each port in use; the description is the other end",
    "INTERFACE": "host ports have their /31; ports to switches only IPv6 link-local addresses (BGP unnumbered)",
    "DEVICE_NEIGHBOR": "what LLDP must show (SONiC sends a port's alias, a host the interface that its files name); "
    "a difference is a cable in the wrong port",
    "CABLE_LENGTH": "with the speed it names the lossless profile of a port: buffers are traditional, as computed here",
    "DSCP_TO_TC_MAP": "the mark decides the class; anything unknown is default",
    "TC_TO_QUEUE_MAP": "a queue for each class, of the same number",
    "TC_TO_PRIORITY_GROUP_MAP": "only the training class has a priority group of its own",
    "MAP_PFC_PRIORITY_TO_QUEUE": "a pause of priority 3 stops queue 3",
    "SCHEDULER": "what a queue is promised when all are busy; control is strict",
    "WRED_PROFILE": "marks instead of drops: from one round trip of data on",
    "QUEUE": "which scheduler and which marks a queue has",
    "PORT_QOS_MAP": "PFC on the training class only: a pause of others would spread without need",
    "PFC_WD": "a queue paused for 200 ms is drained: a broken NIC must not stop the fabric",
    "BUFFER_POOL": "what is left of the buffer after headroom, by the names that buffermgrd knows; the egress of the "
    "lossless class never drops: pauses bound it at ingress",
    "BUFFER_PROFILE": "headroom (xoff) as computed; dynamic_th -3 is alpha 1/8; buffermgrd takes a profile that is "
    "there under pg_lossless_SPEED_LENGTH_profile instead of its own",
    "BUFFER_PG": "the training class is lossless, group 0 is not",
    "BUFFER_QUEUE": "which egress profile a queue has: the training class is not dropped, the others are",
    "SWITCH_HASH": "queue pairs of one pair of hosts differ in the UDP source port alone: it must be hashed",
}


def tables(view: SwitchView) -> JsonObject:
    """Return the tables as SONiC reads them: every value is text."""
    names = [port.name for port in view.ports]
    ports_and_names: JsonObject = {
        "DEVICE_METADATA": {"localhost": {
            "hostname": view.file_name, "hwsku": view.model.name,
            "type": _TYPES.get(view.level, "LeafRouter"),
            "bgp_asn": str(view.address.asn), "docker_routing_config_mode": "split",
            "buffer_model": "traditional",
        }},
        "LOOPBACK_INTERFACE": {"Loopback0": {}, f"Loopback0|{view.address.loopback}/32": {}},
        "PORT": {port.name: _port(port) for port in view.ports},
        "INTERFACE": _interfaces(view),
        "DEVICE_NEIGHBOR": {p.name: {"name": p.lldp[0], "port": p.lldp[1]} for p in view.ports},
        "CABLE_LENGTH": {"AZURE": {port.name: f"{whole_metres(port.length_m)}m" for port in view.ports}},
        "SWITCH_HASH": {"GLOBAL": {"ecmp_hash": ["SRC_IP", "DST_IP", "IP_PROTOCOL", "L4_SRC_PORT", "L4_DST_PORT"]}},
    }  # fmt: skip
    return ports_and_names | _classes(view, names) | _buffers(view)


def _port(port: SwitchPort) -> JsonObject:
    first = (port.port.cage - 1) * CAGE_LANES + port.port.lane * (CAGE_LANES // port.port.lanes) + 1
    lanes = range(first, first + CAGE_LANES // port.port.lanes)
    return {
        "alias": lldp_port("sonic", port.port),
        "lanes": ",".join(str(lane) for lane in lanes), "index": str(port.port.cage),
        "speed": str(round(port.rate_Bps * 8 / 1e6)), "mtu": str(MTU_BYTES),
        "admin_status": "up", "fec": "rs", "description": f"{port.far_device} {port.far_port}",
    }  # fmt: skip


def _interfaces(view: SwitchView) -> JsonObject:
    rows: JsonObject = {}
    for port in view.ports:
        if port.host:
            rows |= {port.name: {}, f"{port.name}|{port.host.leaf_address}/31": {}}
        else:
            rows[port.name] = {"ipv6_use_link_local_only": "enable"}
    return rows


def _classes(view: SwitchView, names: list[str]) -> JsonObject:
    dscp = {str(value): "0" for value in range(64)}
    dscp |= {str(value): str(one.queue) for one in CLASSES for value in one.dscp}
    queues = {str(n): str(n) for n in range(8)}
    groups = {str(n): str(n) if n == TRAINING.queue else "0" for n in range(8)}
    marks = _marks(view)
    rows: dict[str, dict[str, str]] = {}
    made: JsonObject = {
        "DSCP_TO_TC_MAP": {"AZURE": dscp},
        "TC_TO_QUEUE_MAP": {"AZURE": queues},
        "TC_TO_PRIORITY_GROUP_MAP": {"AZURE": groups},
        "MAP_PFC_PRIORITY_TO_QUEUE": {"AZURE": queues},
        "SCHEDULER": {
            f"scheduler.{one.name}": {"type": "DWRR", "weight": str(share)} if share else {"type": "STRICT"}
            for one in CLASSES for share in (one.weight_percent,)
        },
        "WRED_PROFILE": marks,
        "QUEUE": rows,
        "PORT_QOS_MAP": {name: {
            "dscp_to_tc_map": "AZURE", "tc_to_queue_map": "AZURE", "tc_to_pg_map": "AZURE",
            "pfc_to_queue_map": "AZURE", "pfc_enable": str(TRAINING.queue), "pfcwd_sw_enable": str(TRAINING.queue),
        } for name in names},
        "PFC_WD": {"GLOBAL": {"POLL_INTERVAL": "200"}} | {
            name: {"action": "drop", "detection_time": "200", "restoration_time": "400"} for name in names
        },
    }  # fmt: skip
    for port in view.ports:
        for one in CLASSES:
            row = {"scheduler": f"scheduler.{one.name}"}
            profile = f"ECN_{round(port.rate_Bps * 8 / 1e9)}G"
            if one.ecn and profile in marks:
                row["wred_profile"] = profile
            rows[f"{port.name}|{one.queue}"] = row
    return made


def _marks(view: SwitchView) -> JsonObject:
    if view.buffer is None:
        return {}
    profiles: JsonObject = {}
    for rate, low in view.buffer.mark_from_bytes.items():
        row = {"ecn": "ecn_all"}
        for colour in ("green", "yellow", "red"):
            row |= {
                f"wred_{colour}_enable": "true", f"{colour}_min_threshold": str(low),
                f"{colour}_max_threshold": str(view.buffer.mark_all_bytes[rate]),
                f"{colour}_drop_probability": str(MAX_MARK_PERCENT),
            }  # fmt: skip
        profiles[f"ECN_{round(rate * 8 / 1e9)}G"] = row
    return profiles


def _buffers(view: SwitchView) -> JsonObject:
    if view.buffer is None:
        return {}
    whole = view.buffer.shared_bytes + view.buffer.headroom_bytes
    profiles: JsonObject = {
        "ingress_lossy_profile": {"pool": "ingress_lossless_pool", "size": "0", "dynamic_th": "3"},
        "egress_lossless_profile": {"pool": "egress_lossless_pool", "size": "0", "static_th": str(whole)},
        "egress_lossy_profile": {"pool": "egress_lossy_pool", "size": "0", "dynamic_th": "3"},
    }
    groups: JsonObject = {}
    queues: JsonObject = {}
    exponent = str(round(log2(ALPHA)))
    for buffer in sorted(view.buffer.ports, key=lambda each: each.headroom_bytes):  # of one name the largest
        name = _profile(buffer.rate_Bps, buffer.length_m)
        profiles[name] = {
            "pool": "ingress_lossless_pool", "size": "0", "xoff": str(buffer.headroom_bytes), "dynamic_th": exponent,
        }  # fmt: skip
    for port in view.ports:
        groups[f"{port.name}|0"] = {"profile": "ingress_lossy_profile"}
        groups[f"{port.name}|{TRAINING.queue}"] = {"profile": _profile(port.rate_Bps, port.length_m)}
        for one in CLASSES:
            queues[f"{port.name}|{one.queue}"] = {
                "profile": "egress_lossless_profile" if one.lossless else "egress_lossy_profile"
            }
    shared = str(view.buffer.shared_bytes)
    pools: JsonObject = {
        "ingress_lossless_pool": {
            "type": "ingress", "mode": "dynamic", "size": shared, "xoff": str(view.buffer.headroom_bytes),
        },
        "egress_lossless_pool": {"type": "egress", "mode": "static", "size": str(whole)},
        "egress_lossy_pool": {"type": "egress", "mode": "dynamic", "size": shared},
    }  # fmt: skip
    return {"BUFFER_POOL": pools, "BUFFER_PROFILE": profiles, "BUFFER_PG": groups, "BUFFER_QUEUE": queues}


def _profile(rate_Bps: float, length_m: float) -> str:
    """Return the name under which buffermgrd looks for the lossless profile of a port of this speed and cable."""
    return f"pg_lossless_{round(rate_Bps * 8 / 1e6)}_{whole_metres(length_m)}m_profile"
