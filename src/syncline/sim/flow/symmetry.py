"""Ranks that cannot be told apart are simulated as one.

An agent is a vertex in a lane. Agents, links and flows are coloured, and colours are refined until nothing changes: two
agents stay alike only if in every phase they send to and receive from alike agents as much over alike paths, two links
only if they have the same rate and are crossed by equally many of each kind of flow. On such a partition (equitable, in
graph theory) max-min rates are the same for all of one colour, and so, round by round, are all times. The folded
program has one agent a colour; a flow crosses a folded link with the share that all flows of its colour put on one
such link.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.sim.flow.engine import NO_FLOATS, Paths
from syncline.sim.flow.rounds import FlowLane, FlowPhase
from syncline.sim.flow.routing import Floats, FlowNetwork, Wires
from syncline.sim.flow.wired import Longs, WiredProgram
from syncline.timeline.columns import sum_by

MAX_WORK = 600_000_000
"""Crossings looked at over all refinements before folding is given up."""

Hashes = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class _Pattern:
    """The flows of one phase over all lanes: agents, shares, and crossings (flow, touched link, share)."""

    src: Longs
    dst: Longs
    share: Floats
    fixed: Hashes
    flow: Longs
    link: Longs
    crossing: Hashes
    weight: Floats


def fold(wired: WiredProgram) -> WiredProgram | None:
    """Return the program with alike ranks and lanes folded, or None where nothing would be gained."""
    repeats = {tuple(phase.repeat for phase in lane.phases) for lane in wired.lanes}
    if len(repeats) != 1 or not wired.single_path:
        return None
    touched, patterns, which = _patterns(wired)
    agents, links, flows = _refine(wired, touched, patterns)
    num_agents = len(np.unique(agents))
    if agents.size == 0 or num_agents * 2 > agents.size:
        return None
    return _folded(wired, touched, patterns, which, agents, links, flows)


def _patterns(wired: WiredProgram) -> tuple[Longs, list[_Pattern], list[int]]:
    """Return the links in use, the different phases, and which of them each phase of the program is."""
    paths = wired.wires.paths.take(wired.wires.first)
    touched = np.unique(paths.link).astype(np.int64)
    number = np.searchsorted(touched, paths.link)
    shares, length = paths.shares(), np.diff(paths.start)
    found: list[_Pattern] = []
    keys: list[tuple[Longs, Floats]] = []
    which: list[int] = []
    for j in range(len(wired.lanes[0].phases)):
        phases = [lane.phases[j] for lane in wired.lanes]
        connection = np.concatenate([wired.connection[i][j] for i in range(len(phases))])
        share = np.concatenate([phase.share for phase in phases])
        same = [k for k, key in enumerate(keys) if np.array_equal(key[0], connection) and np.array_equal(key[1], share)]
        which.append(same[0] if same else len(found))
        if same:
            continue
        keys.append((connection, share))
        src, dst = (
            np.concatenate([i * wired.num_vertices + getattr(phase, end) for i, phase in enumerate(phases)])
            for end in ("src", "dst")
        )
        counts = length[connection]
        first = np.cumsum(counts) - counts
        at = np.repeat(paths.start[connection] - first, counts) + np.arange(int(counts.sum()))
        fixed = _mix(_bits(share), _bits(wired.latency_s[connection]))
        found.append(
            _Pattern(
                src,
                dst,
                share,
                fixed,
                np.repeat(np.arange(len(src)), counts),
                number[at],
                _bits(shares[at]),
                shares[at],
            )
        )
    return touched, found, which


def _refine(wired: WiredProgram, touched: Longs, patterns: list[_Pattern]) -> tuple[Hashes, Hashes, list[Hashes]]:
    """Return the final colours of agents, links and the flows of every pattern."""
    agent = np.zeros(len(wired.lanes) * wired.num_vertices, np.uint64)
    for phase in range(len(wired.lanes[0].phases)):
        busy = _busy_of_agents(wired, phase)
        if busy is not None:
            agent = _mix(agent, _mix(_bits(busy), np.uint64(phase + 19)))
    link = _bits(wired.network.capacity_Bps[touched])
    work = sum(len(p.flow) + 2 * len(p.src) for p in patterns) + 1
    before = 0
    flows: list[Hashes] = []
    for _ in range(max(4, MAX_WORK // (30 * work))):
        flows = []
        next_agent, next_link = agent.copy(), link.copy()
        for k, p in enumerate(patterns):
            path = _sum_by(p.flow, _mix(link[p.link], p.crossing), len(p.src))
            colour = _mix(_mix(_mix(agent[p.src], agent[p.dst] * np.uint64(3)), p.fixed), _mix(path, np.uint64(k + 1)))
            flows.append(colour)
            next_agent += _sum_by(p.src, _mix(colour, np.uint64(7)), len(agent))
            next_agent += _sum_by(p.dst, _mix(colour, np.uint64(11)), len(agent))
            next_link += _sum_by(p.link, _mix(colour[p.flow], p.crossing), len(link))
        agent, link = _mix(next_agent, np.uint64(13)), _mix(next_link, np.uint64(17))
        count = len(np.unique(agent)) + len(np.unique(link))
        if count == before:
            return agent, link, flows
        if count * 2 > len(agent) + len(link):
            break
        before = count
    return np.empty(0, np.uint64), link, flows


def _folded(
    wired: WiredProgram,
    touched: Longs,
    patterns: list[_Pattern],
    which: list[int],
    agents: Hashes,
    links: Hashes,
    flows: list[Hashes],
) -> WiredProgram:
    _, agent_of = np.unique(agents, return_inverse=True)
    _, first_link, link_of = np.unique(links, return_index=True, return_inverse=True)
    rows: list[Paths] = []
    latency: list[Floats] = []
    folded: list[tuple[Longs, Longs, Floats, Longs]] = []
    first_row = 0
    for p, colour in zip(patterns, flows, strict=True):
        _, first_flow, flow_of = np.unique(colour, return_index=True, return_inverse=True)
        rows.append(_paths(p, flow_of, link_of, first_link, len(first_flow)))
        latency.append(wired.latency_s[_connection_of(wired, patterns.index(p), which)][first_flow])
        row = first_row + np.arange(len(first_flow))
        folded.append((agent_of[p.src[first_flow]], agent_of[p.dst[first_flow]], p.share[first_flow], row))
        first_row += len(first_flow)
    paths = rows[0]
    for other in rows[1:]:
        paths = paths.then(other)
    num = int(agent_of.max()) + 1
    groups = np.arange(num)[None, :]
    lane = wired.lanes[0]
    phases = tuple(FlowPhase(*folded[k][:3], lane.phases[j].repeat, groups) for j, k in enumerate(which))
    wires = Wires(paths, np.arange(len(paths), dtype=np.int32), np.ones(len(paths), np.int32), np.concatenate(latency))
    network = _with_capacity(wired.network, wired.network.capacity_Bps[touched[first_link]])
    connection = (tuple(folded[k][3] for k in which),)
    busy: list[Floats | None] = []
    for phase in range(len(lane.phases)):
        own = _busy_of_agents(wired, phase)
        if own is not None:
            kept = np.zeros(num)
            kept[agent_of] = own
            own = kept
        busy.append(own)
    folded_lane = (FlowLane(0, None, phases),)
    return WiredProgram(wired.program, network, folded_lane, wires, connection, num, wired.codec, (tuple(busy),))


def _busy_of_agents(wired: WiredProgram, phase: int) -> Floats | None:
    """Return how long each agent posts a phase, lane after lane; None where nobody has more than one message."""
    parts = [wired.posting_s(i, phase) for i in range(len(wired.lanes))]
    if all(part is None for part in parts):
        return None
    return np.concatenate([np.zeros(wired.num_vertices) if part is None else part for part in parts])


def _connection_of(wired: WiredProgram, pattern: int, which: list[int]) -> Longs:
    j = which.index(pattern)
    return np.concatenate([wired.connection[i][j] for i in range(len(wired.lanes))])


def _paths(p: _Pattern, flow_of: Longs, link_of: Longs, first_link: Longs, num_flows: int) -> Paths:
    """Return what each colour of flows puts on one link of each colour: crossings of the links that stand for all."""
    stands = np.flatnonzero(first_link[link_of[p.link]] == p.link)
    width = len(first_link)
    key, at = np.unique(flow_of[p.flow[stands]] * width + link_of[p.link[stands]], return_inverse=True)
    share = sum_by(at, p.weight[stands], len(key))
    start = np.searchsorted(key // width, np.arange(num_flows + 1)).astype(np.int64)
    return Paths(start, (key % width).astype(np.int32), share if len(share) else NO_FLOATS)


def _with_capacity(network: FlowNetwork, capacity_Bps: Floats) -> FlowNetwork:
    other = copy.copy(network)
    other.__dict__ |= {"capacity_Bps": capacity_Bps, "num_links": len(capacity_Bps)}
    return other


def _bits(values: Floats) -> Hashes:
    return _mix(np.ascontiguousarray(values, dtype=np.float64).view(np.uint64), np.uint64(23))


def _mix(a: Hashes, b: Hashes | np.uint64) -> Hashes:
    """Hash pairs of 64 bits into 64 bits (splitmix64 finaliser)."""
    with np.errstate(over="ignore"):
        x = a * np.uint64(0x9E3779B97F4A7C15) + b
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Hashes = x ^ (x >> np.uint64(31))
        return mixed


def _sum_by(group: Longs, values: Hashes, size: int) -> Hashes:
    """Return the sum of hashes of each group, modulo 2^64: a hash of the multiset."""
    total = np.zeros(size, np.uint64)
    with np.errstate(over="ignore"):
        np.add.at(total, group, values)
    return total
