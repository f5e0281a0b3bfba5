"""The flow simulator beside SimGrid: a ring on a fat tree, random flows that cannot be folded, and 131,072 GPUs.

Ring: 1 GiB on a two-level fat tree, 50 GB/s and 1 us a link. syncline's `cpu_s` is building the fabric, building and
proving the schedule, routing and simulating it, in a fresh process; `process_cpu_s` adds the start of Python and the
imports. SimGrid's (peers/simgrid_ring.py) is its whole process. The closed form is 2(n-1) times 4 us, plus 2(n-1)/n of
the buffer over 50 GB/s: the slowest hop (four links) sets the pace.

Random flows: both sides get the same 1,024 endpoints, paths, sizes, start times and sharing rule
(peers/simgrid_flows.py). The CPU seconds compared are those of the simulation itself.

131,072 GPUs: a hierarchical all-reduce of 1 GiB in three tiers from nothing; the bound is the bytes over the busiest
link.
"""

from __future__ import annotations

import json
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.measure import measure
from rig.peer import MissingPeer, simgrid
from syncline.fabric import ClusterSpec, Fabric, Tier, build, load
from syncline.program import lower, packed
from syncline.schedule import hierarchical, verify
from syncline.schedule import ring as ring_schedule
from syncline.sim.flow import engine
from syncline.sim.flow.engine import Paths, Tasks
from syncline.sim.flow.estimate import estimate
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions

SIZE_BYTES = 1 << 30
PRESET = "h100-131k-3tier"
RADIX = 32
NUM_HOSTS = RADIX * RADIX
RATE_BPS = 50e9
LATENCY_S = 1e-6
LOADS = (0.15, 0.3)
NUM_FLOWS = 100_000


def run() -> dict[str, Any]:
    """Return the three parts, and which peer was missing."""
    parts = {"ring": rings(), "random": unfolded(), "gpus_131072": large()}
    return {**parts, "missing": sorted({why for part in parts.values() for why in part.pop("missing", [])})}


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


def ring_case(endpoints: int, channels: int = 1) -> dict[str, Any]:
    """Return one case of ours with its cost."""
    cost = measure("flow:ring", endpoints=endpoints, channels=channels)
    return {
        "endpoints": endpoints,
        "channels": channels,
        "cpu_s": cost.cpu_s,
        "peak_rss_bytes": cost.peak_rss_bytes,
        **cost.result,
    }


def rings() -> dict[str, Any]:
    """Return both sides at 1,024 endpoints, and ours at 4,096."""
    ours = [ring_case(1024), ring_case(4096), ring_case(4096, 8)]
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


def random_flows(num_flows: int, load: float, seed: int = 1) -> dict[str, NDArray[Any]]:
    """Return the flows over a fat tree of 32 leaves and 32 spines; the spine is chosen by the destination."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, NUM_HOSTS, num_flows)
    dst = (src + rng.integers(1, NUM_HOSTS, num_flows)) % NUM_HOSTS
    size = np.exp(rng.uniform(np.log(1e5), np.log(1e8), num_flows)).round()
    horizon_s = size.sum() / (NUM_HOSTS * RATE_BPS * load)
    up, down = src, NUM_HOSTS + dst
    climb = 2 * NUM_HOSTS + src // RADIX * RADIX + dst % RADIX
    fall = 3 * NUM_HOSTS + dst // RADIX * RADIX + dst % RADIX
    rows = np.stack((up, climb, fall, down), axis=1)
    near = src // RADIX == dst // RADIX
    keep = np.ones_like(rows, dtype=bool)
    keep[near, 1:3] = False
    start = np.concatenate(([0], np.cumsum(keep.sum(axis=1))))
    return {
        "num_hosts": np.array([NUM_HOSTS]),
        "rate_Bps": np.full(4 * NUM_HOSTS, RATE_BPS),
        "latency_s": np.full(4 * NUM_HOSTS, LATENCY_S),
        "path_start": start.astype(np.int64),
        "path_link": rows[keep].astype(np.int32),
        "src": src,
        "dst": dst,
        "size_bytes": size,
        "start_s": rng.uniform(0, horizon_s, num_flows),
    }


def ours(flows: dict[str, NDArray[Any]]) -> tuple[dict[str, float], NDArray[np.float64]]:
    """Return what the simulation cost here, and when each flow ended."""
    begin = time.process_time()
    delay = np.add.reduceat(flows["latency_s"][flows["path_link"]], flows["path_start"][:-1])
    tasks = Tasks.of(
        Paths(flows["path_start"], flows["path_link"]),
        size_bytes=flows["size_bytes"],
        start_s=flows["start_s"],
        delay_s=delay,
        weight=delay.min() / delay,  # as SimGrid shares: in inverse proportion to latency
    )
    set_up = time.process_time()
    course = engine.run(flows["rate_Bps"], tasks)
    cost = {
        "setup_cpu_s": set_up - begin,
        "run_cpu_s": time.process_time() - set_up,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "num_solves": course.num_solves,
    }
    return cost, course.end_s


def theirs(flows: dict[str, NDArray[Any]]) -> tuple[dict[str, float], NDArray[np.float64]] | MissingPeer:
    """Return the same from SimGrid."""
    with tempfile.TemporaryDirectory() as folder:
        given, answer = Path(folder) / "case.json", Path(folder) / "out.json"
        given.write_text(json.dumps({name: column.tolist() for name, column in flows.items()}))
        cost = simgrid("simgrid_flows.py", given, answer)
        return cost if isinstance(cost, MissingPeer) else (cost, np.array(json.loads(answer.read_text())))


def compare(num_flows: int, load: float) -> dict[str, Any]:
    """Return both sides and how they differ."""
    flows = random_flows(num_flows, load)
    mine, my_end = ours(flows)
    alone = {"load": load, "num_flows": num_flows, "syncline": mine,
             "syncline_flows_per_cpu_s": num_flows / mine["run_cpu_s"]}  # fmt: skip
    found = theirs(flows)
    if isinstance(found, MissingPeer):
        return {**alone, "missing": [str(found)]}
    other, other_end = found
    took, other_took = my_end - flows["start_s"], other_end - flows["start_s"]
    return {
        **alone,
        "simgrid": other,
        "simgrid_flows_per_cpu_s": num_flows / other["run_cpu_s"],
        "speedup": other["run_cpu_s"] / mine["run_cpu_s"],
        "worst_difference_of_completion": float(np.max(np.abs(my_end - other_end) / other_end)),
        "worst_difference_of_duration": float(np.max(np.abs(took - other_took) / other_took)),
    }


def unfolded() -> dict[str, Any]:
    """Return the comparison at each load."""
    cases = [compare(NUM_FLOWS, load) for load in LOADS]
    return {"cases": cases, "missing": sorted({why for each in cases for why in each.pop("missing", [])})}


def price(routing: str) -> dict[str, Any]:
    """Load, build, prove, route and simulate."""
    fabric = load(PRESET)
    program = lower(verify(hierarchical((fabric.num_hosts, 8))), packed(fabric))
    found = estimate(program, FlowNetwork(fabric, NetworkOptions(routing)), SIZE_BYTES)  # type: ignore[arg-type]
    names = ("size_bytes", "time_s", "bound_s", "algorithm", "chunks", "method", "exact", "utilisation", "algbw_Bps")
    figures = {name: getattr(found, name) for name in names}
    return {"gpus": fabric.num_gpus, "links": len(fabric.links), "limiting_link": found.limiting_link_name, **figures}


def large() -> dict[str, Any]:
    """Return cost and answer under static tables (exact) and under ECMP hashing."""
    cases = []
    for routing in ("static", "ecmp"):
        cost = measure("flow:price", routing=routing)
        cases.append(
            {
                "routing": routing,
                "cpu_s": cost.cpu_s,
                "wall_s": cost.wall_s,
                "peak_rss_bytes": cost.peak_rss_bytes,
                **cost.result,
            }
        )
    return {"preset": PRESET, "cases": cases}
