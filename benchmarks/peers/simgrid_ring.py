"""One ring all-reduce in SimGrid over a two-level fat tree, every step a barrier; prints one JSON line.

    /usr/bin/python3 benchmarks/peers/simgrid_ring.py ENDPOINTS SIZE_BYTES

32 endpoints a leaf, 32 spines (SimGrid's own fat-tree zone), 50 GB/s and 1 us a link, plain max-min as in
simgrid_flows.py.
"""

from __future__ import annotations

import json
import resource
import sys
import time

from simgrid import Actor, Comm, Engine, LinkInRoute, NetZone  # type: ignore[import-not-found,unused-ignore]
from simgrid_flows import SETTINGS

RADIX = 32


def build(endpoints: int) -> list:  # type: ignore[type-arg]
    """Return the hosts; only the routes that the ring uses are entered."""
    zone = NetZone.create_full_zone("ring")
    hosts = [zone.create_host(f"h{i}", 1e9) for i in range(endpoints)]

    def link(name: str) -> LinkInRoute:
        return LinkInRoute(zone.create_link(name, 50e9).set_latency(1e-6).seal())

    up, down = ([link(f"{way}{i}") for i in range(endpoints)] for way in ("up", "down"))
    for a in range(endpoints):
        b = (a + 1) % endpoints
        middle = [] if a // RADIX == b // RADIX else [link(f"climb{a}"), link(f"fall{a}")]
        zone.add_route(hosts[a].netpoint, hosts[b].netpoint, None, None, [up[a], *middle, down[b]], False)
    zone.seal()
    return hosts


def main() -> None:
    """Run the ring and print what it cost."""
    endpoints, size = int(sys.argv[1]), int(sys.argv[2])
    engine = Engine(["simgrid_ring", *SETTINGS])
    hosts = build(endpoints)
    chunk = size // endpoints

    def steps() -> None:
        for _ in range(2 * (endpoints - 1)):
            Comm.wait_all([Comm.sendto_async(hosts[i], hosts[(i + 1) % endpoints], chunk) for i in range(endpoints)])

    Actor.create("ring", hosts[0], steps)
    engine.run()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"cpu_s": time.process_time(), "peak_bytes": peak, "simulated_s": Engine.get_clock()}))


if __name__ == "__main__":
    main()
