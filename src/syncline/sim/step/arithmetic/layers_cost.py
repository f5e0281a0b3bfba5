"""The price of a model that is a list of layers: roofline per layer, gradients reduced behind the backward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.codec.names import PLAIN
from syncline.errors import SimulationError
from syncline.sim.step.constants import Constants
from syncline.sim.step.machine import Machine
from syncline.sim.step.network import group_of
from syncline.workload.job import Job
from syncline.workload.layer_list import LayerList
from syncline.workload.volumes import wire_share


@dataclass(frozen=True)
class LayersCost:
    """Seconds of one step; the parts add up to `total`."""

    compute: float
    exchange: float  # exposed all-to-all of split tables
    dp: float  # exposed gradient exchange
    optimizer: float
    codec: float
    fixed: float

    @property
    def total(self) -> float:
        return self.compute + self.exchange + self.dp + self.optimizer + self.codec + self.fixed


def layers_cost(
    job: Job, machine: Machine, k: Constants, gradient_bytes: float, parameter_bytes: float = 2.0
) -> LayersCost:
    """Return the price of a step; only data parallelism, sharded or not, and split tables are modelled."""
    model, split = job.model, job.parallel
    assert isinstance(model, LayerList)
    if split.tp * split.pp * split.cp * split.ep > 1:
        raise SimulationError(
            f"{model.name} is a list of layers; only data parallelism is modelled for it.",
            hint="Leave tp, pp, cp and ep out.",
        )
    if job.sync.algorithm or job.sync.bucket:
        raise SimulationError(
            f"{model.name} is a list of layers; algorithm and bucket are not priced for it.",
            hint="Leave them out of sync.",
        )
    ranks = split.dp or 1
    samples = job.batch.global_ / ranks
    rate = machine.rate(job.precision) * k.fitted.e_gemm * model.efficiency
    forward = samples * model.forward_flops / rate
    compute = samples * (model.flops_per_sample / rate + _traffic_s(model, machine, k))
    group = min(ranks, machine.domain)
    up, out = k.fitted.e_nvl * machine.nvlink_Bps, k.fitted.e_net * max(machine.nic_Bps, 1.0)
    group_network = group_of(machine, k, np.asarray(float(ranks)), float(ranks))
    wire = gradient_bytes * wire_share(job.sync.codec, gradient_bytes)
    reduce_s = float(group_network.sum_s(np.asarray(wire * model.replicated_params))) if ranks > 1 else 0.0
    if job.sync.method == "parameter-server" and ranks > 1:  # the servers' ports carry what all push and pull
        reduce_s = ranks * (wire + gradient_bytes) * model.replicated_params
        reduce_s /= job.sync.servers * machine.gpus_per_host * out
    behind = 2 * forward
    if (
        split.sharded_params and ranks > 1
    ):  # parameters are gathered twice, gradients scattered, beside all of the compute
        gathered, scattered = (np.asarray(width * model.replicated_params) for width in (parameter_bytes, wire))
        reduce_s = float(2 * group_network.gather_s(gathered) + group_network.scatter_s(scattered))
        behind = compute
    hidden = max(k.held.least_exposed * reduce_s, reduce_s - behind)
    away = 1 - group / ranks  # of the rows that a rank fetches, this share comes from other domains
    size = 2 * 2.0 * samples * model.exchanged_elements
    exchange = size * max(away / out, (1 - 1 / group) / up) if ranks > 1 else 0.0
    owned = model.replicated_params + (model.params - model.replicated_params) / ranks * 0.01
    owned = owned / ranks if split.sharded_params else owned
    optimizer, fixed = 16.0 * owned / machine.hbm_Bps, k.held.step_s / 10
    if job.sync.staleness:
        hidden = max(reduce_s - compute - exchange - optimizer - fixed, 0.0)
    codec = 12.0 * model.replicated_params / machine.hbm_Bps if job.sync.codec != PLAIN and ranks > 1 else 0.0
    period = job.sync.period
    return LayersCost(compute, exchange, hidden / period, optimizer, codec / period, fixed)


def _traffic_s(model: LayerList, machine: Machine, k: Constants) -> float:
    """Return what a sample's outputs take through memory, forward and backward."""
    return 0.5 * 3 * 4.0 * model.elements_per_sample / machine.hbm_Bps * k.fitted.c_mem


def reached_efficiency(job: Job, machine: Machine, k: Constants, kernels_s: float) -> float | None:
    """Return the efficiency with which a list of layers takes as long as its kernels were found to; None without any.

    It holds normalisations, activations and narrow products, which a list of layers does not tell apart.
    """
    model = job.model
    if not isinstance(model, LayerList) or not model.flops_per_sample:
        return None
    each = kernels_s * (job.parallel.dp or 1) / job.batch.global_ - _traffic_s(model, machine, k)
    best = model.flops_per_sample / (machine.rate(job.precision) * k.fitted.e_gemm)
    return min(1.0, best / each) if each > 0 else 1.0
