"""One all-reduce of 64 MiB over 8,192 hosts, packet by packet: ring inside hosts, halving-doubling across, fat-tree.

Hosts of two GPUs with a 400 Gb/s port each: 16,384 ranks, 268 million packets of 4 KiB over three tiers. Takes minutes;
SYNCLINE_PACKET_HOSTS (a power of two) makes it smaller.

Halving-doubling exchanges half of the buffer with the partner whose number differs in the top bit.
SYNCLINE_PACKET_ORDER says who that is: `near` (default) numbers hosts so that it is the neighbour, as one would on a
tree, and 15/16 of the bytes stay below one leaf; `far` numbers them in the fabric's order, and 15/16 of the bytes cross
all three tiers.
"""

from __future__ import annotations

import os
import resource
import time
from typing import Any

import numpy as np

from syncline.fabric import Fabric, build
from syncline.fabric.spec import ClusterSpec
from syncline.program import Placement, given, lower, packed
from syncline.schedule import Kind, hierarchical, verify
from syncline.sim.packet import PacketJob, PacketOptions, packet_network, prepare

SIZE = 64 << 20


def placed(fabric: Fabric, order: str) -> Placement:
    """Return two ranks a host, hosts in the fabric's order or by their numbers read backwards, bit by bit."""
    if order == "far":
        return packed(fabric)
    gpus = fabric.gpus.reshape(-1, 2)
    backwards = np.zeros(1, np.int64)
    while len(backwards) < len(gpus):
        backwards = np.concatenate((2 * backwards, 2 * backwards + 1))
    return given(fabric, gpus[backwards].ravel().tolist())


def run() -> dict[str, Any]:
    """Return time and memory of the run, and the simulated time."""
    hosts = int(os.environ.get("SYNCLINE_PACKET_HOSTS", "8192"))
    order = os.environ.get("SYNCLINE_PACKET_ORDER", "near")
    began, cpu = time.monotonic(), time.process_time()
    network = {"topology": "fat-tree", "tiers": 3, "link": "NDR"}
    spec = {
        "name": f"fat-tree-{hosts}",
        "hosts": hosts,
        "host": {"gpu": "H100", "gpus": 2, "nics": 2},
        "network": network,
    }
    ports = packet_network(build(ClusterSpec.model_validate(spec)))
    schedule = hierarchical((hosts, 2), Kind.ALL_REDUCE, families=("halving-doubling", "ring"))
    program = lower(verify(schedule), placed(ports.fabric, order))
    changes = {"recovery": "selective", "duplicate_threshold": 1 << 20, "window_bdp": 1.5}
    options = PacketOptions(transport="roce", routing="spray", changes=changes)
    going = prepare(ports, [PacketJob(program, SIZE)], options)
    ready, state = time.monotonic() - began, "running"
    while state == "running":
        state = going.advance(max_events=10_000_000)
    used = time.process_time() - cpu
    outcome = going.outcome(state, used)
    return {
        "hosts": hosts, "order": order, "ranks": 2 * hosts, "size_bytes": SIZE, "state": state,
        "wall_s": time.monotonic() - began, "cpu_s": used, "prepare_s": ready,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "simulated_ms": outcome.end_of_run_s * 1e3, "data_packets": outcome.counters["data_packets"],
        "events": outcome.counters["events"], "packets_per_cpu_s": outcome.data_packets_per_cpu_s,
        "events_per_cpu_s": outcome.events_per_cpu_s, "peak_packets": outcome.counters["peak_packets"],
        "pauses": outcome.counters["pauses"], "drops": outcome.counters["drops"],
    }  # fmt: skip
