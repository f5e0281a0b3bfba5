"""Completion times beside ns-3 in the same run, and beside what was recorded of htsim.

ns-3 (Debian's libns3-dev) has DCTCP, but neither RoCE nor NDP: RoCE is compared as what it is while nobody is paused,
line rate into queues that nothing fills. A tree with one path a pair: 4 leaves of 8 hosts, one spine, trunks 2 : 1
oversubscribed, 400 Gb/s, 1 us a cable, 4 KiB packets, the same headers, marks in switches from 65 packets on, every
packet acknowledged in the queue of data. ns-3's RED is gentle by default: from MaxTh to twice that it marks by chance,
2 % at first. DCTCP wants a step (RFC 8257, 3.1), so `rows` turn that off; `gentle` has what ns-3 says with it, the one
thing changed. Eight DCTCP flows that begin on a trunk in the same picosecond stay in step; `spread` says what the same
permutation takes when they begin up to so long apart, `thresholds` what it takes by threshold. htsim cannot be had as a
package; its ends of the last flow are those of csg-htsim 841d9e7 on a three-tier tree of 1 us hops:
another permutation, and switches of another make.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rig import peer
from syncline.fabric import ClusterSpec, build
from syncline.sim.packet import (
    Marks,
    PacketNetwork,
    PacketOptions,
    Traffic,
    incast,
    messages,
    packet_network,
    permutation,
    senders,
    simulate,
)

SOURCE = Path(__file__).resolve().parent / "peers" / "ns3_tree.cc"
LIBRARIES = ("core", "network", "internet", "point-to-point", "applications", "traffic-control", "nix-vector-routing",
             "stats")  # fmt: skip
LEAVES, PER_LEAF, TRUNK_GBPS, MARK_PACKETS = 4, 8, 1600, 65
HOSTS = LEAVES * PER_LEAF
THRESHOLDS = (55, 65, 73, 76, 80, 90, 120, 100_000)
SIZES = {"permutation": 1_000_000, "incast": 1_000_000, "all-to-all": 65_536}
SETS: dict[str, dict[str, Any]] = {
    "dctcp": {"header_bytes": 54, "ack_every": 1, "min_window_packets": 1, "acks_with_data": True},
    "line": {"header_bytes": 30, "ack_every": 1},
}
HTSIM = {
    ("ndp", "permutation"): 74.2,
    ("ndp", "incast"): 2652,
    ("roce", "permutation"): 220.9,
    ("roce", "incast"): 2615,
}
"""Last of 128 flows of 2 MB, and of 64 to one receiver, in us."""


def run() -> dict[str, Any]:
    """Return mean and p99 of both in every case, and the last flows beside htsim's."""
    answer: dict[str, Any] = {"htsim_recorded": beside_htsim(), "spread": spread()}
    if lack := peer.ns3():
        return answer | {"missing": [str(lack)]}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "ns3_tree"
        libraries = [f"-lns3-{name}" for name in LIBRARIES]
        command = ["g++", "-O2", "-DNDEBUG", "-std=c++17", "-o", str(program), str(SOURCE), *libraries]
        subprocess.run(command, check=True)
        for transport in SETS:
            for pattern in SIZES:
                theirs, ours = ns3(program, transport, pattern), syncline(transport, pattern)
                rows.append({"transport": transport, "pattern": pattern} | _compare(theirs, ours))
        gentle = [
            {"pattern": pattern}
            | _compare(ns3(program, "dctcp", pattern, marking="gentle"), syncline("dctcp", pattern))
            for pattern in SIZES
        ]
        by_threshold = [
            {"mark_packets": marks}
            | _compare(
                ns3(program, "dctcp", "permutation", marks), syncline("dctcp", "permutation", mark_packets=marks)
            )
            for marks in THRESHOLDS
        ]
    return answer | {"rows": rows, "gentle": gentle, "thresholds": by_threshold}


def ns3(
    program: Path, transport: str, pattern: str, mark_packets: int = MARK_PACKETS, marking: str = "step"
) -> np.ndarray:
    """Return ns-3's completion times."""
    words = [transport, pattern, LEAVES, PER_LEAF, TRUNK_GBPS, SIZES[pattern], mark_packets, 0.1, marking]
    done = subprocess.run([str(program), *map(str, words)], capture_output=True, text=True, check=True)
    return np.array(json.loads(done.stdout)["took_s"])


def spread() -> list[dict[str, float]]:
    """Return DCTCP's permutation when flows do not all begin in the same picosecond."""
    rows = []
    for apart_s in (0.0, 1e-7, 1e-6, 5e-6):
        times_us = syncline("dctcp", "permutation", apart_s) * 1e6
        rows.append({"apart_us": apart_s * 1e6, "mean_us": float(times_us.mean()), "last_us": float(times_us.max())})
    return rows


def syncline(transport: str, pattern: str, apart_s: float = 0.0, mark_packets: int = MARK_PACKETS) -> np.ndarray:
    """Return the packet engine's completion times; messages begin at random within `apart_s`."""
    network = tree()
    ends = senders(network.fabric)
    wire_bytes = 4096 + SETS[transport]["header_bytes"]
    step_s = mark_packets * wire_bytes / network.access_Bps
    options = (
        PacketOptions("dctcp", marks=Marks(step_s, step_s), buffer_bytes=1e9, changes=SETS[transport])
        if transport == "dctcp"
        else PacketOptions("line-rate", lossless=False, buffer_bytes=1e12, alpha=1e3, changes=SETS[transport])
    )
    posted = load(ends, pattern)
    start_s = np.random.default_rng(1).uniform(0, apart_s, len(posted))
    return simulate(network, [replace(posted, start_s=start_s)], options).times_s(0)


def load(ends: np.ndarray, pattern: str) -> Traffic:
    """Return the messages: to the host half the tree on, from the upper half to host 0, or between all."""
    if pattern == "permutation":
        return messages(ends, np.roll(ends, -HOSTS // 2), SIZES[pattern])
    if pattern == "incast":
        return messages(ends[HOSTS // 2 :], ends[0], SIZES[pattern])
    shift = np.repeat(np.arange(1, HOSTS), HOSTS)
    src = np.tile(np.arange(HOSTS), HOSTS - 1)
    return messages(ends[src], ends[(src + shift) % HOSTS], SIZES[pattern])


def tree() -> PacketNetwork:
    """Return leaves under one spine, one cable each."""
    nics = [f"host-{host:02d}/nic-0" for host in range(HOSTS)]
    cables = [{"a": nic, "b": f"leaf-{i // PER_LEAF}", "rate": 50e9, "latency": 1e-6} for i, nic in enumerate(nics)]
    cables += [
        {"a": f"leaf-{leaf}", "b": "spine", "rate": TRUNK_GBPS / 8 * 1e9, "latency": 1e-6} for leaf in range(LEAVES)
    ]
    switches = [{"name": f"leaf-{leaf}", "level": 1} for leaf in range(LEAVES)] + [{"name": "spine", "level": 2}]
    return _explicit(HOSTS, switches, cables)


def fat_tree(half: int = 4) -> PacketNetwork:
    """Return htsim's three tiers of switches with 2 x half ports, 1 us a hop."""
    pods = 2 * half
    hosts = half * half * pods
    switches = [{"name": f"core-{c}", "level": 3} for c in range(half * half)]
    cables = []
    for pod in range(pods):
        for i in range(half):
            switches += [{"name": f"leaf-{pod}-{i}", "level": 1}, {"name": f"agg-{pod}-{i}", "level": 2}]
            cables += [(f"leaf-{pod}-{i}", f"agg-{pod}-{j}") for j in range(half)]
            cables += [(f"agg-{pod}-{i}", f"core-{i * half + j}") for j in range(half)]
    leaf = [f"leaf-{h // (half * half)}-{h // half % half}" for h in range(hosts)]
    cables += [(f"host-{h:0{len(str(hosts - 1))}d}/nic-0", leaf[h]) for h in range(hosts)]
    return _explicit(hosts, switches, [{"a": a, "b": b, "rate": 50e9, "latency": 1e-6} for a, b in cables])


def beside_htsim() -> list[dict[str, Any]]:
    """Return the end of the last flow on htsim's tree, and what htsim was recorded to say."""
    network = fat_tree()
    loads = {"permutation": permutation(network.fabric, 2e6), "incast": incast(network.fabric, 64, 2e6)}
    rows = []
    for (transport, pattern), recorded_us in HTSIM.items():
        options = PacketOptions(transport, pause_bytes=50_000 if transport == "roce" else 0)
        found = simulate(network, [loads[pattern]], options)
        times_us = found.times_s(0) * 1e6
        rows.append({
            "transport": transport, "pattern": pattern, "htsim_last_us": recorded_us,
            "last_us": float(times_us.max()), "mean_us": float(times_us.mean()),
            "difference": float(times_us.max() / recorded_us - 1),
        })  # fmt: skip
    return rows


def _explicit(hosts: int, switches: list[dict[str, Any]], cables: list[dict[str, Any]]) -> PacketNetwork:
    spec = {"hosts": hosts, "host": {"gpu": "H100", "gpus": 1, "nics": 1},
            "network": {"topology": "explicit", "switches": switches, "cables": cables}}  # fmt: skip
    return packet_network(build(ClusterSpec.model_validate(spec)))


def _compare(theirs: np.ndarray, ours: np.ndarray) -> dict[str, Any]:
    found: dict[str, Any] = {"messages": len(ours), "unfinished_ns3": int((theirs < 0).sum())}
    theirs = theirs[theirs >= 0]
    for name, value in (("mean", np.mean), ("p99", lambda x: np.quantile(x, 0.99, method="inverted_cdf"))):
        a, b = float(value(theirs)), float(value(ours))
        found |= {f"{name}_ns3_us": a * 1e6, f"{name}_us": b * 1e6, f"{name}_difference": b / a - 1}
    return found
