"""Folded-Clos arithmetic and wiring above the leaves: what leaf-spine, fat-tree and rail builders share.

Leaves are given; this file decides how many spines and cores join them and lays the cables. Each leaf spreads its
uplinks evenly over the spines of its pod, so the number of spines divides the number of uplinks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from syncline.errors import FabricError
from syncline.fabric.catalog import Catalog, Switch
from syncline.fabric.draft import Draft
from syncline.fabric.topology.network import NetworkParts, NetworkSpec, ceil_div, numbered, split_ports
from syncline.fabric.wiring import IntArray, Tier


class Clos(NetworkSpec):
    """A network of leaves, spines and perhaps cores; the upper layers may be of other switches than the leaves."""

    spine_switch: str | None = None
    """Switch model of the spines; default: that of the leaves."""
    core_switch: str | None = None
    """Switch model of the cores; default: that of the spines."""

    def upper(self, catalog: Catalog) -> Upper:
        """Look the models of the upper layers up."""
        parts = self.parts(catalog)
        spine = catalog.switch(self.spine_switch) if self.spine_switch else parts.switch
        core = catalog.switch(self.core_switch) if self.core_switch else spine
        return Upper(spine, catalog.num_ports(spine, parts.uplink), core, catalog.num_ports(core, parts.uplink))


@dataclass(frozen=True)
class Upper:
    """The switches above the leaves, and how many ports of the uplink's kind each has."""

    spine: Switch
    spine_radix: int
    core: Switch
    core_radix: int


@dataclass(frozen=True)
class ClosPlan:
    """How many switches stand above the leaves, and how many parallel cables join each pair.

    In two tiers there is one pod and no core. `leaf_cables` cables join a leaf to each spine of its pod. The spines of
    a pod are split into sets of `spines_per_set`; set i of every pod shares core group i, and `core_cables` cables
    join a spine to each of the `cores_per_group` cores of its group.
    """

    num_leaves: int
    uplinks: int
    num_pods: int
    leaves_per_pod: int
    spines_per_pod: int
    leaf_cables: int
    cores_per_group: int
    core_cables: int
    spines_per_set: int = 1

    @property
    def num_spines(self) -> int:
        return self.num_pods * self.spines_per_pod

    @property
    def num_cores(self) -> int:
        return self.spines_per_pod // self.spines_per_set * self.cores_per_group


def two_tier(num_leaves: int, uplinks: int, radix: int, num_spines: int | None = None) -> ClosPlan:
    """Plan one layer of spines: as few as carry all uplinks with the same number of cables from every leaf."""
    if num_leaves == 1 and num_spines is None:
        return ClosPlan(1, 0, 1, 1, 0, 0, 0, 0)
    if num_spines is not None:
        choices = [num_spines] if uplinks % num_spines == 0 else []
        if not choices:
            raise FabricError(
                f"{uplinks} uplinks of a leaf cannot be spread evenly over {num_spines} spines.",
                hint=f"Use a number of spines that divides {uplinks}: {divisors(uplinks)}.",
            )
    else:
        choices = divisors(uplinks)
    for spines in choices:
        cables = uplinks // spines
        if num_leaves * cables <= radix:
            return ClosPlan(num_leaves, uplinks, 1, num_leaves, spines, cables, 0, 0)
    raise FabricError(
        f"{num_leaves} leaf switches need {num_leaves} ports on every spine, but the spine has {radix}.",
        hint="Use three tiers (tiers: 3), a larger switch, or fewer hosts.",
    )


def three_tier(
    num_leaves: int,
    uplinks: int,
    radix: int,
    ratio: float = 1.0,
    leaves_per_pod: int | None = None,
    core_radix: int | None = None,
) -> ClosPlan:
    """Plan pods of leaves and spines joined by cores; `ratio` is the spines' down to up ratio at most.

    As few cores as carry the spines' uplinks evenly: a core takes cables from several spines of a pod where it has
    the ports. DGX A100 SuperPOD: 80 spines with 14 uplinks each fill 28 cores of 40 ports.
    """
    down, _ = split_ports(radix, ratio)
    if leaves_per_pod is None:
        leaves_per_pod = min(num_leaves, down)
    choices = [s for s in divisors(uplinks) if leaves_per_pod * (uplinks // s) <= down]
    if not choices:
        raise FabricError(
            f"a pod of {leaves_per_pod} leaves needs {leaves_per_pod} down ports on every spine, which has {down}.",
            hint="Make the pods smaller (leaves_per_pod), or pick a larger switch.",
        )
    spines = choices[0]
    num_pods = ceil_div(num_leaves, leaves_per_pod)
    up = uplinks_for(leaves_per_pod * (uplinks // spines), ratio)
    per_set, cables = _core_share(spines, up, num_pods, radix if core_radix is None else core_radix)
    leaf_cables = uplinks // spines
    return ClosPlan(num_leaves, uplinks, num_pods, leaves_per_pod, spines, leaf_cables, up // cables, cables, per_set)


def _core_share(spines: int, up: int, num_pods: int, radix: int) -> tuple[int, int]:
    """Return how many spines of a pod share a core and with how many cables each, to use the most of its ports."""
    room = radix // num_pods
    shares = [(per_set * cables, cables) for per_set in divisors(spines) for cables in divisors(up)]
    fitting = [share for share in shares if share[0] <= room]
    if not fitting:
        raise FabricError(
            f"{num_pods} pods need {num_pods} ports on every core switch, but it has {radix}.",
            hint="Use larger pods, a larger switch, several planes, or fewer hosts.",
        )
    ports, cables = max(fitting)
    return ports // cables, cables


def max_leaves(upper: Upper, tiers: int, ratio: float = 1.0) -> int:
    """Return how many leaves the largest fabric of that many tiers has."""
    if tiers == 1:
        return 1
    if tiers == 2:
        return upper.spine_radix
    down, _ = split_ports(upper.spine_radix, ratio)
    return upper.core_radix * down


def lay(
    draft: Draft, network: Clos, plan: ClosPlan, leaves: IntArray, parts: NetworkParts, prefix: str, site: int
) -> IntArray:
    """Add the spines and cores of a plan and cable them; returns the device ids of the top layer."""
    if plan.num_spines == 0:
        return leaves
    upper = network.upper(draft.catalog)
    pod_of_spine = np.repeat(np.arange(plan.num_pods), plan.spines_per_pod)
    spines = draft.add_switches(
        numbered(f"{prefix}spine", plan.num_spines), upper.spine, level=2, group=pod_of_spine, site=site
    )
    leaf_index = np.arange(plan.num_leaves)
    first_spine = (leaf_index // plan.leaves_per_pod) * plan.spines_per_pod
    a = np.repeat(leaves, plan.uplinks)
    uplink = np.tile(np.arange(plan.uplinks) % plan.spines_per_pod, plan.num_leaves)
    b = spines[np.repeat(first_spine, plan.uplinks) + uplink]
    _cable(draft, network, a, b, parts, Tier.LEAF_SPINE, (parts.switch, upper.spine))
    if plan.num_cores == 0:
        return spines
    cores = draft.add_switches(numbered(f"{prefix}core", plan.num_cores), upper.core, level=3, site=site)
    per_spine = plan.cores_per_group * plan.core_cables
    position = np.arange(plan.num_spines) % plan.spines_per_pod
    core = np.repeat(position // plan.spines_per_set * plan.cores_per_group, per_spine) + np.tile(
        np.arange(per_spine) % plan.cores_per_group, plan.num_spines
    )
    _cable(draft, network, np.repeat(spines, per_spine), cores[core], parts, Tier.SPINE_CORE, (upper.spine, upper.core))
    return cores


def _cable(
    draft: Draft, network: Clos, a: IntArray, b: IntArray, parts: NetworkParts, tier: Tier, ends: tuple[Switch, Switch]
) -> None:
    """Cable pairs of switches. A link carries the time of one switch: the mean where its ends differ."""
    length = network.lengths.leaf_spine if tier is Tier.LEAF_SPINE else network.lengths.spine_core
    latency_s = (ends[0].latency_s + ends[1].latency_s) / 2
    draft.cable(a, b, link=parts.uplink, tier=tier, length_m=length, end_latency_s=latency_s)


def uplinks_for(num_down: int, ratio: float) -> int:
    """Return how many uplinks keep down to up at `ratio` or better."""
    return max(1, math.ceil(num_down / ratio - 1e-9))


def leaf_split(parts: NetworkParts, ratio: float) -> tuple[int, int]:
    """Split a leaf into access ports and uplinks so that access/uplink bandwidth is `ratio`.

    With uplinks of another rate the ports trade against each other: a 64 x 800G switch has room for 64 access ports
    at 400G (half its capacity) beside 32 uplinks at 800G.
    """
    if parts.uplink.rate_Bps == parts.link.rate_Bps:
        return split_ports(parts.radix, ratio)
    access, upper = parts.radix, parts.uplink_radix
    best = (0, 0)
    for up in range(1, upper):
        down = min(
            int(access * (1 - up / upper) + 1e-9), int(up * parts.uplink.rate_Bps * ratio / parts.link.rate_Bps + 1e-9)
        )
        best = max(best, (down, up))
    if best[0] < 1:
        raise FabricError(f'switch "{parts.switch.name}" cannot be split at {ratio:g}:1 between its two rates.')
    return best


def even_leaves(
    parts: NetworkParts, upper: Upper, ratio: float, num_ports: int, per_host: int, *, num_rails: int = 1, step: int = 0
) -> tuple[int, int]:
    """Choose access ports and uplinks of a leaf: leaves and spines together fewest, the leaves filled evenly.

    A ratio such as 4:1 splits 64 ports into 51 and 13, and 13 uplinks spread evenly only over 13 spines; 48 and 12 need
    two. Twelve hosts on two leaves are 6 and 6, not 10 and 2 of which the second has uplinks for ten. Hosts of
    `per_host` ports stay whole, unless a `step` of fewer ports may split them. Each rail has leaves of its own.
    """
    step = step or per_host
    most = leaf_split(parts, ratio)[0]
    most -= most % step
    downs = range(max(most, step), most // 2, -step)
    most = min(downs, key=lambda down: _num_switches(parts, upper, ratio, down, num_rails * ceil_div(num_ports, down)))
    leaves = ceil_div(num_ports, most)
    even = min(most, ceil_div(ceil_div(num_ports, leaves), per_host) * per_host)
    fuller = range(even, most + 1, step)  # uplinks are those of the next fuller leaf where they need fewer spines
    best = min(fuller, key=lambda down: _num_switches(parts, upper, ratio, down, num_rails * leaves))
    return even, leaf_uplinks(parts, best, ratio)


def _num_switches(parts: NetworkParts, upper: Upper, ratio: float, down: int, num_leaves: int) -> float:
    """Return how many switches that many leaves of `down` access ports need; infinitely many where no spines do."""
    try:
        plan = two_tier(num_leaves, leaf_uplinks(parts, down, ratio), upper.spine_radix)
    except FabricError:
        return math.inf
    return num_leaves + plan.num_spines


def leaf_uplinks(parts: NetworkParts, num_down: int, ratio: float) -> int:
    """Return how many uplinks a leaf with so many access ports needs for access/uplink bandwidth of `ratio`."""
    return uplinks_for(num_down, ratio * parts.uplink.rate_Bps / parts.link.rate_Bps)


def divisors(n: int) -> list[int]:
    """Return the numbers that divide n, ascending."""
    return [d for d in range(1, n + 1) if n % d == 0]
