"""The same capture with one thing changed: another GPU, cluster, codec or network; another world is captured again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

from syncline.codec.names import canonical
from syncline.describe import units
from syncline.errors import UsageError
from syncline.fabric import load
from syncline.fabric.fabric import Fabric
from syncline.fabric.faults import FailedPart, apply_faults
from syncline.previewing.compiled import without_fused
from syncline.previewing.execute import ALGORITHMS, GraphRun, NetworkUse, execute
from syncline.previewing.exposed import exposed_s
from syncline.previewing.graph import StepGraph, step_graph
from syncline.previewing.holders import PeakMemory, peak_memory, workspaces
from syncline.previewing.launch import ScriptLaunch
from syncline.previewing.price import Pricer, other_gpu
from syncline.previewing.ranks import Runner
from syncline.previewing.record import Capture
from syncline.sim.flow.routing import Routing
from syncline.sim.step.machine import Machine, machine_from_fabric

DEFAULT = ("network=free", "network=2x", "codec=int8")
KNOWN = (
    "gpu=NAME, cluster=FILE, codec=NAME, algorithm=ring, algorithm=tree, network=2x, network=free, fail=LINK, "
    "compiled=yes, shard=host, bucket=SIZE, world=N; several at once with commas"
)


BUCKETS = ("has no buckets of DDP to change.", "FSDP's are its wrapped modules.")
SHARDS = ("shards nothing with FSDP over several hosts.", "shard=host lets FSDP shard inside of hosts.")


@dataclass(frozen=True)
class Alternative:
    """One line of the table."""

    change: str
    step_time_s: float
    exposed_s: float


@dataclass(frozen=True, eq=False)
class WhatIfSetting:
    """A script as it was captured, and what it is priced on."""

    captures: tuple[Capture, ...]
    fabric: Fabric
    pricer: Pricer
    routing: Routing
    launch: ScriptLaunch
    runner: Runner
    network: NetworkUse

    @cached_property
    def graph(self) -> StepGraph:
        """The steps on the cluster's own GPUs: another network has the same."""
        return step_graph(self.captures, self.pricer)

    @cached_property
    def executed(self) -> GraphRun:
        """The steps on the network."""
        machine = self.pricer.machine
        devices = self.launch.devices(self.fabric, machine.gpu.num_dies)
        return execute(self.graph, self.fabric, machine, devices, self.network, self.routing, self.pricer.constants)

    @cached_property
    def memory(self) -> PeakMemory:
        """The memory of the fullest rank."""
        return max(map(self._memory, self.captures), key=lambda found: found.peak_bytes)

    def _memory(self, captured: Capture) -> PeakMemory:
        gpu, kept = self.pricer.machine.gpu, without_fused(captured, self.pricer)
        if captured.on_cpu:
            return peak_memory(kept, 0, 0)
        return peak_memory(kept, gpu.memory_bytes / max(gpu.num_dies, 1), workspaces(captured, gpu.architecture))

    def changed(self, change: str) -> WhatIfSetting:
        """Return the setting with one thing changed; another world, bucket or split runs the script again."""
        what, equals, value = change.partition("=")
        if not equals or not value:
            raise UsageError(f'--what-if takes a change such as codec=int8, got "{change}".', hint=f"Known: {KNOWN}.")
        if what == "gpu":
            return self._with(other_gpu(self.pricer.machine, value))
        if what == "cluster":
            fabric = load(value)
            return self._with(machine_from_fabric(fabric), fabric=fabric)
        if what == "codec":
            return self._on(network=replace(self.network, codec=canonical(value)))
        if what == "algorithm":
            return self._on(network=replace(self.network, algorithm=_algorithm(value)))
        if what == "network":
            free = value == "free"
            scale = self.network.scale if free else _factor(value)
            return self._on(network=replace(self.network, free=free, scale=scale))
        if what == "fail":
            part = FailedPart(link=value) if "<->" in value else FailedPart(device=value)
            return self._on(fabric=apply_faults(self.fabric, (part,)))
        if what == "compiled":
            return self._on(captures=tuple(map(compiled, self.captures)))
        if what == "bucket":
            return self._again(replace(self.runner, bucket_bytes=int(units.size(value))), "bucket_bytes", BUCKETS)
        if what == "shard":
            return self._again(replace(self.runner, hybrid=True), "sharded", SHARDS)
        if what == "world":
            if not value.isdigit() or int(value) < 1:
                raise UsageError(f'world= takes a number of ranks, got "{value}".', hint="Say world=64.")
            launch = self.launch.resized(int(value))
            launch.devices(self.fabric, self.pricer.machine.gpu.num_dies)
            return self._on(launch=launch, captures=self.runner.stages(launch))
        raise UsageError(f'nothing called "{what}" can be changed.', hint=f"Known: {KNOWN}.")

    def _again(self, runner: Runner, needed: str, lacks: tuple[str, str]) -> WhatIfSetting:
        if needed not in self.captures[0].facts:
            raise UsageError(f"{self.launch.script} {lacks[0]}", hint=lacks[1])
        return self._on(runner=runner, captures=runner.stages(self.launch))

    def _with(self, machine: Machine, **other: Any) -> WhatIfSetting:
        hosts = self.launch.moved(machine.gpus_per_host)
        return self._on(pricer=replace(self.pricer, machine=machine), launch=hosts, **other)

    def _on(self, **other: Any) -> WhatIfSetting:
        return replace(self, **other)

    def all_changed(self, changes: str) -> WhatIfSetting:
        """Return the setting with several things changed, which commas separate."""
        return reduce(WhatIfSetting.changed, changes.split(","), self)

    def alternative(self, changes: str) -> Alternative:
        """Return the step with something changed."""
        ran = self.all_changed(changes).executed
        return Alternative(changes, ran.step_time_s, exposed_s(ran))


def compiled(captured: Capture) -> Capture:
    """Return what a script does whose forward and backward are compiled."""
    ops = tuple(
        op._replace(extra=[1, *op.extra[1:]])
        if op.kind == "kernel" and op.phase != "optimizer" and isinstance(op.extra, list)
        else op
        for op in captured.ops
    )
    return replace(captured, ops=ops)


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
