"""The fault library: what can break, how to make it happen, and what must be said about it.

    for fault in known_faults().values():
        fault.happening(fabric)          # for a lab: faults of `fabric.fault`, with times
        fault.on(fabric)                 # for the simulator: the fabric with the fault in it
        fault.planted(healthy_logs())    # logs of a job in which it happened
        fault.plant                      # the change of a captured tree, by name in `tests/audit/samples`

Every fault must be diagnosed; `measure` counts how well that goes.
"""

from __future__ import annotations

from syncline.drill.fault import KnownFault, known_faults
from syncline.drill.healthy import healthy_logs
from syncline.drill.measure import Score, measure_logs

__all__ = ["KnownFault", "Score", "healthy_logs", "known_faults", "measure_logs"]
