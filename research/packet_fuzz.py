"""Packet runs of drawn configurations: each ends by itself, with a verdict that its counters bear out.

A case is a small fabric, a transport with some of its numbers changed, switches with little or much buffer, loss,
traffic that may wait for other traffic, a second class and links that fail. No run is given an end. `finished` means
that every byte arrived; `deadlock` names its circle; `stalled` has a link that never comes back whole, or loses
MUCH_LOSS, and like `livelock` messages that never ended. What a description forbids is refused. Whatever takes more
than LIMIT_S of CPU time, ends the process or raises otherwise is a failure, kept with its seed.

    python -m research.packet_fuzz [CASES [FIRST [JOBS [SECONDS]]]]
    python -m research.packet_fuzz case SEED            one case, in this process
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from syncline.errors import SimulationError
from syncline.fabric import load
from syncline.sim.packet import (
    LinkChange,
    Marks,
    PacketNetwork,
    PacketOptions,
    Traffic,
    TrafficClass,
    messages,
    packet_network,
    senders,
    simulate,
    transport_sets,
)
from syncline.sim.packet.options import ROUTINGS

CASES, LIMIT_S = 200_000, 60
MUCH_LOSS = 0.3
"""Of the packets on a link: over four and back one try of 17 is acknowledged, and timers back off for seconds."""
CHUNK = 250
"""Cases that one process runs."""
ONE = {"gpu": "H100", "gpus": 1, "nics": 1, "nic": "ConnectX-7", "link": "NDR"}
TREE = {"topology": "fat-tree", "link": "NDR"}
FABRICS: tuple[dict[str, Any], ...] = (
    {"hosts": 9, "host": ONE, "network": TREE | {"tiers": 1}},
    {"hosts": 16, "host": ONE, "network": TREE | {"tiers": 2, "hosts_per_leaf": 4}},
    {"hosts": 16, "host": ONE, "network": TREE | {"tiers": 2, "hosts_per_leaf": 4, "oversubscription": "4:1"}},
    {"hosts": 16, "host": ONE, "network": TREE | {"tiers": 3, "hosts_per_leaf": 2, "leaves_per_pod": 2}},
    {"hosts": 36, "host": ONE, "network": {
        "topology": "dragonfly", "link": "NDR", "endpoints_per_switch": 2, "switches_per_group": 3, "groups": 6,
        "cables_per_group_pair": 1}},
    {"hosts": 8, "host": "8 x H100", "network": "rail-optimized NDR"},
    {"hosts": 4, "host": "8 x H100", "network": "rail-only NDR"},
    {"hosts": 12, "host": ONE, "network": {"topology": "torus", "link": "NDR", "of": "hosts", "shape": [2, 2, 3]}},
    {"sites": [{"name": name, "hosts": 4, "host": ONE, "network": TREE | {"tiers": 1}} for name in ("a", "b")],
     "wan": {"rate": "100Gbps", "latency": "200us"}},
)  # fmt: skip
CHANGED: dict[str, tuple[Any, ...]] = {
    "window_packets": (1, 2, 9, 60, 400), "min_window_packets": (1, 2), "window_bdp": (0.1, 1.0, 8.0),
    "max_window_bdp": (0.5, 2.0, 30.0), "timeout": ("5us", "50us", "200us", "1ms"), "ack_every": (1, 2, 16, 64),
    "trims": (True, False), "trim_tail": (0.0, 0.5, 1.0), "headers_ahead": (0, 1, 10), "queue_packets": (0, 2, 8, 50),
    "recovery": ("selective", "go-back-n"), "spread": ("flow", "flowlet", "packet", "recycle"),
    "lossless": (True, False), "header_bytes": (1, 64, 200), "duplicate_threshold": (1, 3, 30), "gain": (0.01, 1.0),
    "decrease": (0.1, 0.5, 0.9), "slot": ("1us", "5us", "50us"), "guard": ("0s", "100ns"), "tail_probe": (True, False),
    "flowlet_gap": ("1us", "100us"), "reorder": ("0s", "10us"), "min_share": (0.0001, 0.1), "few_packets": (1, 3),
    "window_follows_rate": (True, False), "rate_timer": ("1us", "55us"), "cnp_interval": ("0s", "50us"),
}  # fmt: skip


@cache
def network(number: int) -> PacketNetwork:
    """Return one of the fabrics, ready for packets."""
    return packet_network(load({"name": "fuzz", **FABRICS[number]}))


def run_case(seed: int) -> str:
    """Return the verdict of a case, `refused` where its description is, or what is wrong after `failed:`."""
    chance = np.random.default_rng(seed)

    def pick(*values: Any) -> Any:
        return values[int(chance.integers(len(values)))]

    fabric = network(int(chance.integers(len(FABRICS))))
    changes = {name: pick(*CHANGED[name]) for name in CHANGED if chance.random() < pick(0.0, 0.05, 0.3)}
    low = pick(0.0, 1e-6, 20e-6)
    try:
        options = PacketOptions(
            transport=pick(*sorted(transport_sets())), routing=pick(*ROUTINGS), seed=int(chance.integers(1000)),
            queue_pairs=pick(1, 1, 3), payload_bytes=pick(64, 256, 512, 1434, 4096, 9000),
            switching=pick("store-and-forward", "cut-through"), buffer_bytes=pick(2e4, 2e5, 2e6, 64e6),
            buffer_s=pick(0.0, 0.0, 1e-6), alpha=pick(0.05, 0.25, 1.0, 8.0), queue_bytes=pick(0, 0, 0, 9_500, 50_000),
            pause_bytes=pick(0, 0, 20_000), lossless=pick(None, None, False, True),
            headroom_bytes=pick(None, None, None, 0, 30_000),
            marks=pick(None, None, Marks(low, low * pick(1.0, 4.0), pick(0.01, 1.0))),
            loss=pick(0.0, 0.0, 0.001, 0.02, MUCH_LOSS), weight=pick(0, 2),
            credit_bytes=pick(None, None, 10_000, 200_000),
            ugal_bias_packets=pick(0.0, 2.0), message_s=pick(0.0, 2e-6), changes=changes,
            cross_rail=pick("fabric", "nvlink"), skips_steady=pick(False, False, True),
            classes=(TrafficClass("other", pick(*sorted(transport_sets())), pick(0, 1)),),
        )  # fmt: skip
        traffic, changes_of_links = drawn(fabric, chance), faults(fabric, chance)
        outcome = simulate(fabric, [traffic], options, changes=changes_of_links)
    except SimulationError:
        return "refused"
    counters = outcome.counters
    missing = counters["total_bytes"] - counters["delivered_bytes"]
    ended = bool((outcome.end_s >= 0).all())
    last = {change.link // 2: change.factor for change in sorted(changes_of_links, key=lambda each: each.time_s)}
    borne_out = {
        "finished": missing == 0 and ended, "deadlock": bool(outcome.cycle) and not ended,
        "stalled": not ended and (options.loss >= MUCH_LOSS or min(last.values(), default=1.0) < 1.0),
        "livelock": not ended,
    }  # fmt: skip
    if not borne_out.get(outcome.state, False):
        return f"failed: {outcome.state}, {missing:,} bytes missing, all ended: {ended}"
    return outcome.state


def drawn(network: PacketNetwork, chance: np.random.Generator) -> Traffic:
    """Return messages between ends of one island, some after others, all in one class or dealt to both."""
    ends = senders(network.fabric)
    count = int(chance.choice([1, 4, 20, 60]))
    src = chance.integers(0, len(ends), count)
    dst = (src + chance.integers(1, len(ends), count)) % len(ends)
    if chance.random() < 0.3:  # to one receiver
        dst = np.where(src == dst[0], dst, dst[0])
    size = chance.integers(1, int(chance.choice([500, 20_000, 300_000])), count)
    found = messages(ends[src], ends[dst], size, chance.uniform(0, chance.choice([0.0, 20e-6, 1e-3]), count))
    if chance.random() < 0.3:
        waits = np.where(np.arange(count) > 0, chance.integers(0, 2, count), 0)
        for_whom = np.array([int(chance.integers(i)) for i in np.flatnonzero(waits)], dtype=np.int64)
        found = replace(found, num_waits=waits.astype(np.int64), waits_for=for_whom)
    if chance.random() < 0.4:
        found = replace(found, traffic_class=chance.integers(0, 2, count).astype(np.int64))
    return replace(found, connections="shared") if chance.random() < 0.3 else found


def faults(network: PacketNetwork, chance: np.random.Generator) -> list[LinkChange]:
    """Return links that fail, slow down, come back or stay as they are."""
    found: list[LinkChange] = []
    links = network.link[network.link >= 0]
    for _ in range(int(chance.choice([0, 0, 1, 3]))):
        link, reroute_s = int(chance.choice(links)), (None, 10e-6, 1e-3)[int(chance.integers(3))]
        at = float(chance.uniform(0, 50e-6))
        found.append(LinkChange(at, link, float(chance.choice([0.0, 0.0, 0.01, 0.5])), reroute_s))
        if chance.random() < 0.6:
            found.append(LinkChange(at + float(chance.uniform(1e-6, 1e-3)), link, 1.0, 0.0))
    return found


def chunk(first: int, count: int, until: float) -> tuple[Counter[str], list[str]]:
    """Run cases in processes of their own, a new one behind each case that ends its process."""
    verdicts, failures, at = Counter[str](), list[str](), first
    while at < first + count and time.monotonic() < until:
        command = [sys.executable, "-m", "research.packet_fuzz", "cases", str(at), str(first + count - at), f"{until}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        for line in lines:
            seed, _, verdict = line.partition(" ")
            verdicts[verdict.partition(":")[0]] += 1
            if verdict.startswith("failed"):
                failures.append(f"{seed} {verdict}")
        at += len(lines)
        if done.returncode:
            verdicts["failed"] += 1
            why = f"ended by signal {-done.returncode}" if done.returncode < 0 else done.stderr.strip()
            failures.append(f"{at} failed: {(why or 'ended').splitlines()[-1][:300]}")
            at += 1
    return verdicts, failures


def cases(first: int, count: int, until: float) -> None:
    """Run cases in this process, a line each; one that takes LIMIT_S of CPU time ends it."""
    for seed in range(first, first + count):
        if time.monotonic() > until:
            return
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S)  # nobody handles its signal, so it ends the process
        print(seed, run_case(seed), flush=True)


def run(count: int = CASES, first: int = 0, jobs: int = 2, seconds: float = np.inf) -> dict[str, Any]:
    """Return how many cases ended in which way, and every failure."""
    until, began = time.monotonic() + min(seconds, 1e6), time.monotonic()
    verdicts, failures = Counter[str](), list[str]()
    with ThreadPoolExecutor(jobs) as pool:
        starts = range(first, first + count, CHUNK)
        for found, wrong in pool.map(lambda at: chunk(at, min(CHUNK, first + count - at), until), starts):
            verdicts += found
            failures += wrong
    return {"cases": verdicts.total(), "verdicts": dict(verdicts), "failures": failures,
            "wall_s": time.monotonic() - began}  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["case"]:
        print(run_case(int(sys.argv[2])))
    elif sys.argv[1:2] == ["cases"]:
        cases(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    else:
        print(json.dumps(run(*map(int, sys.argv[1:])), indent=1))
