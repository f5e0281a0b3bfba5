"""Audit: precision and recall on planted faults, and how long an audit takes."""

from __future__ import annotations

import statistics
import time
from typing import Any

from tests.audit.samples import HOSTS
from tests.audit.samples.plants import PLANTS

from syncline.audit.audit import audit
from syncline.audit.checks import RULES
from syncline.host.root import Root


def run() -> dict[str, Any]:
    """Plant every fault on every host where it makes sense; count what is found, missed and made up."""
    healthy = {name: make() for name, make in HOSTS.items()}
    alarms = sum(len(audit(Root.of(draft.tree())).findings) for draft in healthy.values())
    hits = misses = made_up = cases = 0
    seconds = []
    for plant in PLANTS:
        for name in plant.hosts:
            root = Root.of(plant.into(healthy[name]).tree())
            began_s = time.perf_counter()
            found = {finding.rule for finding in audit(root, plant.expect).findings}
            seconds.append(time.perf_counter() - began_s)
            cases += 1
            hits += len(found & plant.rules)
            misses += len(plant.rules - found)
            made_up += len(found - plant.rules)
    live = audit(Root.live())
    return {
        "rules": len(RULES),
        "kinds_of_host": len(HOSTS),
        "planted_cases": cases,
        "rules_with_a_plant": len({rule for plant in PLANTS for rule in plant.rules}),
        "found": hits,
        "missed": misses,
        "made_up": made_up,
        "recall": hits / (hits + misses),
        "precision": hits / (hits + made_up),
        "false_alarms_on_healthy_hosts": alarms,
        "median_audit_of_a_tree_s": round(statistics.median(seconds), 4),
        "audit_of_this_machine_s": round(live.seconds, 3),
    }
