"""A hierarchical all-reduce on 131,072 GPUs in three tiers, priced at flow level from nothing."""

from __future__ import annotations

from typing import Any

from measure import measure

PRESET = "h100-131k-3tier"
SIZE_BYTES = 1 << 30


def price(routing: str) -> dict[str, Any]:
    """Load, build, prove, route and simulate."""
    from syncline.fabric import load
    from syncline.program import lower, packed
    from syncline.schedule import hierarchical, verify
    from syncline.sim.flow.estimate import estimate
    from syncline.sim.flow.routing import FlowNetwork, NetworkOptions

    fabric = load(PRESET)
    program = lower(verify(hierarchical((fabric.num_hosts, 8))), packed(fabric))
    found = estimate(program, FlowNetwork(fabric, NetworkOptions(routing)), SIZE_BYTES)  # type: ignore[arg-type]
    return {"gpus": fabric.num_gpus, "links": len(fabric.links), **found.row()}


def run() -> dict[str, Any]:
    """Return cost and answer under static tables (exact) and under ECMP hashing."""
    cases = []
    for routing in ("static", "ecmp"):
        cost = measure("flow_131072:price", routing=routing)
        cases.append(
            {
                "routing": routing,
                "cpu_s": cost.cpu_s,
                "wall_s": cost.wall_s,
                "peak_rss_bytes": cost.peak_rss_bytes,
                **cost.result,
            }
        )
    return {"preset": PRESET, "cases": cases}
