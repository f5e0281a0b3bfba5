"""Run a set of flows in SimGrid (Debian's python3-simgrid, so under the system's Python) and print one JSON line.

    /usr/bin/python3 benchmarks/simgrid_flows.py CASE.json OUT.json

The case has `links` (rate and latency), paths in rows, sizes and start times. SimGrid is set to plain max-min: no
bandwidth or latency factors, no TCP window, no ACK traffic. It still shares in inverse proportion to path latency; the
other side of the comparison is given the same weights.
"""

from __future__ import annotations

import json
import resource
import sys
import time

from simgrid import Actor, Comm, Engine, LinkInRoute, NetZone, this_actor  # type: ignore[import-not-found,unused-ignore]

SETTINGS = [
    "--cfg=network/model:CM02",
    "--cfg=network/bandwidth-factor:1",
    "--cfg=network/latency-factor:1",
    "--cfg=network/weight-S:0",
    "--cfg=network/TCP-gamma:1e30",
    "--cfg=network/crosstraffic:0",
    "--cfg=surf/precision:1e-12",
    "--log=root.thres:error",
]


def build(case: dict[str, list]) -> list:  # type: ignore[type-arg]
    """Return the hosts of a zone whose routes are exactly the paths of the case."""
    zone = NetZone.create_full_zone("case")
    hosts = [zone.create_host(f"h{i}", 1e9) for i in range(case["num_hosts"][0])]
    links = []
    for i, (rate, latency) in enumerate(zip(case["rate_Bps"], case["latency_s"], strict=True)):
        link = zone.create_link(f"l{i}", float(rate)).set_latency(float(latency))
        links.append(LinkInRoute(link.seal()))
    start, crossed = case["path_start"], case["path_link"]
    known = set()
    for flow, (src, dst) in enumerate(zip(case["src"], case["dst"], strict=True)):
        if (src, dst) in known:
            continue
        known.add((src, dst))
        route = [links[link] for link in crossed[start[flow] : start[flow + 1]]]
        zone.add_route(hosts[src].netpoint, hosts[dst].netpoint, None, None, route, False)
    zone.seal()
    return hosts


def main() -> None:
    """Run the case and print what it cost."""
    engine = Engine(["simgrid_flows", *SETTINGS])
    with open(sys.argv[1]) as stored:
        case = json.load(stored)
    hosts = build(case)
    src, dst, size, start_s = (case[name] for name in ("src", "dst", "size_bytes", "start_s"))
    order = sorted(range(len(size)), key=start_s.__getitem__)
    comms: list = [None] * len(size)  # type: ignore[type-arg,unused-ignore]

    def start_all() -> None:
        for flow in order:
            this_actor.sleep_until(start_s[flow])
            comms[flow] = Comm.sendto_async(hosts[src[flow]], hosts[dst[flow]], int(size[flow]))
        Comm.wait_all(comms)

    Actor.create("starter", hosts[0], start_all)
    setup_s = time.process_time()
    engine.run()
    run_s = time.process_time() - setup_s
    with open(sys.argv[2], "w") as answer:
        json.dump([comm.finish_time for comm in comms], answer)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"setup_cpu_s": setup_s, "run_cpu_s": run_s, "peak_bytes": peak}))


if __name__ == "__main__":
    main()
