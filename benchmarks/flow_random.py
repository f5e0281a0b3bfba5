"""Where nothing can be folded: random pairs, sizes and start times on a two-level fat tree, syncline beside SimGrid.

Both get the same 1,024 endpoints, paths, sizes and start times and the same sharing rule (see peers/simgrid_flows.py).
Compared are the CPU seconds of the simulation itself; set-up is listed beside them. Two loads: what SimGrid does again
at every event grows with the flows that are connected at that moment, what syncline does again much less.
"""

from __future__ import annotations

import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peer import MissingPeer, simgrid
from syncline.sim.flow import engine
from syncline.sim.flow.engine import Paths, Tasks

RADIX = 32
NUM_HOSTS = RADIX * RADIX
RATE_BPS = 50e9
LATENCY_S = 1e-6
LOADS = (0.15, 0.3)
NUM_FLOWS = 100_000


def case(num_flows: int, load: float, seed: int = 1) -> dict[str, NDArray[Any]]:
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
    flows = case(num_flows, load)
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


def run() -> dict[str, Any]:
    """Return the comparison at each load."""
    cases = [compare(NUM_FLOWS, load) for load in LOADS]
    return {"cases": cases, "missing": sorted({why for each in cases for why in each.pop("missing", [])})}
