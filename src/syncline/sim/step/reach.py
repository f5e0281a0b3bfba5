"""What of the network a rank's groups really get: racks with thin uplinks, and sites with long links between them.

Ranks fill hosts, racks and sites in order, so a ring leaves each rack (or site) once, and its members there share that
way out; experts send to all racks alike. The planner's `plan/reach.py` says the same of thousands of layouts at once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from syncline.fabric.fabric import Fabric, Tier
from syncline.sim.step.machine import Machine
from syncline.workload.parallel import Parallel

BORDER = 4  # level of the routers between sites


def reached(machine: Machine, fabric: Fabric, split: Parallel) -> Machine:
    """Return the machine with the network rate and latency that this layout has on this fabric."""
    num_gpus = split.model_ranks * (split.dp or 1)
    replicas = (split.dp or 1) * split.cp
    links, level = fabric.links, fabric.devices.level
    wan = links.up & (links.tier == Tier.WAN) & (level[links.src] == BORDER) & (level[links.dst] == BORDER)
    if wan.any():
        sites = int(fabric.site_of_host.max()) + 1
        if num_gpus > machine.num_gpus * max(machine.gpu.num_dies, 1) // sites and replicas > 1:
            together = max(1, min(machine.domain // split.tp, replicas))
            share = float(links.rate_Bps[wan].sum()) / sites / (split.tp * split.pp * together)
            # An exchange pays the latency once per doubling of its ranks; the long way is crossed twice in all.
            delay_s = 2 * float(links.latency_s[wan].max()) / float(np.log2(max(replicas, 2)))
            return replace(machine, nic_Bps=min(machine.nic_Bps, share), hop_s=machine.hop_s + delay_s)
        return machine
    racks = np.bincount(fabric.rack_of_host) if fabric.num_hosts else np.ones(1)
    rack_gpus = max(int(racks.max()) * machine.gpus_per_host, machine.gpus_per_host)
    if machine.upper_Bps >= machine.nic_Bps or num_gpus <= rack_gpus:
        return machine
    rate = machine.upper_Bps * max(1, min(rack_gpus // split.tp, replicas))
    if split.ep > rack_gpus:
        away = 1 - (rack_gpus - 1) / (split.ep - 1)
        rate = min(rate, machine.upper_Bps / away)
    return replace(machine, nic_Bps=min(machine.nic_Bps, rate))
