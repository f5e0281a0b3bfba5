"""What must hold of the price of a collective, on 2,000 random clusters: bound, monotony, order, verbs and steps equal.

`python -m research one_price` prints how many clusters broke which rule; `tests/sim/collective/` has the rules.
"""

from __future__ import annotations

from typing import Any

from tests.sim.collective.clusters import broken_exchanges, broken_rules

NUM_CLUSTERS = 2_000


def run() -> dict[str, Any]:
    """Return the number of clusters, and every rule that was broken."""
    broken = {seed: lines for seed in range(NUM_CLUSTERS) if (lines := broken_rules(seed) + broken_exchanges(seed))}
    return {
        "clusters": NUM_CLUSTERS,
        "broken": len(broken),
        "lines": {str(seed): lines for seed, lines in broken.items()},
    }
