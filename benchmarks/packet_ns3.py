"""The packet engine beside ns-3 in the same run: DCTCP, leaf-spine of 128 hosts, permutation and incast of 2 MB.

Needs Debian's libns3-dev and g++; without them syncline is measured alone. Both sides get the same pairs, sizes,
rates, packet size and marking threshold, and one path a pair (ns-3's nix-vector, syncline's `first`), so all cross one
spine. Events are not the same unit of work in the two (syncline has one a packet and hop and one more where it waits,
ns-3 two or three), so packet-hops, data and acknowledgements over every link, are given as well. CPU seconds are those
of the run, without building.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import peer
from syncline.fabric import ClusterSpec, build
from syncline.sim.packet import Marks, Outcome, PacketOptions, Traffic, messages, packet_network, senders, simulate

SOURCE = Path(__file__).resolve().parent / "peers" / "ns3_leaf_spine.cc"
LEAVES, PER_LEAF, SPINES, SIZE_BYTES, MARK_PACKETS, UNTIL_S = 8, 16, 8, 2_000_000, 20, 0.02
HOSTS = LEAVES * PER_LEAF
LIBRARIES = ("core", "network", "internet", "point-to-point", "applications", "traffic-control", "nix-vector-routing",
             "stats")  # fmt: skip
PATTERNS = ("permutation", "incast")


def run() -> dict[str, Any]:
    """Return events and packet-hops a CPU second of both, and how many times ns-3 syncline does."""
    if lack := peer.ns3():
        rows = [{"pattern": pattern, "hosts": HOSTS, "syncline": syncline(pattern)} for pattern in PATTERNS]
        return {"rows": rows, "missing": [str(lack)]}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "ns3_leaf_spine"
        libraries = [f"-lns3-{name}" for name in LIBRARIES]
        subprocess.run(
            ["g++", "-O3", "-DNDEBUG", "-std=c++17", "-o", str(program), str(SOURCE), *libraries], check=True
        )
        for pattern in PATTERNS:
            theirs, ours = ns3(program, pattern), syncline(pattern)
            times = {f"times_ns3_{unit}": ours[f"{unit}_per_cpu_s"] / theirs[f"{unit}_per_cpu_s"]
                     for unit in ("events", "packet_hops", "messages")}  # fmt: skip
            rows.append({"pattern": pattern, "hosts": HOSTS, "ns3": theirs, "syncline": ours, **times})
    version = subprocess.run(["dpkg-query", "-W", "-f=${Version}", "libns3-dev"], capture_output=True, text=True,
                             check=False).stdout  # fmt: skip
    return {"ns3_version": version, "rows": rows}


def ns3(program: Path, pattern: str) -> dict[str, Any]:
    """Return what ns-3 did."""
    words = [str(each) for each in (LEAVES, PER_LEAF, SPINES, SIZE_BYTES, MARK_PACKETS, UNTIL_S)]
    done = subprocess.run([str(program), pattern, *words], capture_output=True, text=True, check=True)
    return _rates(json.loads(done.stdout))


def syncline(pattern: str) -> dict[str, Any]:
    """Return what the packet engine did, the best of five runs, which all take the same course."""
    network = packet_network(build(ClusterSpec.model_validate({
        "hosts": HOSTS, "host": {"gpu": "H100", "gpus": 1, "nics": 1},
        "network": {"topology": "fat-tree", "tiers": 2, "link": "NDR", "hosts_per_leaf": PER_LEAF},
    })))  # fmt: skip
    step_s = MARK_PACKETS * (4096 + 78) / network.access_Bps
    options = PacketOptions("dctcp", "first", marks=Marks(step_s, step_s))
    found = [simulate(network, [load(senders(network.fabric), pattern)], options) for _ in range(5)]
    best = min(found, key=lambda each: each.cpu_s)
    return _rates(_figures(best)) | {"cpu_s_all": [each.cpu_s for each in found]}


def load(ends: np.ndarray[Any, np.dtype[np.int64]], pattern: str) -> Traffic:
    """Return the messages: everyone to the host half the fabric on, or the upper half to host 0."""
    if pattern == "permutation":
        return messages(ends, np.roll(ends, -HOSTS // 2), SIZE_BYTES)
    return messages(ends[HOSTS // 2 :], ends[0], SIZE_BYTES)


def _figures(outcome: Outcome) -> dict[str, Any]:
    return {
        "events": outcome.counters["events"], "packet_hops": int(outcome.ports["packets"].sum()),
        "messages": outcome.completion.count, "finished": outcome.completion.count,
        "last_end_s": outcome.end_of_run_s, "cpu_s": outcome.cpu_s,
    }  # fmt: skip


def _rates(figures: dict[str, Any]) -> dict[str, Any]:
    cpu_s = figures["cpu_s"]
    rates = {"events": figures["events"], "packet_hops": figures["packet_hops"], "messages": figures["finished"]}
    return figures | {f"{name}_per_cpu_s": count / cpu_s for name, count in rates.items()}
