"""The last and the mean completion of drawn cases beside csg-htsim in the same run, and packets a CPU second of both.

htsim is no package: build `htsim_ndp` and `htsim_roce` of github.com/Broadcom/csg-htsim and name their folder in
SYNCLINE_HTSIM. A three-tier fat-tree of 128 hosts at 400 Gb/s, 1 us a hop, 4 KiB packets; each case has the same hosts,
sizes and first window in both. `-strat perm` sends the packets of a flow over all paths in a random order, as here.
htsim counts queues in packets without their header and with the one being sent: `-q 10` holds nine, as eight that wait
do here. It writes down when a sender has the last acknowledgement: what that takes over idle links is taken off.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from packet_fct import fat_tree
from syncline.sim.packet import PacketNetwork, PacketOptions, messages, senders, simulate

HOSTS, PAYLOAD, SEED = 128, 4096, 50
PER_LEAF, PER_POD = 4, 16
HOP_US = 1 + 64 * 8 / 400e3
"""Of an acknowledgement."""
FLAGS = {
    "ndp": "htsim_ndp -nodes 128 -strat perm -mtu 4096 -linkspeed 400000 -q 10 -cwnd {window} -end 100000",
    "roce": "htsim_roce -nodes 128 -strat ecmp_host -paths 1 -mtu 4096 -linkspeed 400000 -q 100 -end 100000",
}


def run() -> dict[str, Any]:
    """Return both figures of every case, with the command of htsim."""
    folder = os.environ.get("SYNCLINE_HTSIM", "")
    if not Path(folder, "htsim_ndp").exists():
        return {"missing": ["htsim: set SYNCLINE_HTSIM to the folder of its programs"]}
    network = fat_tree()
    rows = [_compare(network, folder, **case) for case in drawn()]
    last = [row["last_difference"] for row in rows]
    near = sum(abs(difference) <= 0.1 for difference in last)
    return {"rows": rows, "cases": len(rows), "within_tenth": near, "worst_last_difference": max(last, key=abs)}


def drawn() -> list[dict[str, Any]]:
    """Return the cases: who sends to whom, how much, over which transport and with which first window."""
    random, cases = np.random.default_rng(SEED), []
    for _ in range(25):
        order = random.permutation(HOSTS)
        cases.append({"transport": "ndp", "pattern": "permutation", "src": order, "dst": np.roll(order, 1),
                      "size": int(random.integers(2, 16)) * 250_000,
                      "window": int(random.integers(40, 240))})  # fmt: skip
    for transport in 15 * ("ndp",) + 10 * ("roce",):
        order = random.permutation(HOSTS)
        count = int(random.integers(8, 64))
        cases.append({"transport": transport, "pattern": f"incast of {count}", "src": order[1 : count + 1],
                      "dst": np.full(count, order[0]), "size": int(random.integers(1, 5)) * 250_000,
                      "window": int(random.integers(40, 240))})  # fmt: skip
    return cases


def _compare(
    network: PacketNetwork, folder: str, transport: str, pattern: str, src: np.ndarray, dst: np.ndarray, size: int,
    window: int,
) -> dict[str, Any]:  # fmt: skip
    ends = senders(network.fabric)
    changes = {"window_packets": window} if transport == "ndp" else {}
    options = PacketOptions(transport, changes=changes)
    ours = simulate(network, [messages(ends[src], ends[dst], size)], options)
    ours_us = ours.times_s(0) * 1e6
    flags = FLAGS[transport].format(window=window)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    theirs_us = _htsim(folder, flags, src, dst, size)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    packets = len(src) * -(-size // PAYLOAD)
    return {
        "transport": transport, "pattern": pattern, "size_bytes": size, "window_packets": window, "htsim": flags,
        "htsim_last_us": float(theirs_us.max()), "last_us": float(ours_us.max()),
        "last_difference": float(ours_us.max() / theirs_us.max() - 1),
        "mean_difference": float(ours_us.mean() / theirs_us.mean() - 1), "trims": ours.counters["trims"],
        "unfinished_htsim": len(src) - len(theirs_us), "htsim_packets_per_cpu_s": packets / cpu_s,
        "packets_per_cpu_s": ours.data_packets_per_cpu_s,
    }  # fmt: skip


def _htsim(folder: str, flags: str, src: np.ndarray, dst: np.ndarray, size: int) -> np.ndarray:
    """Return when the last byte of each flow arrived, us."""
    name, *words = flags.split()
    pairs = enumerate(zip(src, dst, strict=True), 1)
    lines = [f"Nodes {HOSTS}", f"Connections {len(src)}"]
    lines += [f"{a}->{b} id {i} start 0 size {size}" for i, (a, b) in pairs]
    with tempfile.TemporaryDirectory() as place:
        matrix = Path(place, "pairs.cm")
        matrix.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [str(Path(folder, name)), "-tm", str(matrix), "-conns", str(len(src)), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=place)
    ends = np.array(re.findall(r"_(\d+)_(\d+) .*finished at ([\d.]+)", done.stdout), float)
    apart = [(ends[:, 0] // size != ends[:, 1] // size).astype(int) for size in (PER_LEAF, PER_POD)]
    acknowledged: np.ndarray = ends[:, 2] - HOP_US * 2 * (1 + sum(apart))
    return acknowledged
