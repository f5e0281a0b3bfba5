"""A traced step on another cluster: compute as measured, communication executed or priced on its network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from syncline.describe.model import Handle, handle
from syncline.fabric.fabric import Fabric
from syncline.sim.step.executed.execute_trace import IGNORES as EXECUTED_IGNORES
from syncline.sim.step.executed.execute_trace import ExecutedTrace, TracedCollective, execute_trace
from syncline.sim.step.executed.packets import PacketCounts
from syncline.sim.step.replay import OWN_WORK, replay, unpriced
from syncline.timeline import Timeline
from syncline.workload.graph import Workload


@dataclass(frozen=True)
class OnCluster:
    """What was recorded, and the same with the communication of another cluster."""

    cluster: str
    operations: int
    comm_bytes: float
    recorded_s: float
    step_time_s: float
    bound_s: float
    recorded_exposed_comm_s: float
    exposed_comm_s: float
    kept_as_recorded: int
    """Transfers whose size the trace does not have."""
    level: str
    packets: PacketCounts | None
    collectives: tuple[TracedCollective, ...]
    ignores: tuple[str, ...]
    recorded: Handle[Timeline] = handle()
    timeline: Handle[Timeline] = handle()
    executed: Handle[ExecutedTrace | None] = handle()


def on_cluster(
    workload: Workload, fabric: Fabric, *, level: str, routing: Any, max_packets: int | None = None
) -> OnCluster:
    """Return a traced step on a fabric; at level "analytic" closed forms price it, else it is executed."""
    ran = None
    if level != "analytic":
        ran = execute_trace(workload, fabric, routing=routing, level=level, max_packets=max_packets)
    recorded = replay(workload)
    timeline = replay(workload, fabric, times=(ran.start_s, ran.end_s) if ran else None)
    return OnCluster(
        cluster=fabric.name,
        operations=len(workload),
        comm_bytes=workload.total_bytes(),
        recorded_s=recorded.makespan_s,
        step_time_s=timeline.makespan_s,
        bound_s=ran.floor_s if ran else 0.0,
        recorded_exposed_comm_s=float(recorded.exposed_s(compute=OWN_WORK).max()),
        exposed_comm_s=float(timeline.exposed_s(compute=OWN_WORK).max()),
        kept_as_recorded=int(unpriced(workload).sum()),
        level=ran.level if ran else "analytic",
        packets=ran.packets if ran else None,
        collectives=ran.collectives if ran else (),
        ignores=tuple(EXECUTED_IGNORES if ran else timeline.source.ignores),
        recorded=recorded,
        timeline=timeline,
        executed=ran,
    )
