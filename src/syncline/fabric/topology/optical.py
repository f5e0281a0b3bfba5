"""An optical circuit-switched layer: pods of an ordinary network joined by circuits that can be laid anew.

While a circuit stands it is a wire between two switches, so circuits are links of tier OPTICAL between the pods' top
switches. The optical switches are devices that are counted and priced; what they add in time is `reconfiguration`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from syncline.describe.quantity import Seconds, Strict
from syncline.errors import FabricError
from syncline.fabric.draft import Draft
from syncline.fabric.topology import clos
from syncline.fabric.topology.leaf_spine import add_leaves, whole_hosts
from syncline.fabric.topology.network import NetworkParts, Ports, Ratio, ceil_div, numbered
from syncline.fabric.wiring import DeviceKind, IntArray, Tier


class Circuit(Strict):
    """So many circuits between two pods."""

    a: int = Field(ge=0)
    b: int = Field(ge=0)
    circuits: int = Field(ge=1)


class Optical(clos.Clos):
    """Pods of `hosts_per_pod` hosts (leaf-spine inside) whose spines reach other pods through optical switches.

    `pattern` lays the circuits of each spine over the other pods: `mesh` evenly over all, `ring` half to each
    neighbour, or `circuits` names them.
    """

    topology: Literal["optical"]
    hosts_per_pod: int = Field(ge=1)
    oversubscription: Ratio = 1.0
    pattern: Literal["mesh", "ring", "listed"] = "mesh"
    circuits: tuple[Circuit, ...] = ()
    optical_switch: str = "OCS-136"
    reconfiguration: Seconds = 0.025
    """Time without light while circuits move; 10-30 ms for MEMS mirrors (Lightwave Fabrics, SIGCOMM 2023)."""

    @model_validator(mode="after")
    def _listed(self) -> Optical:
        if (self.pattern == "listed") != bool(self.circuits):
            raise ValueError("`pattern: listed` and `circuits:` go together")
        return self

    def build(self, draft: Draft, ports: Ports) -> None:
        parts = self.parts(draft.catalog)
        num_pods = ceil_div(ports.num_hosts, self.hosts_per_pod)
        down, uplinks = clos.leaf_split(parts, self.oversubscription)
        per_leaf = min(whole_hosts(down, ports.per_host, parts.switch.name) // ports.per_host, self.hosts_per_pod)
        leaves_per_pod = ceil_div(self.hosts_per_pod, per_leaf)
        if num_pods > 1 and (ports.num_hosts % self.hosts_per_pod or self.hosts_per_pod % per_leaf):
            raise FabricError(
                f"{ports.num_hosts} hosts do not fill pods of {self.hosts_per_pod} with {per_leaf} to a leaf.",
                hint=f"Use a multiple of {self.hosts_per_pod} hosts, and pods of a multiple of {per_leaf}.",
            )
        leaves, _ = add_leaves(self, draft, ports, parts, per_leaf * ports.per_host)
        spines = self._spines(draft, leaves, parts, uplinks, num_pods, leaves_per_pod, ports.site)
        self._lay_circuits(draft, spines, parts, ports.site)

    def _spines(
        self, draft: Draft, leaves: IntArray, parts: NetworkParts, uplinks: int, num_pods: int, per_pod: int, site: int
    ) -> IntArray:
        half = parts.uplink_radix // 2  # the other half of a spine's ports is for circuits
        num_spines = next((s for s in clos.divisors(uplinks) if per_pod * uplinks // s <= half), 0)
        if num_spines == 0:
            raise FabricError(
                f"a pod of {per_pod} leaves needs {per_pod} down ports on every spine, which has {half}.",
                hint="Use smaller pods or a larger switch.",
            )
        plan = clos.ClosPlan(len(leaves), uplinks, num_pods, per_pod, num_spines, uplinks // num_spines, 0, 0)
        return clos.lay(draft, self, plan, leaves, parts, "", site).reshape(num_pods, num_spines)

    def _lay_circuits(self, draft: Draft, spines: IntArray, parts: NetworkParts, site: int) -> None:
        num_pods, per_pod = spines.shape
        free = parts.uplink_radix // 2
        pairs = self._pairs(num_pods, free * per_pod)
        table = np.array(pairs, np.int64).reshape(-1, 3)
        a_pod, b_pod = np.repeat(table[:, 0], table[:, 2]), np.repeat(table[:, 1], table[:, 2])
        spine = _in_turn(np.concatenate((a_pod, b_pod)), per_pod)
        a, b = spines[a_pod, spine[: len(a_pod)]], spines[b_pod, spine[len(a_pod) :]]
        draft.cable(
            a,
            b,
            link=parts.uplink,
            tier=Tier.OPTICAL,
            length_m=2 * self.lengths.spine_core,
            end_latency_s=parts.switch.latency_s,
        )
        optical = draft.catalog.switch(self.optical_switch)
        num_switches = ceil_div(2 * len(a), draft.catalog.num_ports(optical, parts.uplink))
        draft.add_switches(numbered("ocs", num_switches), optical, level=3, kind=DeviceKind.OCS, site=site)
        draft.facts["reconfiguration_s"] = self.reconfiguration
        draft.facts["circuits"] = len(a)

    def _pairs(self, num_pods: int, free: int) -> list[tuple[int, int, int]]:
        if self.pattern == "listed":
            return self._listed_pairs(num_pods, free)
        if num_pods == 1:
            return []
        if self.pattern == "ring":
            each = free if num_pods == 2 else free // 2
            ring = {(min(i, (i + 1) % num_pods), max(i, (i + 1) % num_pods)) for i in range(num_pods)}
            return [(a, b, each) for a, b in sorted(ring)]
        each = free // (num_pods - 1)
        if each == 0:
            raise FabricError(
                f"a pod has {free} optical ports, too few for a circuit to each of {num_pods - 1} others.",
                hint="Use `pattern: ring`, larger pods, or list the circuits.",
            )
        return [(a, b, each) for a in range(num_pods) for b in range(a + 1, num_pods)]

    def _listed_pairs(self, num_pods: int, free: int) -> list[tuple[int, int, int]]:
        used = np.zeros(num_pods, np.int64)
        for circuit in self.circuits:
            if max(circuit.a, circuit.b) >= num_pods or circuit.a == circuit.b:
                raise FabricError(
                    f"circuit {circuit.a}-{circuit.b} does not join two of the {num_pods} pods.",
                    hint=f"Pods are numbered 0 to {num_pods - 1}.",
                )
            used[[circuit.a, circuit.b]] += circuit.circuits
        if (used > free).any():
            pod = int(np.argmax(used))
            raise FabricError(f"pod {pod} has {used[pod]} circuits but {free} optical ports.", hint="List fewer.")
        return [(c.a, c.b, c.circuits) for c in self.circuits]


def _in_turn(pods: np.ndarray, per_pod: int) -> np.ndarray:
    """Deal each pod's circuit ends over its spines in turn."""
    order = np.argsort(pods, kind="stable")
    starts = np.searchsorted(pods[order], pods[order])
    result = np.empty(len(pods), np.int64)
    result[order] = (np.arange(len(pods)) - starts) % per_pod
    return result
