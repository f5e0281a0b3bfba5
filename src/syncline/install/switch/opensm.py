"""InfiniBand: partitions, routing hints and quality of service for one subnet manager."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.install.switch.view import SwitchView


def opensm_files(views: Sequence[SwitchView], hosts: Sequence[str]) -> dict[str, str]:
    """Return `opensm.conf`, `partitions.conf`, `root-switches.txt` and `node-name-map` of the fabric."""
    top = max((view.level for view in views), default=1)
    roots = [view.name for view in views if view.level == top]
    adaptive = all(view.model.adaptive_routing for view in views)
    return {
        "opensm.conf": _opensm(adaptive, top),
        "partitions.conf": _partitions(hosts),
        "root-switches.txt": _roots(roots),
        "node-name-map.template": _names(views),
    }


def _opensm(adaptive: bool, top: int) -> str:
    engine = (
        ("ar_updn,updn", "paths by load where the chip can, and never down and up again: no deadlock")
        if adaptive
        else ("ftree,updn", "a tree's own routing: each destination has its own uplink; updn if a cable is out")
    )
    return "\n".join([
        "# one sweep finds every change of state at once; a heavy sweep on a trap, a light one every 10 s",
        "sweep_interval 10",
        f"# {engine[1]}",
        f"routing_engine {engine[0]}",
        f"# the {top}-tier tree's roots, so that up and down are what the cabling means (GUIDs of root-switches.txt)",
        "root_guid_file /etc/opensm/root_guids.conf",
        "# one address for each port: adaptive routing spreads, more addresses would only split it",
        f"lmc {0 if adaptive else 1}",
        "# packets of 4,096 B end to end, as the NICs send them",
        "partition_config_file /etc/opensm/partitions.conf",
        "# service level 0 is training (virtual lane 0), 1 is storage (lane 1): checkpoints must not block gradients",
        "qos TRUE",
        "qos_max_vls 4",
        "qos_sl2vl 0,1,2,3,0,0,0,0,0,0,0,0,0,0,0,15",
        "qos_vlarb_high 0:192,1:64",
        "qos_vlarb_low 2:16,3:16",
        "qos_high_limit 255",
        "# a standby takes over with the same tables",
        "sm_priority 14",
    ]) + "\n"  # fmt: skip


def _partitions(hosts: Sequence[str]) -> str:
    return "\n".join([
        "# every port is a limited member of the default partition (management), a full member of training",
        "Default=0x7fff, ipoib, mtu=5 : ALL=limited, SELF=full ;",
        f"# {len(hosts)} hosts train together; a tenant gets a key of its own: Tenant1=0x8002 : GUID=full, ... ;",
        "# mtu 5 is 4,096 B",
        "Training=0x0001, mtu=5, sl=0 : ALL=full ;",
        "Storage=0x0003, mtu=5, sl=1 : ALL=full ;",
    ]) + "\n"  # fmt: skip


def _roots(roots: Sequence[str]) -> str:
    head = ["# the top tier. GUIDs are known when the switches have power: `ibswitches` lists them; put those of",
            "# these names into /etc/opensm/root_guids.conf, one a line"]  # fmt: skip
    return "\n".join([*head, *roots]) + "\n"


def _names(views: Sequence[SwitchView]) -> str:
    head = (
        "# GUID, then the name of the cable schedule: `ibnetdiscover --node-name-map` then speaks as the schedule does"
    )
    return "\n".join([head, *(f'GUID-OF-{view.name} "{view.name}"' for view in views)]) + "\n"
