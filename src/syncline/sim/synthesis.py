"""An all-reduce made for an irregular fabric: a failed rail, a slow NIC, hosts with different numbers of ranks.

Every strand has one leader in each host: the host's ranks add up at it, the leaders all-reduce, and it hands the sum
back. What each rank can carry out of and into its host follows from its routes (a NIC that two ranks must share counts
once), and the shares are the maximum flow that all hosts can sustain at once:

1. rail k carries what its slowest host can: a_k = min over hosts of c(h, k);
2. where the weakest host has more, B = min over hosts of sum over k of c(h, k) > sum of a_k, the rest of each host's
   capacity is filled rank by rank, and leaders of different rails meet.

No all-reduce can move more than B into and out of the weakest host, so the shares are the best its NICs allow.

Where ranks are alike but their ways are not (on a dragonfly some rails stay at one switch and the others share the link
between two), `shared` gives rails the shares that keep the busiest link least busy: of u with A u <= 1, where A[l, k]
is what rail k would need of link l for the whole buffer, those with the largest sum. All are proved like any other.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from syncline.fabric.fabric import Tier
from syncline.program import Placement
from syncline.schedule.collective import Collective, Ints, Kind
from syncline.schedule.family.kernels import kernel
from syncline.schedule.kernel import Kernel, Stage
from syncline.schedule.schedule import Schedule, Strand
from syncline.sim.candidates import across
from syncline.sim.flow.routing import FlowNetwork

Floats = NDArray[np.float64]
PARTS = 1 << 16
"""Shares are whole parts of this; what is less than one part is left out."""

MAX_STRANDS = 32
MAX_SHARED = 128
"""Ranks up to which the ways of all pairs of a rail are looked at."""
WORTH = 0.97
"""Shares that gain less than this are not worth a schedule of their own."""
ALIKE = 0.01
"""Shares that differ by less are the same."""
SLACK = 1e-6
"""What a link that is decided may need more."""
SHARED = ("shared-rails", "shared-rails-even", "shared-rails-between", "falling-rails")


def synthesized(placement: Placement, network: FlowNetwork) -> Schedule | None:
    """Return the all-reduce for these ranks, or None where every rank can carry as much as every other."""
    hosts, local = _places(placement)
    if len(hosts) < 2 or placement.num_ranks != len(np.unique(placement.device)):
        return None
    capacity = _capacity(placement, network, hosts, local)
    if (capacity == capacity.max()).all() or not (capacity.sum(axis=1) > 0).all():
        return None
    strands = []
    for channel, (share, leaders) in enumerate(_shares(capacity)):
        ranks = np.array([hosts[h][k] for h, k in enumerate(leaders.tolist())])
        strands.append(_strand(hosts, ranks, share, channel))
    goal = Collective(Kind.ALL_REDUCE, placement.num_ranks)
    return Schedule("synthesized", goal, tuple(strands), family="synthesized")


def shared(placement: Placement, network: FlowNetwork) -> dict[str, Schedule]:
    """Return all-reduces whose rails have shares by the links they share, by name.

    Several shares may keep the busiest link equally busy, and which of them flows get through best depends on where
    else they meet: the first corner that is found is made, the evenest, and the one half way between them. Where equal
    shares do as well, shares that fall a little from rail to rail keep ranks out of step: one's round ends while the
    others' still send.
    """
    hosts, _ = _places(placement)
    rails = len(hosts[0])
    regular = {len(group) for group in hosts} == {rails} and placement.num_ranks == len(np.unique(placement.device))
    if not regular or len(hosts) < 2 or rails < 2 or placement.num_ranks > MAX_SHARED:
        return {}
    need = _needs(placement, network.sprayed(), np.array(hosts))
    if len(need) == 0 or not (need > 0).any(axis=0).all():
        return {}
    alike = need.mean(axis=1)  # what links need where rails have equal shares; of the busiest, no shares need less
    least = float(need[alike >= alike.max() * (1 - 1e-9)].mean(axis=0).min())
    corner, even = _packings(need) if least <= WORTH * float(alike.max()) else (np.empty(0), np.empty(0))
    if not len(corner) or float((need @ corner).max()) > WORTH * float(alike.max()):
        return {SHARED[3]: _on_rails(SHARED[3], hosts, np.arange(2 * rails, rails, -1), placement.num_ranks)}
    wanted = {SHARED[0]: corner}
    if np.abs(corner - even).max() > ALIKE:
        wanted |= {SHARED[1]: even, SHARED[2]: (corner + even) / 2}
    return {name: _on_rails(name, hosts, (share * PARTS).round().astype(np.int64), placement.num_ranks)
            for name, share in wanted.items()}  # fmt: skip


def _on_rails(name: str, hosts: list[Ints], share: Ints, num_ranks: int) -> Schedule:
    """Return the all-reduce whose rails have these shares, in parts of their sum."""
    parts = share.tolist()
    kept = [(part, np.array([group[k] for group in hosts])) for k, part in enumerate(parts) if part]
    strands = tuple(_strand(hosts, ranks, Fraction(part, sum(part for part, _ in kept)), channel)
                    for channel, (part, ranks) in enumerate(kept))  # fmt: skip
    return Schedule(name, Collective(Kind.ALL_REDUCE, num_ranks), strands, family="synthesized")


def _needs(placement: Placement, network: FlowNetwork, members: Ints) -> Floats:
    """Return the seconds that each rail would take of each link for a whole byte; members are hosts by rails."""
    num, rails = members.shape
    a, b = np.nonzero(~np.eye(num, dtype=bool))
    device = placement.device.astype(np.int64)
    found = np.zeros((len(network.capacity_Bps), rails))
    for k in range(rails):
        wires = network.wire(device[members[a, k]], device[members[b, k]], np.full(len(a), k))
        paths = wires.paths.take(wires.first)
        np.add.at(found[:, k], paths.link, paths.shares() * 2 / num)
    used = (found > 0).any(axis=1)
    return np.unique(found[used] / network.capacity_Bps[used, None], axis=0)


def _packings(need: Floats) -> tuple[Floats, Floats]:
    """Return two x >= 0 with sum 1 whose largest of `need @ x` is least: a corner, and one that is least in the rest.

    For the second, links that are as busy in every such x decide nothing more, and the largest of the others is made
    least; then of those that are left, and so on.

    >>> pair = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.6, 0.0]])
    >>> [share.round(3).tolist() for share in _packings(pair)]
    [[0.333, 0.556, 0.111], [0.333, 0.0, 0.667]]
    """
    from scipy.optimize import linprog

    need = need / need.max()
    rows, columns = need.shape
    held = np.full(rows, np.inf)  # what a link needs in every best answer, once that is known
    found: list[Floats] = []
    for _ in range(columns):
        free = np.isinf(held)
        best = linprog(  # shares, and the largest need of the links that are not decided yet
            np.append(np.zeros(columns), 1.0),
            A_ub=np.column_stack((need, -free.astype(np.float64))),
            b_ub=np.where(free, 0.0, np.where(free, 0.0, held) * (1 + SLACK)),
            A_eq=np.append(np.ones(columns), 0.0)[None, :],
            b_eq=[1.0],
        )
        if not best.success or best.x is None:
            break  # what is left of the others is less than rounding
        found.append(np.asarray(best.x[:-1]))
        tight = free & (-best.ineqlin.marginals > SLACK)
        if not tight.any():
            break
        held[tight] = (need @ found[-1])[tight]
    return found[0], found[-1]


def _places(placement: Placement) -> tuple[list[Ints], Ints]:
    """Return the ranks of each host, and the place of each rank in its host."""
    names, host = np.unique(placement.host, return_inverse=True)
    groups = [np.flatnonzero(host == h) for h in range(len(names))]
    local = np.zeros(placement.num_ranks, dtype=np.int64)
    for group in groups:
        local[group] = np.arange(len(group))
    return groups, local


def _capacity(placement: Placement, network: FlowNetwork, hosts: list[Ints], local: Ints) -> Floats:
    """Return what each rank of each host can carry to and from the next host: the least rate on its way."""
    after = [hosts[(h + 1) % len(hosts)] for h in range(len(hosts))]
    here = np.concatenate(hosts)
    peer = np.concatenate([other[np.arange(len(mine)) % len(other)] for mine, other in zip(hosts, after, strict=True)])
    out, out_nic, wait = _ways(placement, network, here, peer)
    back, back_nic, _ = _ways(placement, network, peer, here, into=True)
    rate = np.minimum(out, back)
    for nic in (out_nic, back_nic):  # ranks that share a NIC: the one nearest to it has it
        order = np.lexsort((wait, nic))
        again = order[1:][nic[order][1:] == nic[order][:-1]]
        rate[again] = 0.0
    table = np.zeros((len(hosts), max(len(group) for group in hosts)))
    host = np.concatenate([np.full(len(group), h) for h, group in enumerate(hosts)])
    table[host, local[here]] = rate
    return table


def _ways(
    placement: Placement, network: FlowNetwork, src: Ints, dst: Ints, *, into: bool = False
) -> tuple[Floats, Ints, Floats]:
    """Return rate, the NIC's cable at `src` (at `dst` with `into`) and latency of the way between each two ranks."""
    device = placement.device.astype(np.int64)
    wires = network.wire(device[src], device[dst], np.zeros(len(src), dtype=np.int64))
    paths = wires.paths.take(wires.first)
    row, tier = paths.row_of_crossing(), network.fabric.links.tier
    rate = np.full(len(src), np.inf)
    np.minimum.at(rate, row, network.capacity_Bps[paths.link])
    real = np.flatnonzero(paths.link < network.num_links)
    access = real[tier[paths.link[real]] == Tier.ACCESS]
    nic = -1 - np.arange(len(src))
    ordered = access if into else access[::-1]  # the last one written stays: the last cable in, the first one out
    nic[row[ordered]] = paths.link[ordered]
    return rate, nic.astype(np.int64), wires.latency_s[wires.first]


def _shares(capacity: Floats) -> list[tuple[Fraction, Ints]]:
    """Return (share, leader of each host) of every strand; the shares add up to one."""
    on_rail = capacity.min(axis=0)
    total = float(capacity.sum(axis=1).min())
    num_hosts = len(capacity)
    wanted = [(float(rate), np.full(num_hosts, k)) for k, rate in enumerate(on_rail) if rate > 0]
    missing = total - float(on_rail.sum())
    if missing > 0.02 * total:
        wanted += _filled(capacity - on_rail, missing)
    wanted = sorted(wanted, key=lambda entry: -entry[0])[:MAX_STRANDS]
    parts = [max(0, round(rate / sum(rate for rate, _ in wanted) * PARTS)) for rate, _ in wanted]
    kept = [(part, leaders) for part, (_, leaders) in zip(parts, wanted, strict=True) if part]
    return [(Fraction(part, sum(part for part, _ in kept)), leaders) for part, leaders in kept]


def _filled(left: Floats, amount: float) -> list[tuple[float, Ints]]:
    """Lay each host's remaining capacity side by side up to `amount` and cut where any host changes its leader."""
    ends = np.minimum(np.cumsum(left, axis=1), amount)
    cuts = np.unique(np.concatenate(([0.0], ends.ravel())))
    cuts = cuts[np.concatenate(([True], np.diff(cuts) > 1e-6 * amount))]
    found = []
    for low, high in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        leaders = np.argmax(ends > (low + high) / 2, axis=1)
        found.append((high - low, leaders))
    return found


def _strand(hosts: list[Ints], leaders: Ints, share: Fraction, channel: int) -> Strand:
    """Add up in hosts at the leaders, all-reduce over the leaders, hand the sum back."""
    exchange = kernel(across(len(leaders)), Kind.ALL_REDUCE, len(leaders))
    num_chunks = exchange.num_chunks
    up, down = ([_inside(hosts, leaders, size, kind, num_chunks) for size in sorted({len(g) for g in hosts} - {1})]
                for kind in (Kind.REDUCE, Kind.BROADCAST))  # fmt: skip
    middle = Stage(exchange, leaders[None, :], np.zeros(1, np.int64), ((num_chunks, 1),))
    return Strand((*up, middle, *down), num_chunks, share, channel=channel)


def _inside(hosts: list[Ints], leaders: Ints, size: int, kind: Kind, num_chunks: int) -> Stage:
    """Return the stage of all hosts of one size, the leader the root of each."""
    mine = [(group, lead) for group, lead in zip(hosts, leaders.tolist(), strict=True) if len(group) == size]
    rows = [[lead, *(rank for rank in group.tolist() if rank != lead)] for group, lead in mine]
    work: Kernel = kernel("direct", kind, size, root=0)
    return Stage(work, np.array(rows), np.zeros(len(rows), np.int64), ((1, 1),), ((num_chunks, 1),))
