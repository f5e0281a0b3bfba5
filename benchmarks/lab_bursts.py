"""Microbursts: what counters read every millisecond show and averages over a second hide.

Two hosts send a block of 200 KB to a third every 250 ms, as ranks do at the end of a step: the link to the third is
full for tens of milliseconds, its queue grows, and on the average it is hardly used.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from syncline.fabric import load
from syncline.lab import Lab

FLAT = Path(__file__).resolve().parent.parent / "examples" / "lab-flat.yaml"
SCALE = 0.1
BLOCK_BYTES = 200_000
PERIOD_S = 0.25
STEPS = 20
_SENDER = """
import socket, sys, time
address, block, period, steps, start = sys.argv[1], int(sys.argv[2]), *map(float, sys.argv[3:])
stream = socket.create_connection((address, 5000))
for step in range(int(steps)):
    time.sleep(max(0.0, start + step * period - time.monotonic()))
    stream.sendall(bytes(block))
"""
_RECEIVER = """
import socket
listener = socket.create_server(("", 5000))
print("up", flush=True)
streams = [listener.accept()[0] for _ in range(2)]
import threading
def drain(stream):
    while stream.recv(1 << 18):
        pass
threads = [threading.Thread(target=drain, args=(s,)) for s in streams]
[t.start() for t in threads]
[t.join() for t in threads]
"""


def run() -> dict[str, Any]:
    """Send the blocks, record the counters, and look at the same link over four lengths of time."""
    with Lab(load(FLAT), scale=SCALE) as lab:
        receiver = lab.spawn("host-00", [sys.executable, "-c", _RECEIVER])
        while "up" not in receiver.lines["stdout"]:
            time.sleep(0.01)
        start = time.monotonic() + 1.5
        words = [str(BLOCK_BYTES), str(PERIOD_S), str(STEPS), repr(start)]
        senders = [
            lab.spawn(host, [sys.executable, "-c", _SENDER, lab.address("host-00"), *words])
            for host in ("host-01", "host-02")
        ]
        time.sleep(max(0.0, start - time.monotonic() - 0.05))
        with lab.counters(queue_interval_s=0.001) as recording:
            for sender in senders:
                sender.wait(60)
        counters = recording.counters
    name = "leaf-00 -> host-00/nic-0"
    peaks = {}
    for label, bin_s in (("1 s", 1.0), ("100 ms", 0.1), ("20 ms", 0.02), ("5 ms", 0.005)):
        names, use = counters.utilisation(bin_s)
        row = use[names.index(name)]
        whole = row[: max(1, len(row) - 1)]
        peaks[label] = round(float(np.max(whole)), 3)
    bursts = [burst for burst in counters.bursts(window_s=0.005) if burst.link == name]
    ends = np.unique(counters.samples["end_s"])
    return {
        "link": name,
        "rate_Mbps": counters.links()[next(k for k, v in counters.links().items() if v[0] == name)][1] * 8e-6,
        "senders": 2,
        "block_bytes": BLOCK_BYTES,
        "period_s": PERIOD_S,
        "steps": STEPS,
        "peak_utilisation_by_window": peaks,
        "num_bursts": len(bursts),
        "median_burst_ms": round(1e3 * float(np.median([burst.duration_s for burst in bursts])), 1) if bursts else None,
        "average_in_those_seconds": round(float(np.mean([burst.average for burst in bursts])), 3) if bursts else None,
        "longest_queue_bytes": counters.peak_backlog_bytes()[name],
        "median_ms_between_samples": round(1e3 * float(np.median(np.diff(ends))), 3),
        "p99_ms_between_samples_when_busy": round(
            1e3 * float(np.quantile(np.diff(ends)[np.diff(ends) < 0.1], 0.99)), 3
        ),
    }


if __name__ == "__main__":
    import json

    print(json.dumps(run(), indent=2))
