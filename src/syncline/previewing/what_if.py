"""The same capture with one thing changed: another GPU, cluster, codec or network; another world is captured again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from syncline.codec.names import canonical
from syncline.errors import UsageError
from syncline.fabric import load
from syncline.fabric.catalog import load_catalog
from syncline.fabric.fabric import Fabric
from syncline.fabric.faults import FailedPart, apply_faults
from syncline.previewing.execute import ALGORITHMS, NetworkUse, execute
from syncline.previewing.exposed import exposed_s
from syncline.previewing.graph import StepGraph, step_graph
from syncline.previewing.price import Pricer
from syncline.previewing.record import Capture
from syncline.sim.flow.routing import Routing
from syncline.sim.step.machine import Machine, facts_of, machine_from_fabric

DEFAULT = ("network=free", "network=2x", "codec=fp8")
AGAIN = ("world", "bucket")
"""What runs the script again: another world, other buckets of DDP."""
KNOWN = (
    "gpu=NAME, cluster=FILE, codec=NAME, algorithm=ring, algorithm=tree, network=2x, network=free, fail=LINK, "
    "bucket=SIZE, world=N"
)


@dataclass(frozen=True)
class Alternative:
    """One line of the table."""

    change: str
    step_time_s: float
    exposed_s: float


@dataclass(frozen=True, eq=False)
class WhatIfSetting:
    """What a captured script is priced on."""

    captures: tuple[Capture, ...]
    fabric: Fabric
    pricer: Pricer
    routing: Routing = "spray"

    @cached_property
    def graph(self) -> StepGraph:
        """The steps on the cluster's own GPUs: another network has the same."""
        return step_graph(self.captures, self.pricer)

    def alternative(self, change: str) -> Alternative:
        """Return the step with one thing changed."""
        what, equals, value = change.partition("=")
        if not equals or not value:
            raise UsageError(f'--what-if takes a change such as codec=fp8, got "{change}".', hint=f"Known: {KNOWN}.")
        fabric, pricer, network = self.fabric, self.pricer, NetworkUse.of(self.captures)
        if what == "gpu":
            pricer = replace(pricer, machine=other_gpu(pricer.machine, value))
        elif what == "cluster":
            fabric = load(value)
            pricer = replace(pricer, machine=machine_from_fabric(fabric))
        elif what == "codec":
            network = replace(network, codec=canonical(value))
        elif what == "algorithm":
            network = replace(network, algorithm=_algorithm(value))
        elif what == "network":
            network = replace(network, free=True) if value == "free" else replace(network, scale=_factor(value))
        elif what == "fail":
            part = FailedPart(link=value) if "<->" in value else FailedPart(device=value)
            fabric = apply_faults(fabric, (part,))
        else:
            raise UsageError(f'nothing called "{what}" can be changed.', hint=f"Known: {KNOWN}.")
        graph = self.graph if pricer is self.pricer else step_graph(self.captures, pricer)
        ran = execute(graph, fabric, pricer.machine, network, self.routing, pricer.constants)
        return Alternative(change, ran.step_time_s, exposed_s(ran))

    def table(self, changes: Sequence[str]) -> tuple[Alternative, ...]:
        """Return the step with each change by itself."""
        return tuple(self.alternative(change) for change in changes)


def other_gpu(machine: Machine, name: str) -> Machine:
    """Return the machine with another accelerator in the same hosts."""
    gpu = load_catalog().gpu(name)
    facts = facts_of(gpu)
    peaks = {each: gpu.flops_at(each) for each in ("fp16", "bf16", "tf32", "fp32", "fp8", "fp4")}
    shares: dict[str, float] = facts["share"]
    sustained = {n: p * shares.get(n, 0.7) * facts["power"] for n, p in peaks.items() if p is not None}
    hbm = machine.hbm_Bps / machine.gpu.memory_Bps * gpu.memory_Bps
    return replace(
        machine,
        gpu=gpu,
        sustained=sustained,
        num_sms=int(facts["sms"]),
        hbm_Bps=hbm,
        attention=facts["attention"],
        head64=facts.get("head64", {}),
    )


def _algorithm(text: str) -> str:
    if text not in ALGORITHMS:
        raise UsageError(f'algorithm= takes {" or ".join(ALGORITHMS)}, got "{text}".', hint=f"Known: {KNOWN}.")
    return text


def _factor(text: str) -> float:
    try:
        factor = float(text.removesuffix("x"))
    except ValueError:
        factor = 0.0
    if factor <= 0:
        raise UsageError(f'network= takes a factor such as 2x, or free, got "{text}".', hint=f"Known: {KNOWN}.")
    return factor
