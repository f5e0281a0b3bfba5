"""InfiniBand: partitions, routing hints and quality of service for the subnet manager of each subnet."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.install.names import file_name
from syncline.install.switch.view import SwitchView

GUIDS = r"""#!/bin/sh -e
# Fills in the GUIDs once the switches have power and their names: root_guids.conf for opensm, and node-name-map, with
# which `ibnetdiscover --node-name-map` speaks as the cable schedule does. Run it on a host of this subnet.
cd "$(dirname "$0")"
ibswitches | awk '
  NR == FNR { if ($1 !~ /^#/) tier[$1] = $2; next }
  { split($0, part, "\""); name = part[2]; sub(/^MF0;/, "", name); sub(/:.*/, "", name)
    if (name in tier) { guid[name] = $3 } }
  END {
    printf "" > "root_guids.conf"; printf "" > "node-name-map"
    for (name in tier) {
      if (!(name in guid)) {
        print "no switch is called " name ": set its name, then run this again" | "cat 1>&2"
        bad = 1
        continue
      }
      print guid[name] " \"" name "\"" > "node-name-map"
      if (tier[name] == "root") print guid[name] > "root_guids.conf"
    }
    exit bad
  }' switches.txt -
"""


def opensm_files(views: Sequence[SwitchView], hosts: Sequence[str]) -> dict[str, str]:
    """Return the files of every subnet: `opensm.conf`, `partitions.conf`, `switches.txt` and `guids.sh`.

    Switches that no cable joins, as in planes, are subnets with a manager and a folder each.
    """
    apart = _subnets(views)
    files: dict[str, str] = {}
    for number, subnet in enumerate(apart):
        folder = f"subnet-{number}/" if len(apart) > 1 else ""
        top = max(view.level for view in subnet)
        adaptive = all(view.model.adaptive_routing for view in subnet)
        files |= {
            f"{folder}opensm.conf": _opensm(adaptive, top),
            f"{folder}partitions.conf": _partitions(hosts),
            f"{folder}switches.txt": _switches(subnet, top),
            f"{folder}guids.sh": GUIDS,
        }
    return files


def _subnets(views: Sequence[SwitchView]) -> list[list[SwitchView]]:
    """Return the switches that cables join, in the order of their first switch."""
    of = {view.name: view for view in views}
    left, found = dict.fromkeys(of), []
    while left:
        reached, edge = {}, [next(iter(left))]
        while edge:
            name = edge.pop()
            if name in left:
                del left[name]
                reached[name] = of[name]
                edge += [port.far_device for port in of[name].fabric_ports if port.far_device in of]
        found.append([view for view in views if view.name in reached])
    return found


def _opensm(adaptive: bool, top: int) -> str:
    engine = [
        "# by load where the chip can, and never down and up again: no deadlock. ar_updn is NVIDIA's opensm (UFM,",
        "# DOCA-OFED); that of a distribution logs that it cannot find it and takes updn: fixed paths, spread evenly",
        "routing_engine ar_updn,updn",
    ] if adaptive else [
        "# a tree's own routing: each destination has its own uplink; updn if a cable is out",
        "routing_engine ftree,updn",
    ]  # fmt: skip
    return "\n".join([
        "# one sweep finds every change of state at once; a heavy sweep on a trap, a light one every 10 s",
        "sweep_interval 10",
        *engine,
        f"# the {top}-tier tree's roots, so that up and down are what the cabling means; guids.sh writes this file",
        "root_guid_file /etc/opensm/root_guids.conf",
        "# one address for each port: adaptive routing spreads by itself, and ftree takes no more than one",
        "lmc 0",
        "# keys of the partitions, and packets of 4,096 B end to end, as the NICs send them",
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
        f"# {len(hosts)} hosts train together; a tenant gets a key of its own: Tenant1=0x0002 : GUID=full, ... ;",
        "# mtu 5 is 4,096 B",
        "Training=0x0001, mtu=5, sl=0 : ALL=full ;",
        "Storage=0x0003, mtu=5, sl=1 : ALL=full ;",
    ]) + "\n"  # fmt: skip


def _switches(views: Sequence[SwitchView], top: int) -> str:
    head = "# the names that the switches are given, and which of them are the top tier: guids.sh looks them up"
    rows = (f"{file_name(view.name)} {'root' if view.level == top else view.tier}" for view in views)
    return "\n".join([head, *rows]) + "\n"
