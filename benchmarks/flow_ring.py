"""A 1 GiB ring all-reduce on a two-level fat tree, 50 GB/s and 1 us a link: syncline beside SimGrid.

syncline's `cpu_s` is building the fabric, building and proving the schedule, routing and simulating it, in a fresh
process; `process_cpu_s` adds the start of Python and the imports. SimGrid's (peers/simgrid_ring.py) is its whole
process: platform and run, start and imports are lost in it. The closed form is 2(n-1) times 4 us, plus 2(n-1)/n of the
buffer over 50 GB/s: the slowest hop (four links) sets the pace.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from measure import measure
from peer import MissingPeer, simgrid
from syncline.fabric import ClusterSpec, Fabric, Tier, build
from syncline.program import lower, packed
from syncline.schedule import ring as ring_schedule
from syncline.schedule import verify
from syncline.sim.flow.estimate import estimate
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions

SIZE_BYTES = 1 << 30


def plain(fabric: Fabric) -> Fabric:
    """Give every network link 50 GB/s and 1 us, and take the hosts' inner links out of the picture."""
    network = fabric.links.tier >= Tier.ACCESS
    rate = np.where(network, 50e9, 1e12)
    return replace(fabric, links=replace(fabric.links, rate_Bps=rate, latency_s=np.where(network, 1e-6, 0.0)))


def ring(endpoints: int, channels: int = 1) -> dict[str, Any]:
    """Price the ring from nothing."""
    host = {"gpu": "H100", "gpus": 1, "scale_up": "none"}
    network = {"topology": "leaf-spine", "link": "400GbE", "switch": "SN5600"}
    fabric = plain(build(ClusterSpec.model_validate({"hosts": endpoints, "host": host, "network": network})))
    program = lower(verify(ring_schedule(endpoints, channels=channels)), packed(fabric))
    found = estimate(program, FlowNetwork(fabric, NetworkOptions("static", transport="ideal")), SIZE_BYTES)
    slowest = 4e-6 if int(fabric.rack_of_host.max()) > 0 else 2e-6
    closed = 2 * (endpoints - 1) * (slowest + SIZE_BYTES / endpoints / 50e9)
    return {
        "simulated_s": found.time_s,
        "closed_form_s": closed,
        "method": found.method,
        "exact": found.exact,
        "links": len(fabric.links),
        "switches": len(fabric.switches),
        "process_cpu_s": time.process_time(),
    }


def case(endpoints: int, channels: int = 1) -> dict[str, Any]:
    """Return one case of ours with its cost."""
    cost = measure("flow_ring:ring", endpoints=endpoints, channels=channels)
    return {
        "endpoints": endpoints,
        "channels": channels,
        "cpu_s": cost.cpu_s,
        "peak_rss_bytes": cost.peak_rss_bytes,
        **cost.result,
    }


def run() -> dict[str, Any]:
    """Return both sides at 1,024 endpoints, and ours at 4,096."""
    ours = [case(1024), case(4096), case(4096, 8)]
    found = simgrid("simgrid_ring.py", 1024, SIZE_BYTES)
    if isinstance(found, MissingPeer):
        return {"size_bytes": SIZE_BYTES, "syncline": ours, "missing": [str(found)]}
    theirs = {"endpoints": 1024, **found}
    return {
        "size_bytes": SIZE_BYTES,
        "syncline": ours,
        "simgrid": theirs,
        "times_fewer_cpu_s_at_1024": theirs["cpu_s"] / ours[0]["cpu_s"],
        "times_fewer_process_cpu_s_at_1024": theirs["cpu_s"] / ours[0]["process_cpu_s"],
        "difference_of_simulated_time_at_1024": ours[0]["simulated_s"] / theirs["simulated_s"] - 1,
    }
