"""Communication of a rank's groups: which part of a group shares a scale-up domain, at what rate it exchanges.

A group is every `stride`-th rank. A ring of it enters and leaves every cell that it passes through once, so of a cell
with C ranks in order `min(stride, C)` rings leave, and share what leads out (`sim/reach.py`): each has
`exit / min(stride, C)`, never more than its members' own ports. The same holds for neighbours of a pipeline. Of an
all-to-all every rank of the cell sends out the share of its bytes that goes to others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from syncline.sim.collective.columns import Compiled, Groups, call_s, collective_s, compiled_Bps, number_of
from syncline.sim.step.case import Case, Floats, anywhere, pick, remembered
from syncline.sim.step.constants import Constants
from syncline.sim.step.machine import Machine

Bools = NDArray[np.bool_]


def inside(c: Case, ranks: Floats, stride: Floats) -> Floats:
    """Return how many ranks of a group (every `stride`-th rank) share one scale-up domain.

    Where domains have different numbers of them it is the fewest, as a ring passes through every domain. Replicas that
    are split between sites leave the ranks of a stage at each of them a part of their order only.
    """
    near = c.domain
    if anywhere(c.site_Bps < np.inf):
        near = pick(crosses_site(c, ranks, stride), np.minimum(near, _site_cell(c)[0]), near)
    span, total = ranks * stride, all_ranks(c)
    straddles = (total > near) & (np.mod(span, near) > 0) & (np.mod(near, np.minimum(span, near)) + (span > near) > 0)
    if anywhere(straddles):
        return np.clip(np.floor(pick(straddles, _fewest(span, total, near), near) / stride), 1.0, ranks)
    return np.clip(np.floor(near / stride), 1.0, ranks)


def _fewest(span: Floats, total: Floats, near: Floats) -> Floats:
    """Return how many ranks in order the emptiest domain has of a group whose `span` does not fill whole domains.

    Group after group fills them, so border s lies s x span ranks on: what is before it in its domain belongs to one
    group, what is behind it to the next. Four borders are all there are to see where a domain has 8 ranks. A ring
    passes through every domain, and all its lanes through the ports of those few.
    """
    groups, fewest = total / span, near
    for border in range(1, 5):
        before = np.mod(border * span, near)
        fewest = pick((before > 0) & (border <= groups), np.minimum(fewest, before), fewest)
        fewest = pick((before > 0) & (border < groups), np.minimum(fewest, near - before), fewest)
    return fewest


@remembered
def all_ranks(c: Case) -> Floats:
    """Return the ranks of the job."""
    return c.tp * c.pp * c.dp * c.cp


def out_Bps(c: Case, ranks: Floats, stride: Floats, *, lines: bool = True) -> Floats:
    """Return what one ring of a group gets of the network: its members' ports, or its part of a cell's way out.

    Without `lines` those between sites are left out: pipelines have their own rule (`stage_line_Bps`).
    """
    g = inside(c, ranks, stride)
    rate = g * c.nic_Bps
    span = ranks * stride
    if anywhere(c.hashed < 1):
        rate = pick(all_ranks(c) > c.rack_gpus, rate * c.hashed, rate)
    for gpus, exit_Bps in ((c.rack_gpus, c.rack_Bps), (c.pod_gpus, c.pod_Bps)):
        if anywhere(exit_Bps < np.inf):
            rate = np.minimum(rate, _ring_share(c, gpus, exit_Bps, span, stride))
    if lines and anywhere(c.site_Bps < np.inf):
        cell, stages = _site_cell(c)
        leaves = crosses_site(c, ranks, stride)
        rate = pick(leaves, np.minimum(rate, c.site_Bps / (np.minimum(stride, cell) * stages)), rate)
    return rate


def _ring_share(c: Case, gpus: Floats, exit_Bps: Floats, span: Floats, stride: Floats) -> Floats:
    """Return one ring's part of what leaves a cell; infinite where the group stays inside."""
    total = all_ranks(c)
    uneven = np.mod(gpus, np.maximum(np.minimum(span, gpus), 1.0)) != 0  # some group straddles the border
    leaves = (total > gpus) & ((span > gpus) | uneven)
    in_order = pick(leaves, exit_Bps / np.minimum(stride, gpus), np.inf)
    if not anywhere(c.dealt > 0):
        return in_order
    # Neighbouring hosts are in different cells: every host's rings leave.
    used = _used(c, gpus)
    dealt = exit_Bps / (np.maximum(used / c.domain, 1.0) * np.minimum(stride, c.domain))
    apart = (span > c.domain) & ((total > gpus) | (c.dealt_over > 0))
    return pick(c.dealt > 0, pick(apart, dealt, np.inf), in_order)


def _used(c: Case, gpus: Floats) -> Floats:
    """Return the ranks of the job in one cell: fewer than it holds where the job is dealt over all cells."""
    share = pick(c.dealt_over > 0, np.minimum(all_ranks(c) / np.maximum(c.dealt_over, 1.0), 1.0), 1.0)
    return np.maximum(gpus * share, np.minimum(c.domain, gpus))


@remembered
def splits_replicas(c: Case) -> Floats:
    """Return 1 where the sites of a job hold different replicas, 0 where they hold different stages.

    Replicas that share experts stay together.
    """
    stage = c.tp * c.cp * c.dp
    staged = (c.staged > 0) & _fits_sites(c, c.pp, stage)
    together = np.mod(c.tp * _at_largest(c, c.dp * c.cp, c.tp * c.pp), c.ep) == 0
    return pick(_fits_sites(c, c.dp * c.cp, c.tp * c.pp) & ~staged & together, 1.0, 0.0)


@remembered
def _sites(c: Case) -> Floats:
    return 1.0 + np.ceil(np.maximum(all_ranks(c) - c.site_gpus, 0.0) / c.site_more)


def _fits_sites(c: Case, parts: Floats, size: Floats) -> Bools:
    """Return where the sites of a job hold so many parts (stages or replicas) of so many ranks, none cut in two."""
    more = (_sites(c) - 1) * np.floor(c.site_more / size)
    fits: Bools = np.floor(c.site_gpus / size) + more >= parts
    return fits


def _at_largest(c: Case, parts: Floats, size: Floats) -> Floats:
    """Return how many parts the largest site has: an even share where the others have room for it, else what it holds.

    `footprint.devices_of` deals them so.
    """
    share = parts / _sites(c)
    even = (np.mod(parts, _sites(c)) == 0) & (np.minimum(c.site_gpus, c.site_more) >= share * size)
    return pick(even, share, np.minimum(np.floor(c.site_gpus / size), parts))


@remembered
def _site_cell(c: Case) -> tuple[Floats, Floats]:
    """Return the ranks of one stage (or of whole stages) at a site, and how many stages have their rings there."""
    replicas, span = splits_replicas(c) > 0, c.tp * c.cp * c.dp
    cell = pick(replicas, c.tp * _at_largest(c, c.dp * c.cp, c.tp * c.pp), c.site_gpus)
    # A site between two others may hold the end of one stage and the start of the next: both rings pass through it.
    uneven = (np.mod(np.maximum(span, c.site_gpus), np.minimum(span, c.site_gpus)) > 0) & (_sites(c) > 2) & (c.pp > 1)
    return cell, pick(replicas, c.pp, pick(uneven, 2.0, 1.0))


def crosses_site(c: Case, ranks: Floats, stride: Floats) -> Floats:
    """Return where a group has ranks at several sites."""
    cell, _ = _site_cell(c)
    span = ranks * stride
    uneven = np.mod(cell, np.maximum(np.minimum(span, cell), 1.0)) != 0
    apart: Floats = (all_ranks(c) > c.site_gpus) & (ranks > 1) & ((span > cell) | uneven)
    return apart


def long_s(c: Case, ranks: Floats, stride: Floats) -> Floats:
    """Return the latency, one way, of the lines between sites that a group crosses; 0 where it crosses none."""
    if not anywhere(c.site_s > 0):
        return np.zeros(())
    return pick(crosses_site(c, ranks, stride), c.site_s, 0.0)


def group_of(machine: Machine, k: Constants, ranks: Floats, total: float, *, pairs: bool = False) -> GroupNetwork:
    """Return the collectives of consecutive ranks, in a job of `total` ranks on a machine: all-to-alls are `pairs`."""
    return (pairs_of if pairs else ring_of)(_layout(machine, total), k, ranks, np.ones(()), np.zeros(()))


def placed_group(
    machine: Machine, k: Constants, ranks: float, near: float, laid_Bps: float, *, pairs: bool = False,
    far: bool = False,
) -> GroupNetwork:  # fmt: skip
    """Return the collectives of ranks `near` of which share a domain, on links that leave them `laid_Bps` (0: all).

    `far`: they are at several sites.
    """
    out = (near if pairs else 1.0) * laid_Bps / k.fitted.e_net if laid_Bps > 0 else near * machine.nic_Bps
    group = _group(_layout(machine, ranks), k, *(np.asarray(each) for each in (ranks, 1.0, near, out)))
    way = np.asarray(machine.reach.site_s if far else 0.0)
    return replace(group, groups=group.groups._replace(long_s=way))


def _layout(machine: Machine, total: float) -> Case:
    columns = {
        "tp": 1.0, "pp": 1.0, "cp": 1.0, "dp": total, "domain": machine.domain, "nic_Bps": max(machine.nic_Bps, 1.0),
        "nvlink_Bps": machine.nvlink_Bps, "mesh_peers": machine.mesh_peers, "hop_s": machine.hop_s, "ep": 1.0,
        "library": number_of(machine.library),
    }  # fmt: skip
    named = {name: np.asarray(value) for name, value in (columns | machine.reach.columns()).items()}
    return cast(Case, SimpleNamespace(**named))


def up_Bps(c: Case, near: Floats) -> Floats:
    """Return what a rank has of its scale-up links towards `near` ranks of its domain, itself among them.

    At a switch that is all of them; GPUs joined pair by pair have those to their peers only.
    """
    if not anywhere(c.mesh_peers > 0):
        return c.nvlink_Bps
    share = np.minimum((near - 1) / np.maximum(c.mesh_peers, 1.0), 1.0)
    return pick((c.mesh_peers > 0) & (near > 1), share, 1.0) * c.nvlink_Bps


def laid_or(laid_Bps: Floats, formula_Bps: Floats) -> Floats:
    """Return what laying a group on the fabric's links showed, where that was done; else what the formula has."""
    return pick(laid_Bps > 0, laid_Bps, formula_Bps) if anywhere(laid_Bps > 0) else formula_Bps


@dataclass(frozen=True, eq=False)
class GroupNetwork:
    """The collectives of a group: its columns for the one price (`sim/collective`), which knows every size."""

    groups: Groups
    compiled: Compiled
    residual: float  # times the library's price

    @property
    def ranks(self) -> Floats:
        return self.groups.ranks

    @property
    def inside(self) -> Floats:
        """Ranks that share a scale-up domain."""
        return self.groups.near

    def gather_s(self, size_bytes: Floats) -> Floats:
        """Return the time to gather a buffer of `size_bytes`."""
        return self.takes_s("all_gather", size_bytes)

    def scatter_s(self, size_bytes: Floats) -> Floats:
        """Return the time to reduce and scatter a buffer of `size_bytes`."""
        return self.takes_s("reduce_scatter", size_bytes)

    def sum_s(self, size_bytes: Floats) -> Floats:
        """Return the time to all-reduce a buffer of `size_bytes`."""
        return self.takes_s("all_reduce", size_bytes)

    def takes_s(self, operation: str, size_bytes: Floats) -> Floats:
        """Return the time of any operation, by the name that nccl-tests has for it."""
        return collective_s(operation, self.groups, size_bytes, self.compiled, self.residual)

    def call_s(self, operation: str = "all_gather") -> Floats:
        """Return what one exchange costs besides bytes where a compiler lays it out."""
        return call_s(operation, self.groups, self.compiled)


def ring_of(c: Case, k: Constants, ranks: Floats, stride: Floats, laid_Bps: Floats) -> GroupNetwork:
    """Return the rings of a group, every `stride`-th rank, and its sends to the next.

    `laid_Bps` is its column of the case: what laying it on the fabric's links showed, where that was done.
    """
    cap = laid_or(laid_Bps / k.fitted.e_net, out_Bps(c, ranks, stride))
    return _group(c, k, ranks, stride, inside(c, ranks, stride), cap)


def pairs_of(c: Case, k: Constants, ranks: Floats, stride: Floats, laid_Bps: Floats) -> GroupNetwork:
    """Return the all-to-alls of a group, every `stride`-th rank; `laid_Bps` as in `ring_of`.

    Jobs keep them in as few domains as hold them: unlike rings, they do not pass through every one.
    """
    near = np.clip(np.floor(c.domain / stride), 1.0, ranks)
    each = laid_or(laid_Bps / k.fitted.e_net, scattered_Bps(c, ranks, stride))
    return _group(c, k, ranks, stride, near, near * each)


def _group(c: Case, k: Constants, ranks: Floats, stride: Floats, near: Floats, cap_Bps: Floats) -> GroupNetwork:
    groups = Groups(c.library, ranks, near, c.nic_Bps, up_Bps(c, near), cap_Bps, long_s(c, ranks, stride))
    return GroupNetwork(groups, *_costs(c, k))


def _costs(c: Case, k: Constants) -> tuple[Compiled, float]:
    return Compiled(k.fitted.e_nvl, k.fitted.e_net, k.held.tp_call_s, c.hop_s), k.held.library


#: Times one exchange beyond a domain: up the tree of switches and down again.
SUM_TRIPS = 2.0


def switch_sum_s(c: Case, k: Constants, size_bytes: Floats, ring: GroupNetwork) -> Floats:
    """Return the time of an all-reduce that switches sum on its way: every rank sends it once and hears it once.

    What is under way fits into the memory of a switch, which the groups of the ranks below it share: a group gets no
    more than its part of it in every round trip.
    """
    below = pick(c.rack_gpus < np.inf, c.rack_gpus, all_ranks(c))
    groups = np.minimum(c.tp, below) * np.maximum(below / (c.tp * c.cp * c.dp), 1.0)
    held = c.reduce_bytes / groups / np.maximum(SUM_TRIPS * c.hop_s, 1e-9)
    rate = np.minimum(compiled_Bps("all_reduce", ring.groups, ring.compiled), k.fitted.e_net * held)
    summed = size_bytes / np.maximum(rate, 1.0) + 2 * ring.call_s()
    return pick((c.reduce_bytes > 0) & (ring.inside < ring.ranks), summed, np.inf)


def tp_exchange_s(c: Case, k: Constants) -> Floats:
    """Return the time of one all-reduce (or gather and scatter) of a micro-batch's activations over the TP group."""
    if not anywhere(c.tp > 1):
        return np.zeros(())
    size = 2 * c.tokens * c.hidden
    ring = ring_of(c, k, c.tp, np.ones(()), c.laid_tensor_Bps)
    halves = ring.gather_s(size) + ring.scatter_s(size) if anywhere(c.sequence_parallel > 0) else np.zeros(())
    exchange = pick(c.sequence_parallel > 0, halves, ring.sum_s(size))
    return pick(c.tp > 1, exchange, 0.0)


def ring_attention_s(c: Case, k: Constants) -> Floats:
    """Return the time to pass keys and values once around the CP group, one layer, forward: a send for each rank."""
    size = (c.qk_size + c.v_size) * c.kv_heads / c.tp * c.tokens * 2
    if not anywhere((c.cp > 1) & (c.ulysses == 0)):
        return np.zeros(())
    return (c.cp - 1) * ring_of(c, k, c.cp, c.tp, np.zeros(())).takes_s("send_recv", size)


def head_exchange_s(c: Case, k: Constants) -> Floats:
    """Return the time of Ulysses' all-to-alls of one layer, forward: heads are exchanged for sequence, and back."""
    if not anywhere((c.cp > 1) & (c.ulysses > 0)):
        return np.zeros(())
    group, width = pairs_of(c, k, c.cp, c.tp, np.zeros(())), 2 * c.tokens / c.tp
    there = c.heads * c.qk_size + c.kv_heads * (c.qk_size + c.v_size)
    return group.takes_s("all_to_all", width * there) + group.takes_s("all_to_all", width * c.heads * c.v_size)


def sends_of(c: Case, k: Constants, laid_Bps: Floats, near: Floats | None = None) -> GroupNetwork:
    """Return the sends from a stage to the next: over scale-up links only where the whole pipeline shares a domain.

    `near` is how many stages do, where that is known of these.
    """
    ranks, stride, line = c.pp, c.tp * c.cp * c.dp, stage_line_Bps(c)
    near = inside(c, ranks, stride) if near is None else near
    out = laid_or(laid_Bps / k.fitted.e_net, np.minimum(out_Bps(c, ranks, stride, lines=False), line))
    groups = _group(c, k, ranks, stride, near, out).groups
    way = pick(line < np.inf, c.site_s, 0.0)
    return GroupNetwork(groups._replace(up_Bps=up_Bps(c, np.full((), 2.0)), long_s=way), *_costs(c, k))


def send_s(c: Case, k: Constants, size_bytes: Floats, laid_Bps: Floats, near: Floats | None = None) -> Floats:
    """Return what a send to the next stage takes; the way over lines between sites comes on top (`stage_late_s`)."""
    sends = sends_of(c, k, laid_Bps, near)
    return sends.takes_s("send_recv", size_bytes) - sends.groups.long_s


def scattered_Bps(c: Case, ranks: Floats, stride: Floats) -> Floats:
    """Return what a rank has for the bytes that an all-to-all sends out of its domain."""
    rate = c.nic_Bps
    if anywhere(c.hashed < 1):
        rate = pick(all_ranks(c) > c.rack_gpus, rate * c.hashed, rate)

    def members(gpus: Floats) -> Floats:
        return np.clip(gpus / stride, 1.0, ranks)

    beyond = np.maximum(ranks - members(c.domain), 1.0)
    for gpus, exit_Bps in (
        (c.rack_gpus, c.rack_Bps * c.rack_wide), (c.pod_gpus, c.pod_Bps * c.pod_wide), (c.site_gpus, c.site_Bps)
    ):  # fmt: skip
        if anywhere(exit_Bps < np.inf):
            used = _used(c, gpus)
            inside_cell = pick(c.dealt > 0, members(c.domain), members(gpus))
            away = (ranks - inside_cell) / beyond
            apart = (all_ranks(c) > gpus) | (c.dealt_over > 0)
            limit = exit_Bps / (used * np.maximum(away, 1e-12))
            rate = pick(apart & (away > 0), np.minimum(rate, limit), rate)
    if anywhere(c.site_Bps < np.inf):
        cell, _ = _site_cell(c)
        away = (ranks - members(cell)) / beyond
        limit = c.site_Bps / (all_ranks(c) / _sites(c) * np.maximum(away, 1e-12))
        rate = pick((all_ranks(c) > c.site_gpus) & (away > 0), np.minimum(rate, limit), rate)
    return rate


def stage_line_Bps(c: Case) -> Floats:
    """Return a rank's part of the lines between sites where stages are split over them; infinite where not."""
    if not anywhere(c.site_Bps < np.inf):
        return np.full((), np.inf)
    crossing = (all_ranks(c) > c.site_gpus) & (c.pp > 1) & (splits_replicas(c) == 0)
    return pick(crossing, c.site_Bps / (c.tp * c.cp * c.dp), np.inf)


def stage_late_s(c: Case, way_s: Floats, paced: Floats, stage: Floats, behind: Floats) -> Floats:
    """Return what a step waits for the way over lines between its stages, where `stage_line_Bps` says there are any.

    Work goes round: a stage begins `ahead` micro-batches more than its successor, so what it sends to the one `apart`
    stages on, `way_s` at every line, is back before it may begin the `ahead x apart + 1`-th after it. A round takes the
    stages' own time and the lines there and back; it costs nothing while the slowest stage (`paced`, a micro-batch; the
    others need `stage`, `behind` of it to go back) needs longer for as many. GPipe sends everything before it waits.
    Filling and draining the pipeline cross the lines in any case.
    """
    sites, v = _sites(c), c.virtual
    ahead = pick(v > 1, 2.0, 1.0)
    cut = pick((np.mod(c.site_gpus, np.minimum(c.tp * c.cp * c.dp, c.site_gpus)) > 0) & (c.pp > 2), 2.0, 1.0)
    ends = (2 * (sites - 1) + (v - 1) * sites) * way_s
    aside = (1 - c.bubble_share) / 2 * stage  # zero-bubble: weight gradients, when the others have been sent
    last = pick(c.pp > sites, 0.0, 1.0)
    rounds = [
        (ahead * apart + 1, 2 * lines * way_s + ((apart + 1 - last) * stage + last * paced - aside) / v)
        for lines, apart in ((cut, cut), (sites - 1, (sites - 2) * c.pp / sites + 1))
    ]
    if anywhere(v > 1):  # chunks of a micro-batch come back from the last stage to the first, and gradients return
        back = (v - 1) * (sites * way_s + c.pp * behind / v) + c.pp * paced / v
        rounds.append((v * c.pp, pick(v > 1, back, 0.0)))
    each = [np.maximum(c.num_micro * v - begun, 0.0) * (takes / begun - paced / v) for begun, takes in rounds]
    late = ends + np.maximum(np.maximum.reduce(np.broadcast_arrays(*each)), 0.0)
    if anywhere(v > 1):  # through all chunks and back: the first micro-batch, then as many as were begun meanwhile
        begun, takes = 2 * v * c.pp - 1, 2 * (v * sites - 1) * way_s + c.pp * stage
        spent = np.maximum(c.num_micro * v / begun, 1.0) * takes
        late = np.maximum(late, pick(v > 1, spent - c.num_micro * paced - (c.pp - 1) * stage / v, 0.0))
    return pick(c.gpipe > 0, ends, late)
