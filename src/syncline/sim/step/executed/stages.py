"""What the collectives of every stage of a step put on links, and what one call costs besides."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from hashlib import blake2b
from typing import Protocol

import numpy as np

from syncline.fabric.fabric import Fabric
from syncline.sim.analytic import busiest
from syncline.sim.double_tree import of_ring
from syncline.sim.flow.routing import Routing
from syncline.sim.step.case import Case
from syncline.sim.step.constants import Constants
from syncline.sim.step.cost import exchanged
from syncline.sim.step.exchange import longer_s
from syncline.sim.step.executed.footprint import (
    Floats,
    Flows,
    Longs,
    Rails,
    devices_of,
    exchange_flows,
    pass_flows,
)
from syncline.sim.step.experts import exchange_s
from syncline.sim.step.machine import Machine
from syncline.sim.step.network import (
    GroupNetwork,
    head_exchange_s,
    inside,
    placed_group,
    ring_attention_s,
    ring_of,
    send_s,
    sends_of,
)
from syncline.workload.grid import Grid, grid_of
from syncline.workload.job import Job


class PlacedJob(Protocol):
    """A job on a machine, priced or not: what its collectives need to know."""

    @property
    def job(self) -> Job: ...
    @property
    def machine(self) -> Machine: ...
    @property
    def case(self) -> Case | None: ...


class Stages:
    """What the collectives of every stage put on links, and what one call costs besides."""

    def __init__(
        self, fabric: Fabric, result: PlacedJob, k: Constants, routing: Routing = "spray", *,
        devices: Longs | None = None, rails: Rails | None = None,
    ) -> None:  # fmt: skip
        self.fabric, self.result, self.k = fabric, result, k
        self.case, self.job = result.case, result.job
        split = self.job.parallel
        self.rails = rails or Rails.of(fabric, k.fitted.e_net, k.fitted.e_nvl, routing)
        dies = max(result.machine.gpu.num_dies, 1)
        reach = result.machine.reach
        self.devices = devices_of(fabric, split, reach, dies) if devices is None else devices
        self.grid: Grid = grid_of(split.model_copy(update={"order": ("tp", "cp", "dp", "pp")}))
        self.size = split.tp * split.cp * (split.dp or 1)
        self.footprints: dict[tuple[str, int], Floats] = {}
        self._patterns: dict[tuple[str, bytes], Flows] = {}
        # A step has thousands of operations of a few kinds on stages that are mostly alike: each is worked out once.
        self._fixed_s: dict[tuple[str, float], float] = {}
        self._per_byte_s: dict[tuple[str, int], float] = {}
        self._ring_Bps: dict[tuple[str, tuple[int, ...]], Floats] = {}
        self._library_s: dict[tuple[str, float, str, float, float], float] = {}

    def ranks(self, stage: int) -> Longs:
        return self.devices[stage * self.size : (stage + 1) * self.size]

    def senders(self, kind: str) -> range:
        """Return the stages that have a kind of traffic: with chunks the last stage hands on to the first."""
        split = self.job.parallel
        ends = 0 if split.virtual > 1 else 1
        return range(ends if kind == "send backward" else 0, split.pp - ends if kind == "send forward" else split.pp)

    def _groups(self, kind: str) -> Longs:
        """Return the groups of a kind of traffic within a stage, as numbers of its ranks."""
        split, here = self.job.parallel, np.arange(self.size)
        tp, replicas = split.tp, split.cp * (split.dp or 1)
        if kind == "tensor":
            return here.reshape(-1, tp)
        if kind in ("context", "data (context)"):
            return here.reshape(-1, split.cp, tp).swapaxes(1, 2).reshape(-1, split.cp)
        if kind == "expert":
            return here.reshape(-1, split.ep)
        if kind == "data (experts)":
            return here.reshape(-1, split.ep).T
        shard = split.shard_ranks if split.sharded_params and split.pp == 1 else replicas
        grid = here.reshape(replicas, tp)
        if kind == "data (replicas)":
            return grid.reshape(replicas // shard, shard * tp).T
        return grid.reshape(-1, shard, tp).swapaxes(1, 2).reshape(-1, shard)

    def footprint(self, kind: str, stage: int) -> Floats:
        """Return bytes on every link per byte that a rank sends; all stages of a kind are laid at once."""
        if (kind, stage) not in self.footprints:
            stages = sorted({*self.senders(kind), stage})
            rows = self.rails.laid(self._named(kind, stages), lambda: [self.flows(kind, each) for each in stages])
            self.footprints |= {(kind, each): row for each, row in zip(stages, rows, strict=True)}
        return self.footprints[kind, stage]

    def flows(self, kind: str, stage: int, domain_of: Longs | None = None) -> Flows:
        """Return who sends what to whom of a byte that a rank sends; `domain_of` says which devices are near."""
        here = self.ranks(stage)
        if kind.startswith("send"):
            # Activations go on and gradients go back.
            there = (stage + (1 if kind == "send forward" else -1)) % self.job.parallel.pp
            return pass_flows(here, self.ranks(there))
        near = (self.rails.domain_of if domain_of is None else domain_of)[here]
        pattern = np.unique(near, return_inverse=True)[1]
        key = kind, pattern.tobytes()
        if key not in self._patterns:
            self._patterns[key] = self._between(kind, pattern)
        src, dst, share = self._patterns[key]
        return here[src], here[dst], share

    def _between(self, kind: str, near: Longs) -> Flows:
        """Return who of a stage's ranks sends what to whom, where `near` says which share a domain."""
        groups = self._groups(kind)
        if kind == "expert":
            return exchange_flows(groups, near, *self._expert_bytes())
        return self.rails.gathers(groups, sums=self._sums(kind), domain_of=near)

    def _named(self, kind: str, stages: list[int]) -> tuple[object, ...]:
        """Return what tells the flows of a kind on this fabric from all others."""
        here = self.size, stages[0], len(stages), self._ranks_named
        if kind.startswith("send"):
            return kind, self.job.parallel.pp, *here
        groups = self._groups(kind)
        means = self._expert_bytes() if kind == "expert" else self._sums(kind)
        return kind == "expert", means, groups.shape, blake2b(groups.tobytes()).digest(), *here

    @cached_property
    def _ranks_named(self) -> bytes:
        return blake2b(self.devices.tobytes()).digest()

    def _sums(self, kind: str) -> bool:
        """Return whether a kind of traffic is an all-reduce: gradients that no rank owns a part of."""
        plain = kind in ("data", "data (experts)") and not self.job.parallel.sharded_state
        return plain or kind == "data (replicas)"

    def _expert_bytes(self) -> tuple[float, float]:
        """Return what leaves a rank's domain of one byte of an all-to-all's volume, and what stays, copies merged."""
        c = self.case
        assert c is not None
        ep, top_k, near = float(c.ep), float(c.top_k), float(min(c.domain, c.ep))
        domains = ep / near
        volume = (ep - 1) / ep * top_k
        if domains <= 1:
            return 0.0, 1.0
        visited = top_k if c.sent_apart else domains * (1 - (1 - 1 / domains) ** top_k)
        return visited * (domains - 1) / domains / volume, top_k * (1 - 1 / near) / volume

    def per_byte_s(self, kind: str, stage: int) -> float:
        """Return how long the busiest link needs for each byte that a rank sends."""
        if (kind, stage) not in self._per_byte_s:
            self._per_byte_s[kind, stage] = self.rails.longest_s(self.footprint(kind, stage), f"{kind} traffic")
        return self._per_byte_s[kind, stage]

    def busiest(self, kind: str, stage: int) -> str:
        """Return the link that needs longest for a kind of traffic."""
        need = self.footprint(kind, stage) / np.maximum(self.rails.capacity_Bps, 1e-30)
        return self.rails.link_name(busiest(need)) if need.any() else ""

    def fixed_s(self, kind: str, calls: float) -> float:
        """Return what the calls of an operation cost besides bytes."""
        if (kind, calls) not in self._fixed_s:
            self._fixed_s[kind, calls] = self._calls_s(kind, calls)
        return self._fixed_s[kind, calls]

    def _members(self, c: Case, kind: str) -> tuple[Floats, Floats]:
        """Return the ranks of a kind's groups, and how far apart they are."""
        one = np.ones(())
        return (c.pp, c.tp * c.cp * c.dp) if kind.startswith("send") else {
            "tensor": (c.tp, one), "context": (c.cp, c.tp), "expert": (c.ep, one),
            "data (experts)": (np.maximum(c.dp * c.cp * c.tp / c.ep, 1.0), c.ep),
            "data (replicas)": (c.dp * c.cp / c.shard_ranks, c.tp * c.shard_ranks), "data (context)": (c.cp, c.tp),
        }.get(kind, (c.shard_ranks if c.fsdp else c.dp * c.cp, c.tp))  # fmt: skip

    def ring_Bps(self, kind: str, *stages: int) -> Floats:
        """Return the rate that links leave a ring of a kind where these stages exchange at once; 0: they limit nothing.

        The library's price knows scale-up links itself, so links of the network alone count for what it prices. Of two
        domains they carry a double tree's bytes, which are fewer (`sim/double_tree.py`).
        """
        if (kind, stages) not in self._ring_Bps:
            self._ring_Bps[kind, stages] = self._left_Bps(kind, stages)
        return self._ring_Bps[kind, stages]

    def _left_Bps(self, kind: str, stages: tuple[int, ...]) -> Floats:
        c = self.case
        assert c is not None
        carried = np.sum([self.footprint(kind, stage) for stage in stages], axis=0)
        priced = float(c.library) > 0
        need_s = self.rails.longest_s(carried, f"{kind} traffic", network=priced)
        if need_s <= 0:
            return np.zeros(())
        if kind == "expert":  # of an all-to-all what counts is what leaves a domain
            return np.asarray((self._expert_bytes()[0] or 1.0) / need_s)
        ranks, stride = self._members(c, kind)
        share = of_ring(float(ranks), float(ranks / inside(c, ranks, stride))) if self._sums(kind) else 1.0
        return np.asarray(share / need_s)

    def library_s(self, kind: str, stage: int, word: str, sent_bytes: float, calls: float) -> float | None:
        """Return what the library takes for calls in which a rank sends so much; None where it is not asked.

        Groups of the stage share its links; what other stages send at the same time is for the execution to see.
        """
        c = self.case
        if c is None or not float(c.library) or sent_bytes <= 0 or float(self._members(c, kind)[0]) < 2:
            return None
        laid = np.zeros(()) if kind == "context" else self.ring_Bps(kind, stage)
        key = kind, float(laid), word, sent_bytes, calls
        if key not in self._library_s:
            self._library_s[key] = self._priced_s(c, kind, laid, word, sent_bytes, calls)
        return self._library_s[key]

    def _priced_s(self, c: Case, kind: str, laid: Floats, word: str, sent_bytes: float, calls: float) -> float:
        """Return what the library takes where links leave a ring so much."""
        ranks, stride = self._members(c, kind)
        n = float(ranks)
        if kind == "expert":
            tokens = np.asarray(sent_bytes / calls / ((n - 1) / n * 2 * float(c.expert_hidden * c.top_k)))
            return calls * float(exchange_s(replace(c, laid_expert_Bps=laid), self.k, tokens))
        if kind == "context":
            return self._context_s(c, sent_bytes)
        if kind.startswith("send"):
            return calls * float(send_s(c, self.k, np.asarray(sent_bytes / calls), laid, None if laid > 0 else ranks))
        ring = ring_of(c, self.k, ranks, stride, laid)
        buffer = np.asarray(sent_bytes / calls * n / (n - 1))
        if word == "tensor" and float(c.sequence_parallel):
            return calls * float(ring.gather_s(buffer / 2) + ring.scatter_s(buffer / 2))
        if word == "tensor":
            return calls * float(ring.sum_s(buffer / 2))
        if word == "fsdp":
            return calls * float(ring.gather_s(buffer))
        if word == "gradients" and self._sums(kind):
            return float(ring.sum_s(buffer / 2)) + 2 * self._longer_s(kind, 0, float(buffer) / 2)
        if word == "gradients":
            return float(ring.scatter_s(buffer)) + self._longer_s(kind, 0, float(buffer))
        return float(ring.gather_s(buffer)) + self._longer_s(kind, 1, float(buffer))

    def _longer_s(self, kind: str, which: int, size_bytes: float) -> float:
        """Return what the job's algorithm and bucket add to half of an exchange of so many bytes."""
        c = self.case
        assert c is not None
        for of_kind, buffer in zip(("data", "data (experts)"), exchanged(c), strict=False):
            if of_kind == kind and float(buffer[which]) > 0:
                return size_bytes / float(buffer[which]) * float(longer_s(c, self.k, buffer, which))
        return 0.0

    def _context_s(self, c: Case, sent_bytes: float) -> float:
        """Return what the library takes for the part of context parallelism's exchanges that sends so much."""
        if float(c.ulysses):
            width = (c.heads + c.kv_heads) * (c.qk_size + c.v_size)
            return (
                sent_bytes / float((c.cp - 1) / c.cp * 2 * c.tokens * width / c.tp) * float(head_exchange_s(c, self.k))
            )
        once = (c.cp - 1) * 2 * c.tokens * (c.qk_size + c.v_size) * c.kv_heads / c.tp
        return sent_bytes / float(once) * float(ring_attention_s(c, self.k))

    def _calls_s(self, kind: str, calls: float) -> float:
        c, k = self.case, self.k
        assert c is not None
        if kind.startswith("send"):
            return calls * float(sends_of(c, k, np.zeros(())).call_s("send_recv"))
        return calls * float(ring_of(c, k, *self._members(c, kind), np.zeros(())).call_s())


def laid_group(
    rails: Rails, machine: Machine, k: Constants, groups: Longs, carried: Floats, *, pairs: bool = False,
    sums: bool = False,
) -> GroupNetwork:  # fmt: skip
    """Return the collectives of groups of devices; `carried` is what they put on links per byte that a rank sends."""
    members, site = np.unique(rails.domain_of[groups[0]], return_counts=True)[1], rails.network.fabric.site_of_host
    ranks, near = float(groups.shape[1]), float(members.max() if pairs else members.min())
    need_s = rails.longest_s(carried, "traffic of a group", network=machine.library is not None)
    sent = rails.sent_out(groups) if pairs else of_ring(ranks, len(members)) if sums else 1.0
    far = len(np.unique(site[rails.network.fabric.devices.host[groups[0]]])) > 1
    return placed_group(machine, k, ranks, near, sent / need_s if need_s > 0 else 0.0, pairs=pairs, far=far)
