"""Other ways to agree than an all-reduce every step: what a parameter server, staleness and a codec change."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.codec.names import PLAIN
from syncline.sim.step.constants import Constants
from syncline.sim.step.machine import Machine
from syncline.workload.job import Job


@dataclass(frozen=True)
class SyncCost:
    """Exposed and whole seconds of the exchange between replicas in one step, with its encoding."""

    exposed: float
    wire: float
    codec: float


def sync_cost(
    job: Job, machine: Machine, k: Constants, exposed: float, wire: float, params: float, hideable: float, busy: float
) -> SyncCost:
    """Return the exchange as the job's method does it; `exposed` and `wire` are those of the plain exchange.

    `params` are those one rank exchanges, `hideable` the backward they can hide behind, `busy` the rest of the step.
    """
    sync, dp = job.sync, job.parallel.dp or 1
    codec = 0.0
    if sync.codec != PLAIN and dp > 1:
        codec = 2 * 6.0 * params / machine.hbm_Bps / sync.every  # read and write at both ends, on the device
    if sync.method == "parameter-server" and dp > 1:
        width = 2.0 * float(job.gradient_bytes or 2)
        # All replicas push to the servers and pull from them: the servers' ports carry everything.
        served = sync.servers * machine.gpus_per_host * k.fitted.e_net * max(machine.nic_Bps, 1.0)
        wire = dp * job.parallel.tp * width * params / served
        exposed = max(k.held.least_exposed * wire, wire - hideable)
    if sync.method == "bounded-staleness":
        exposed = max(0.0, wire - sync.staleness * busy) if sync.staleness else exposed
    return SyncCost(exposed, wire, codec)
