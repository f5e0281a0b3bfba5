"""What each collective of a step puts on every link: its Program, on all groups of a stage at once.

The ranks of a stage work in step, so all groups along one axis begin together and the slowest sets the pace. Their
Program (rings or levels, every pair for an all-to-all) is laid on the routes of the fabric once; bytes are counted per
byte that a rank sends. Links that carry the same of everything are one to the flow engine.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from syncline.errors import SimulationError
from syncline.fabric.fabric import NETWORK_TIERS, Fabric, Tier
from syncline.fabric.fabric import DeviceKind as Device
from syncline.schedule import Kind, hierarchical, ring, verify
from syncline.schedule.schedule import Schedule
from syncline.sim.double_tree import tree_share
from syncline.sim.flow.detours import dragonfly_routing
from syncline.sim.flow.engine import Paths
from syncline.sim.flow.rounds import lanes
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions, Routing, SentTogether
from syncline.sim.reach import Cells, fabric_reach
from syncline.sim.step.reach import Reach
from syncline.timeline.columns import sum_by
from syncline.workload.parallel import Parallel

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
MAX_PAIRS = 4_000_000
MAX_TURNS = 64
MOST_LAID = 40_000_000
"""Links of what is kept, most of which carry nothing."""
Flows = tuple[Longs, Longs, Floats]
"""Who sends to whom, and how much."""
_NO_FLOWS: Flows = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))

_NO_PATHS = Paths.of([])


@dataclass(eq=False)
class _Routed:
    """Pairs of devices in ascending order, and the path of each: the groups of many plans have them in common."""

    pair: Longs = field(default_factory=lambda: np.full(1, np.iinfo(np.int64).max))  # the last is no pair
    row: Longs = field(default_factory=lambda: np.zeros(1, np.int64))
    paths: Paths = _NO_PATHS

    def unknown(self, pair: Longs) -> Longs:
        if len(self.paths.link) > MOST_LAID:
            self.pair, self.row, self.paths = self.pair[-1:], self.row[-1:], _NO_PATHS
        return np.asarray(pair[self.pair[np.searchsorted(self.pair, pair)] != pair])

    def add(self, pair: Longs, paths: Paths) -> None:
        pair, row = np.append(self.pair, pair), np.append(self.row, np.arange(len(paths)) + len(self.paths))
        order = np.argsort(pair, kind="stable")
        self.pair, self.row, self.paths = pair[order], row[order], self.paths.then(paths)


@lru_cache(maxsize=4)  # closed forms and executions of all plans on a fabric route its pairs once
def _rails_of(fabric: Fabric, e_net: float, e_nvl: float, routing: Routing) -> Rails:
    links = fabric.links
    kind = fabric.devices.kind
    # A NIC's own way into its host carries what its port does, and sustains the same share of its rate.
    below = (links.tier == Tier.PCIE) & ((kind[links.src] == Device.NIC) | (kind[links.dst] == Device.NIC))
    outside = np.isin(links.tier, [int(tier) for tier in NETWORK_TIERS]) | below
    share = np.where(outside, e_net, np.where(links.tier == Tier.SCALE_UP, e_nvl, 1.0))
    return Rails.on(fabric, np.where(links.up, links.rate_Bps, 0.0) * share, e_net, routing)


@dataclass(frozen=True, eq=False)
class Rails:
    """A fabric with the rates that steps sustain, and the routes over it.

    With `spray`, traffic between switches is spread over all links that leave a cell (`sim/reach.py`), so what leaves a
    rack, pod or site is one link here, after those of the fabric. Other routings keep the path of every flow, and a
    dragonfly those that its own routing gives the flows of one collective (`sim/flow/detours.py`).
    """

    network: FlowNetwork
    capacity_Bps: Floats
    balanced: tuple[Cells, ...] = ()
    _laid: dict[Hashable, Paths] = field(default_factory=dict, repr=False)
    _routed: _Routed = field(default_factory=_Routed, repr=False)

    @staticmethod
    def of(fabric: Fabric, e_net: float, e_nvl: float, routing: Routing = "spray") -> Rails:
        """Return the links of a fabric at the shares of their rate that training was seen to reach."""
        return _rails_of(fabric, e_net, e_nvl, routing)

    @classmethod
    def on(cls, fabric: Fabric, capacity_Bps: Floats, e_net: float, routing: Routing) -> Rails:
        """Return the links of a fabric with given rates; cells let out `e_net` of theirs."""
        cells = fabric_reach(fabric).outer if routing == "spray" else ()
        known = "ecmp" if cells else routing
        choice = dragonfly_routing(fabric)
        if cells and choice is not None:  # what leaves a switch depends on who sends to whom: flows keep their links
            cells, known = (), "spray" if choice == "minimal" else choice
        network = FlowNetwork(fabric, NetworkOptions(known, transport="ideal", cross_rail="nvlink"))
        ways = [np.concatenate((level.even_Bps, level.even_Bps)) * e_net for level in cells]
        return cls(network, np.concatenate((capacity_Bps, *ways)), cells)

    @cached_property
    def domain_of(self) -> Longs:
        """The scale-up domain of every device of a host; -1 for others."""
        fabric = self.network.fabric
        found = np.full(len(fabric.devices), -1, np.int64)
        placed = fabric.devices.host >= 0
        found[placed] = fabric_reach(fabric).hosts.of_host[fabric.devices.host[placed]]
        return found

    @cached_property
    def mesh(self) -> bool:
        """Whether every GPU of a host has a link of its own to every other (A100 boards of four, MI300X)."""
        fabric = self.network.fabric
        links, kind = fabric.links, fabric.devices.kind
        near = links.tier == Tier.SCALE_UP
        direct = near & (kind[links.src] == Device.GPU) & (kind[links.dst] == Device.GPU)
        if not direct.any() or (near & ~direct).any():
            return False
        peers = np.bincount(links.src[direct], minlength=len(fabric.devices))[fabric.gpus]
        here = np.bincount(fabric.gpu_host, minlength=fabric.num_hosts)[fabric.gpu_host]
        return bool((peers == here - 1).all())

    @cached_property
    def between_hosts(self) -> NDArray[np.bool_]:
        """Which links are not inside a host; those of cells come after the fabric's."""
        found, tier = np.ones(len(self.capacity_Bps), bool), self.network.fabric.links.tier
        found[: len(tier)] = np.isin(tier, [int(each) for each in NETWORK_TIERS])
        return found

    def gathers(self, groups: Longs, *, sums: bool = False, domain_of: Longs | None = None) -> Flows:
        """Return who sends what to whom in rings of groups (`gather_flows`)."""
        near = self.domain_of if domain_of is None else domain_of
        return gather_flows(groups, near, rings=True, sums=sums, mesh=self.mesh)

    def pairs(self, groups: Longs) -> Flows:
        """Return who sends what to whom in all-to-alls of equal parts."""
        out = self.sent_out(groups)
        return exchange_flows(groups, self.domain_of, out, 1 - out)

    def sent_out(self, groups: Longs) -> float:
        """Return what of an all-to-all of equal parts leaves the domains of its ranks."""
        domain = self.domain_of[groups[0]]
        return float((domain[:, None] != domain[None, :]).sum()) / max(len(domain) * (len(domain) - 1), 1)

    def longest_s(self, carried: Floats, what: str, *, network: bool = False) -> float:
        """Return how long the busiest link needs for what links carry; `network`: the busiest outside of hosts."""
        used = (carried > 0) & (self.between_hosts if network else True)
        if (self.capacity_Bps[used] <= 0).any():
            link = int(np.flatnonzero(used & (self.capacity_Bps <= 0))[0])
            raise SimulationError(f"{self.link_name(link)} is down, and {what} has no other way.")
        return float((carried[used] / self.capacity_Bps[used]).max(initial=0.0))

    def link_name(self, link: int) -> str:
        """Return the name of a link, or of all links that leave or enter a cell."""
        fabric = self.network.fabric
        link -= len(fabric.links)
        if link < 0:
            return fabric.link_name(link + len(fabric.links))
        for level in self.balanced:
            if link < 2 * level.num:
                cell, inward = link % level.num, link >= level.num
                host = fabric.host_names[int(np.flatnonzero(level.of_host == cell)[0])]
                return f"links {'into' if inward else 'out of'} the {level.name} of {host}"
            link -= 2 * level.num
        raise IndexError(link)

    def laid(self, key: Hashable, flows: Callable[[], Sequence[Flows]]) -> Floats:
        """Return what every link carries of each of the flows that a key names: plans of one fabric share many."""
        if key not in self._laid:
            if sum(len(kept.link) for kept in self._laid.values()) > MOST_LAID:
                self._laid.clear()
            self._laid[key] = sparse_rows(self.carried_each(flows()))
        kept = self._laid[key]
        found = np.zeros((len(kept), len(self.capacity_Bps)))
        found[kept.row_of_crossing(), kept.link] = kept.share
        return found

    def carried(self, src: Longs, dst: Longs, weight: Floats) -> Floats:
        """Return what every link carries of flows between devices."""
        found: Floats = self.carried_each([(src, dst, weight)])[0]
        return found

    def carried_each(self, flows: Sequence[Flows]) -> Floats:
        """Return what every link carries of each of several flows, which do not meet."""
        width, num = len(self.network.fabric.devices), len(self.capacity_Bps)
        which = np.repeat(np.arange(len(flows)), [len(one[0]) for one in flows])
        src, dst = (np.concatenate([np.asarray(one[end], np.int64) for one in flows]) for end in (0, 1))
        weight, apart = np.concatenate([one[2] for one in flows]), src != dst
        sent, at = np.unique(((which * width + src) * width + dst)[apart], return_inverse=True)
        if not len(sent):
            return np.zeros((len(flows), num))
        total, which, pair = sum_by(at, weight[apart], len(sent)), sent // width**2, sent % width**2
        paths = self._paths(pair, which, total)
        row = paths.row_of_crossing()
        found = sum_by(which[row] * num + paths.link, total[row] * paths.shares(), len(flows) * num).reshape(-1, num)
        return self._spread(found, which, pair // width, pair % width, total) if self.balanced else found

    def _paths(self, pair: Longs, which: Longs, total: Floats) -> Paths:
        """Return the path of each of some pairs of devices: routed once, unless load decides."""
        width = len(self.network.fabric.devices)
        if self.network.by_load:
            none = np.zeros(len(pair), np.int64)
            wires = self.network.wire(pair // width, pair % width, none, sent=SentTogether(total, which))
            return wires.counted.take(wires.first)
        routed = self._routed
        if len(new := np.unique(routed.unknown(pair))):
            wires = self.network.wire(new // width, new % width, np.zeros(len(new), np.int64))
            routed.add(new, wires.counted.take(wires.first))
        return routed.paths.take(routed.row[np.searchsorted(routed.pair, pair)])

    def _spread(self, found: Floats, which: Longs, src: Longs, dst: Longs, total: Floats) -> Floats:
        """Return the load with what crosses links between switches laid on all that leave and enter the cells."""
        fabric = self.network.fabric
        between = np.isin(fabric.links.tier, [int(tier) for tier in BETWEEN])
        found[:, : len(between)][:, between] = 0.0
        first = len(between)
        for level in self.balanced:
            ends = [level.of_host[fabric.devices.host[end]] for end in (src, dst)]
            away = ends[0] != ends[1]
            for cell in ends:
                load = sum_by((which * level.num + cell)[away], total[away], len(found) * level.num)
                found[:, first : first + level.num] += load.reshape(-1, level.num)
                first += level.num
        return found


def sparse_rows(table: Floats) -> Paths:
    """Return the rows of a table by what is not 0."""
    row, column = np.nonzero(table)
    start = np.searchsorted(row, np.arange(len(table) + 1))
    return Paths(start.astype(np.int64), column.astype(np.int32), table[row, column])


BETWEEN = (Tier.LEAF_SPINE, Tier.SPINE_CORE, Tier.GROUP_LOCAL, Tier.GROUP_GLOBAL, Tier.WAN, Tier.OPTICAL)


def devices_of(fabric: Fabric, split: Parallel, reach: Reach, dies: int = 1) -> Longs:
    """Return the device of every rank, ranks ordered tensor, context, data, stage, placed as a split says.

    Sites are filled from the largest on, so a job that fits into one of them has that one alone, whatever their order.
    """
    total = split.tp * split.cp * (split.dp or 1) * split.pp
    seat = np.arange(total, dtype=np.int64)
    gpus = fabric.gpus.astype(np.int64)
    if np.isfinite(reach.site_gpus):
        gpus, sizes = _largest_first(fabric)
        seat = _over_sites(split, seat, sizes * max(dies, 1))
    if split.placement in ("spread", "scattered"):
        gpus = _dealt(fabric, split.placement)
    return np.asarray(gpus[seat // max(dies, 1)])


def _largest_first(fabric: Fabric) -> tuple[Longs, Longs]:
    """Return the GPUs with those of the largest site first, and how many each site has, in that order."""
    site = fabric.site_of_host.astype(np.int64)[fabric.gpu_host]
    sizes = np.bincount(site)
    order = np.argsort(-sizes, kind="stable")
    place = np.argsort(order)
    return fabric.gpus.astype(np.int64)[np.argsort(place[site], kind="stable")], sizes[order]


def _over_sites(split: Parallel, rank: Longs, sizes: Longs) -> Longs:
    """Return the seat of every rank: whole stages, or else whole replicas, at each of several sites where they fit.

    `sizes` are the ranks that sites hold, seats in their order. What fits neither way fills seat after seat.
    """
    sites = int(np.searchsorted(np.cumsum(sizes), len(rank))) + 1
    held = sizes[:sites]
    start = np.cumsum(held) - held
    replicas, span = (split.dp or 1) * split.cp, len(rank) // split.pp
    if sites > 1 and split.placement == "stages":
        stages = _dealt_to_sites(split.pp, held // span)
        if stages is not None:
            site, local = stages
            return np.asarray(start[site[rank // span]] + span * local[rank // span] + rank % span)
    found = _dealt_to_sites(replicas, held // (split.tp * split.pp)) if sites > 1 else None
    if found is None:
        return rank
    site, local = found
    each = np.bincount(site, minlength=sites)
    if (each * split.tp % split.ep).any():  # replicas that share experts stay together
        return rank
    tensor, rest = rank % split.tp, rank // split.tp
    replica, stage = rest % replicas, rest // replicas
    here = site[replica]
    return np.asarray(start[here] + tensor + split.tp * (local[replica] + each[here] * stage))


def _dealt_to_sites(parts: int, room: Longs) -> tuple[Longs, Longs] | None:
    """Return the site of every part and its place there: as many at each where there is room, else site after site.

    >>> [column.tolist() for column in _dealt_to_sites(4, np.array([4, 2]))]
    [[0, 0, 1, 1], [0, 1, 0, 1]]
    >>> [column.tolist() for column in _dealt_to_sites(6, np.array([4, 2]))]
    [[0, 0, 0, 0, 1, 1], [0, 1, 2, 3, 0, 1]]
    >>> _dealt_to_sites(4, np.array([2, 1])) is None
    True
    """
    if room.sum() < parts:
        return None
    even = parts % len(room) == 0 and (room >= parts // len(room)).all()
    upto = np.minimum(np.cumsum(room), parts)
    each = np.full(len(room), parts // len(room)) if even else np.diff(upto, prepend=0)
    site = np.repeat(np.arange(len(room)), each)
    return site, np.arange(parts) - (np.cumsum(each) - each)[site]


def _dealt(fabric: Fabric, placement: str) -> Longs:
    """Return the GPUs with hosts dealt to racks in turn, or in any order."""
    hosts = np.arange(fabric.num_hosts)
    if placement == "scattered":
        order = np.random.default_rng(0).permutation(hosts)
    else:
        rack = fabric.rack_of_host.astype(np.int64)
        turn = np.zeros(len(hosts), np.int64)
        for number in np.unique(rack):
            turn[rack == number] = np.arange(int((rack == number).sum()))
        order = np.lexsort((rack, turn))
    place = np.empty(len(hosts), np.int64)
    place[order] = np.arange(len(hosts))
    return np.asarray(fabric.gpus[np.argsort(place[fabric.gpu_host], kind="stable")], dtype=np.int64)


def gather_flows(
    groups: Longs, domain_of: Longs, *, rings: bool = False, sums: bool = False, mesh: bool = False
) -> Flows:
    """Return who sends what to whom in gathers (or scatters) on groups, per byte that a rank sends.

    Members of a domain are visited together, domains in the order of their first rank: level by level, where all
    domains hold as many of them. With `rings`, as NCCL gathers and scatters, or where domains differ, there is a ring
    for each member, so that all ports are used: as many as give every member of every domain the same part. In a
    `mesh`, GPUs joined pair by pair, rings in all orders inside a domain use every link alike. Half of an all-reduce
    (`sums`) leaves two domains as levels do, which is a double tree's share of their ports (`sim/double_tree.py`).
    """
    num = groups.shape[1]
    if num < 2:
        return _NO_FLOWS
    ordered, runs = _by_domain(groups, domain_of)
    if mesh and (runs[:, 0] == num).all():
        return exchange_flows(groups, domain_of, 0.0, 1.0)
    src, dst, share = [], [], []
    for run in np.unique(runs, axis=0):
        chosen = ordered[(runs == run).all(axis=1)]
        sizes = run[run > 0]
        level = (not rings or (sums and tree_share(len(sizes)) < 2)) and len(set(sizes.tolist())) == 1
        turns = [np.arange(num)] if level or len(sizes) == 1 else _turned(sizes)
        for lane in lanes(_schedule(num, int(sizes[0]) if level else 1)):
            for phase in lane.phases:
                for turn in turns:
                    src.append(chosen[:, turn[phase.src]].ravel())
                    dst.append(chosen[:, turn[phase.dst]].ravel())
                    share.append(np.tile(phase.share * phase.repeat / len(turns), len(chosen)))
    flows = np.concatenate(src), np.concatenate(dst), np.concatenate(share) * num / (num - 1)
    sizes = np.unique(runs[runs > 0])
    return _over_all_pairs(flows, ordered, domain_of, int(sizes[0])) if mesh and len(sizes) == 1 else flows


def _over_all_pairs(flows: Flows, ordered: Longs, domain_of: Longs, size: int) -> Flows:
    """Return flows with what stays in a domain spread evenly over its pairs: rings there take all orders."""
    src, dst, weight = flows
    near = domain_of[src] == domain_of[dst]
    if size < 3 or not near.any():
        return flows
    a, b = np.nonzero(~np.eye(size, dtype=bool))
    blocks = ordered.reshape(-1, size)
    each = np.full(len(blocks) * len(a), weight[near].sum() / (len(blocks) * len(a)))
    return (
        np.concatenate((src[~near], blocks[:, a].ravel())),
        np.concatenate((dst[~near], blocks[:, b].ravel())),
        np.concatenate((weight[~near], each)),
    )


def _by_domain(groups: Longs, domain_of: Longs) -> tuple[Longs, Longs]:
    """Return groups with the members of a domain side by side, and how many each domain has, in their order."""
    rows, num = groups.shape
    near = domain_of[groups]
    key = near + (np.arange(rows)[:, None] * (int(near.max(initial=0)) + 2) + 1)
    _, at, of_member, count = np.unique(key.ravel(), return_index=True, return_inverse=True, return_counts=True)
    first = at[of_member.ravel()].reshape(rows, num)  # where a member's domain comes first
    runs = np.zeros(rows * num, np.int64)
    runs[at] = count
    runs = runs.reshape(rows, num)
    runs = np.take_along_axis(runs, np.argsort(runs == 0, axis=1, kind="stable"), axis=1)
    return np.take_along_axis(groups, np.argsort(first, axis=1, kind="stable"), axis=1), runs


def _turned(sizes: Longs) -> list[Longs]:
    """Return the orders of a group's members in which each domain is entered at another member, each as often.

    >>> [turn.tolist() for turn in _turned(np.array([2, 1]))]
    [[0, 1, 2], [1, 0, 2]]
    >>> len(_turned(np.array([4, 3])))
    12
    """
    num = int(np.lcm.reduce(np.unique(sizes)))
    starts = np.cumsum(sizes) - sizes
    return [
        np.concatenate([start + (np.arange(size) + turn) % size for start, size in zip(starts, sizes, strict=True)])
        for turn in range(num if num <= MAX_TURNS else int(sizes.max()))
    ]


@lru_cache(maxsize=256)
def _schedule(num: int, inside: int) -> Schedule:
    """Return the Program of a gather: members of a domain first, then domains, or one ring."""
    if 1 < inside < num and num % inside == 0:
        return verify(hierarchical((num // inside, inside), Kind.ALL_GATHER)).schedule
    return verify(ring(num, kind=Kind.ALL_GATHER)).schedule


def exchange_flows(groups: Longs, domain_of: Longs, out: float, inside: float) -> Flows:
    """Return who sends what to whom in an all-to-all: `out` bytes of a rank to other domains, `inside` to its own."""
    num = groups.shape[1]
    if num < 2:
        return _NO_FLOWS
    kept = groups[: max(1, MAX_PAIRS // (num * num))] if len(groups) * num * num > MAX_PAIRS else groups
    a, b = np.nonzero(~np.eye(num, dtype=bool))
    src, dst = kept[:, a].ravel(), kept[:, b].ravel()
    near = domain_of[src] == domain_of[dst]
    each = near.sum() / max(len(kept) * num, 1), (~near).sum() / max(len(kept) * num, 1)
    return src, dst, np.where(near, inside / max(each[0], 1e-12), out / max(each[1], 1e-12))


def pass_flows(src: Longs, dst: Longs) -> Flows:
    """Return every rank sending one byte to its counterpart."""
    return src, dst, np.ones(len(src))


def alike_links(table: Floats, capacity_Bps: Floats) -> Longs:
    """Return the first of each set of links that carry alike, of those that carry anything: one stands for all."""
    used = np.flatnonzero((table > 0).any(axis=0)) if len(table) else np.empty(0, np.int64)
    need = table[:, used] / np.maximum(capacity_Bps[used], 1e-30)
    weights = np.random.default_rng(7).random(len(table)) + 0.5
    key = np.round(weights @ need / max(float((weights @ need).max(initial=0.0)), 1e-300), 12)
    return used[np.sort(np.unique(key, return_index=True)[1])]


def fold_links(table: Floats, capacity_Bps: Floats) -> tuple[Paths, Longs, Floats]:
    """Return a path for each row of bytes on links, over links of which those that carry alike are one."""
    links = alike_links(table, capacity_Bps)
    return sparse_rows(table[:, links]), links, capacity_Bps[links]
