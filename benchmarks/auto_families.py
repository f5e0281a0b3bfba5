"""`auto` against every family that could be named, at flow level: presets, collectives and sizes.

    python benchmarks/run.py auto_families
    PRESETS=h100-64-rail RANKS=64 KNOWN=0 python benchmarks/run.py auto_families

Each row is one preset, collective and size: what `auto` takes (as `simulate` asks it, with the synthesized all-reduces
where the fabric is irregular), the fastest single family with the chunks that suit it, and by how much `auto` is slower
(never, is the claim). The second table has the cases that were once far from the best
known: two sites, broadcast and reduce of a gibibyte, and a kibibyte on a star, each beside a schedule made by hand.
"""

from __future__ import annotations

import os
import time
from typing import Any

from syncline.errors import SynclineError
from syncline.fabric import Fabric, build, load
from syncline.fabric.spec import ClusterSpec
from syncline.program import lower, place
from syncline.program.levels import nest
from syncline.schedule import FAMILIES, Kind, hierarchical, verify
from syncline.schedule.schedule import Schedule
from syncline.sim.candidates import AUTO_SKIPS, find
from syncline.sim.flow.estimate import estimate
from syncline.sim.flow.routing import FlowNetwork
from syncline.sim.sweep import Contest, contest_of

PRESETS = os.environ.get("PRESETS", "h100-64-rail,two-sites-wan,fat-tree-1024,old-10gbe,alps,gb200-nvl72-pod").split(
    ","
)
RANKS = int(os.environ.get("RANKS", "32"))
SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 28)
KINDS = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.BROADCAST, Kind.ALL_TO_ALL)
SKIPPED = {*AUTO_SKIPS, "parameter-server", "balanced"}
"""Families that need what only the user knows: reducing switches, servers, ranks of different speed."""


def rows(name: str) -> list[dict[str, Any]]:
    """Return what `auto` and every single family take on a preset."""
    fabric = load(name)
    count = min(RANKS, fabric.num_gpus)
    placed, network = place("auto", fabric, count), FlowNetwork(fabric)
    found = []
    for kind in KINDS:
        auto = contest_of("auto", kind, placed, network)
        alone = {}
        for family in FAMILIES:
            if family not in SKIPPED and family not in auto.wired:
                try:
                    alone[family] = find(fabric, kind, count, family, chunks=1, nested=nest(placed))
                except SynclineError:
                    continue  # it does not do this collective, or not on this many ranks
        others = Contest.of(alone, placed, network, chunks=0) if alone else None
        about = {"preset": name, "ranks": count, "collective": kind.value}
        found += [about | {"size_bytes": size} | _row(auto, others, size) for size in SIZES]
    return found


def _row(auto: Contest, others: Contest | None, size: int) -> dict[str, Any]:
    best = auto.best(size)
    singles = {name: auto.one(name, size).time_s for name in auto.wired}
    for name in others.wired if others else ():
        assert others is not None
        singles[name] = others.one(name, size).time_s
    fastest = min(singles, key=singles.__getitem__)
    return {
        "auto": best.algorithm, "chunks": best.chunks, "auto_us": best.time_s * 1e6, "fastest": fastest,
        "fastest_us": singles[fastest] * 1e6, "slower": best.time_s / singles[fastest] - 1, "families": len(singles),
    }  # fmt: skip


def known() -> list[dict[str, Any]]:
    """Return the cases beside the best that is known for them."""
    site = {"hosts": 16, "host": "dgx-h100", "network": "rail-optimized NDR"}
    sites = {"sites": [{"name": "a", **site}, {"name": "b", **site}], "wan": {"rate": "100Gbps", "latency": "2ms"}}
    star = {"hosts": 12, "host": {"gpu": "H100", "gpus": 1, "nics": 1, "nic": "ConnectX-7", "link": "NDR"},
            "network": {"topology": "leaf-spine", "link": "NDR", "hosts_per_leaf": 12}}  # fmt: skip
    two, one, rail = _built(sites), _built(star), load("h100-64-rail")
    return [
        _beside("all-reduce of 1 GiB on two sites", two, Kind.ALL_REDUCE, 256, 1 << 30, hierarchical((2, 16, 8))),
        _beside("broadcast of 1 GiB on h100-64-rail", rail, Kind.BROADCAST, 512, 1 << 30, None),
        _beside("reduce of 1 GiB on h100-64-rail", rail, Kind.REDUCE, 512, 1 << 30, None),
        _beside("all-reduce of 1 KiB on a star of 12", one, Kind.ALL_REDUCE, 12, 1 << 10, FAMILIES["direct"].make),
    ]


def _built(data: dict[str, Any]) -> Fabric:
    return build(ClusterSpec.model_validate(data))


def _beside(what: str, fabric: Fabric, kind: Kind, count: int, size: int, by_hand: Any) -> dict[str, Any]:
    from syncline.schedule.family.families import Options
    from syncline.sim.bound import bound_of

    placed, network = place("auto", fabric, count), FlowNetwork(fabric)
    auto = contest_of("auto", kind, placed, network).best(size)
    schedule = by_hand if isinstance(by_hand, Schedule) else by_hand(Options(count, kind=kind)) if by_hand else None
    hand_s = estimate(lower(verify(schedule), placed), network, size).time_s if schedule else None
    bound = bound_of(fabric, kind, placed.device).at(size)
    best = min(filter(None, (hand_s, auto.time_s)))
    return {
        "case": what, "auto": auto.algorithm, "chunks": auto.chunks, "auto_s": auto.time_s, "by_hand_s": hand_s,
        "bound_s": bound, "over_best_known": auto.time_s / best - 1, "over_bound": auto.time_s / bound - 1,
    }  # fmt: skip


def run() -> dict[str, Any]:
    """Return both tables."""
    began = time.process_time()
    table = [row for name in PRESETS for row in rows(name)]
    return {
        "rows": len(table),
        "slower_than_a_family": [row for row in table if row["slower"] > 1e-9],
        "worst": max(row["slower"] for row in table),
        "known": known() if os.environ.get("KNOWN", "1") == "1" else [],
        "table": table,
        "cpu_s": time.process_time() - began,
    }
