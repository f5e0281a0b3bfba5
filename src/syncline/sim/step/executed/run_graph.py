"""Run a graph whose operations have durations: streams in order, each operation when what it waits for has ended."""

from __future__ import annotations

import numpy as np

from syncline.workload.graph import Floats, Workload, previous_in_stream


def run_graph(workload: Workload, duration_s: Floats) -> tuple[Floats, Floats]:
    """Return when each operation starts and ends."""
    before = previous_in_stream(workload.rank, workload.stream).tolist()
    start_s, end_s = np.zeros(len(workload)).tolist(), np.zeros(len(workload)).tolist()
    first, deps, durations = workload.dep_start.tolist(), workload.deps.tolist(), duration_s.tolist()
    for op in workload.order().tolist():
        at = end_s[before[op]] if before[op] >= 0 else 0.0
        for other in deps[first[op] : first[op + 1]]:
            if end_s[other] > at:
                at = end_s[other]
        start_s[op] = at
        end_s[op] = at + durations[op]
    return np.array(start_s), np.array(end_s)
