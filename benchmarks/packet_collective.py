"""One all-reduce of 64 MiB over 8,192 hosts, packet by packet: ring inside hosts, halving-doubling across, fat-tree.

Hosts of two GPUs with a 400 Gb/s port each: 16,384 ranks, 268 million packets of 4 KiB over three tiers. Takes minutes;
SYNCLINE_PACKET_HOSTS makes it smaller.
"""

from __future__ import annotations

import os
import resource
import time
from typing import Any

from syncline.fabric import build
from syncline.fabric.spec import ClusterSpec
from syncline.program import lower, packed
from syncline.schedule import Kind, hierarchical, verify
from syncline.sim.packet import Job, PacketOptions, packet_network, prepare

SIZE = 64 << 20


def run() -> dict[str, Any]:
    """Return time and memory of the run, and the simulated time."""
    hosts = int(os.environ.get("SYNCLINE_PACKET_HOSTS", "8192"))
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
    program = lower(verify(schedule), packed(ports.fabric))
    changes = {"recovery": "selective", "duplicate_threshold": 1 << 20, "window_bdp": 1.5}
    options = PacketOptions(transport="roce", routing="spray", changes=changes)
    going = prepare(ports, [Job(program, SIZE)], options)
    ready, state = time.monotonic() - began, "running"
    while state == "running":
        state = going.advance(max_events=10_000_000)
    used = time.process_time() - cpu
    outcome = going.outcome(state, used)
    return {
        "hosts": hosts, "ranks": 2 * hosts, "size_bytes": SIZE, "state": state, "wall_s": time.monotonic() - began,
        "cpu_s": used, "prepare_s": ready, "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "simulated_ms": outcome.end_of_run_s * 1e3, "data_packets": outcome.counters["data_packets"],
        "events": outcome.counters["events"], "packets_per_cpu_s": outcome.data_packets_per_cpu_s,
        "events_per_cpu_s": outcome.events_per_cpu_s, "peak_packets": outcome.counters["peak_packets"],
        "pauses": outcome.counters["pauses"], "drops": outcome.counters["drops"],
    }  # fmt: skip
