"""What of the network a group of ranks gets: the one place that is asked, answered from the built Fabric.

    reach = fabric_reach(fabric)
    reach.cells                         # hosts, racks, pods, sites: what leaves each of them, over links that are up

A cell is a set of hosts that traffic must leave: a host (or NVLink domain), the hosts behind the same leaf switches, a
pod or dragonfly group, a site. What leaves a cell follows from its links: oversubscription, planes, failed and slow
cables are all in that one sum. Two rates matter:

* `exit_Bps`   the sum of its links, which bounds every execution (`sim/bound.py`);
* `even_Bps`   what it gives traffic that is spread evenly over them, as striping over NICs, ECMP and spraying do: the
               number of cables times the slowest, which is what estimates use. Switches that route by load
               (`routing: adaptive` or `ugal` in the cluster's file) send less over a slow cable: there it is the sum.

On a dragonfly what leaves a switch or a group depends on who sends to whom, and on its routing: `ring_Bps` and
`pairs_Bps` fill its links (`sim/flow/detours.py`) with a ring over the cells and with all pairs of them.

`sim/step` has the closed forms for whole layouts in columns; they read the numbers of this file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from syncline.errors import SimulationError
from syncline.fabric.fabric import NETWORK_TIERS, DeviceKind, Fabric, Tier
from syncline.sim.flow.detours import Choice, detours, dragonfly_routing
from syncline.sim.transport import stated_routing
from syncline.timeline.columns import sum_by

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]

BORDER = 4
"""Level of the routers between sites."""
_INSIDE = {"rack": 1, "pod": 2, "site": 3}
"""The highest level of switches that belong to a cell of each name."""
BY_LOAD = ("adaptive", "ugal")
"""Routings that choose among paths by what waits before them."""
MAX_PAIRS = 4096
"""Pairs of switches up to which all of them are laid on the links of a dragonfly."""


@dataclass(frozen=True, eq=False)
class Cells:
    """One level of the network: the cell of every host, and what leaves each cell, one direction."""

    name: str
    of_host: Longs
    gpus: Longs
    exit_Bps: Floats
    even_Bps: Floats
    latency_s: float  # one way, out of a cell; counted for lines between sites only
    out_link: Longs  # the links that leave cells, and the cell that each leaves
    out_cell: Longs

    @property
    def num(self) -> int:
        return len(self.gpus)


@dataclass(frozen=True, eq=False)
class FabricReach:
    """The cells of a fabric, from hosts outwards; a level that does not divide its hosts is left out."""

    fabric: Fabric
    hosts: Cells
    outer: tuple[Cells, ...]

    @property
    def cells(self) -> tuple[Cells, ...]:
        return (self.hosts, *self.outer)

    @cached_property
    def sent_Bps(self) -> Floats:
        """What each GPU can send in all: its own links that are up, scale-up and PCIe together."""
        links = self.fabric.links
        inside = links.up & (self.fabric.devices.kind[links.src] == DeviceKind.GPU)
        sent = np.bincount(links.src[inside], weights=links.rate_Bps[inside], minlength=len(self.fabric.devices))
        return np.asarray(sent[self.fabric.gpus])

    def even_hosts_Bps(self, hosts: Longs | None = None) -> float:
        """Return what the slowest host sends into the network when its traffic is striped over its ports.

        Raises:
            SimulationError: a host has no port that works, or failed links part the hosts.
        """
        even = self.hosts.even_Bps if hosts is None else self.hosts.even_Bps[np.unique(self.hosts.of_host[hosts])]
        if len(even) and even.min() <= 0 and self.fabric.num_hosts > 1:
            bad = int(np.flatnonzero(self.hosts.even_Bps[self.hosts.of_host] <= 0)[0])
            raise SimulationError(
                f"{self.fabric.host_names[bad]} has no network port that works.",
                hint="Repair it, or leave the host out.",
            )
        self._check_joined(np.arange(self.fabric.num_hosts, dtype=np.int64) if hosts is None else hosts)
        return float(even.min()) if len(even) else 0.0

    def ring_Bps(self, cells: Cells, hosts: Longs | None = None) -> Floats:
        """Return what leaves each cell when all of them (those of `hosts`) send to the next one only."""
        return self._laid(cells, hosts, "ring")

    def pairs_Bps(self, cells: Cells, hosts: Longs | None = None) -> Floats:
        """Return what leaves each cell when all of them (those of `hosts`) send to every other alike."""
        return self._laid(cells, hosts, "pairs")

    def _laid(self, cells: Cells, hosts: Longs | None, pattern: str) -> Floats:
        choice = dragonfly_routing(self.fabric)
        if choice is None or cells.name not in ("switch", "group"):
            return cells.even_Bps
        chosen = np.arange(self.fabric.num_hosts) if hosts is None else np.asarray(hosts, np.int64)
        known = self.fabric.__dict__.setdefault("_laid_cells", {})
        key = (cells.name, pattern, chosen.tobytes())
        if key not in known:
            flows = _to_next if pattern == "ring" else _to_all
            cell, other, src, dst, amount = flows(*_ports(self.fabric, cells, chosen))
            apart, group = cell != other, self.fabric.devices.group
            if pattern == "ring" and cells.name == "switch" and (apart & (group[src] == group[dst])).any():
                apart &= group[src] == group[dst]  # rings from group to group are counted there
            known[key] = self._filled(cells, choice, cell, src, dst, amount, apart)
        found: Floats = known[key]
        return found

    def _filled(
        self, cells: Cells, choice: Choice, cell: Longs, src: Longs, dst: Longs, amount: Floats,
        apart: NDArray[np.bool_],
    ) -> Floats:  # fmt: skip
        """Return what leaves cells of flows between switches that all grow alike; a cell has what its slowest has."""
        ways = detours(self.fabric)
        crossing = np.flatnonzero(ways.knows(src, dst))
        pair, at = np.unique(src[crossing] * len(self.fabric.devices) + dst[crossing], return_inverse=True)
        if not len(pair) or len(pair) > MAX_PAIRS:
            return cells.even_Bps
        a, b = np.divmod(pair, len(self.fabric.devices))
        level = ways.split(a, b, sum_by(at.ravel(), amount[crossing], len(pair)), choice=choice).level
        slowest = np.full(cells.num, np.inf)
        out = apart[crossing]
        np.minimum.at(slowest, cell[crossing][out], level[at.ravel()][out])
        sent = sum_by(cell[apart], amount[apart], cells.num)
        laid = np.isfinite(slowest)
        return np.where(laid, np.where(laid, slowest, 0.0) * sent, cells.even_Bps)

    def _check_joined(self, hosts: Longs) -> None:
        for cells in self.outer:
            used = np.unique(cells.of_host[hosts])
            cut = used[cells.even_Bps[used] <= 0]
            if len(used) > 1 and len(cut):
                inside = np.flatnonzero(cells.of_host == cut[np.argmin(cells.gpus[cut])])
                name, more = self.fabric.host_names[int(inside[0])], len(inside) - 1
                raise SimulationError(
                    f"no link joins {name}{f' and {more:,} more' if more else ''} to the other hosts: failed links "
                    f"part {self.fabric.name}.",
                    hint="Repair one, or leave these hosts out.",
                )


def fabric_reach(fabric: Fabric) -> FabricReach:
    """Return what the cells of a fabric have; kept with the fabric, as it does not change."""
    found = fabric.__dict__.get("_reach")
    if found is None:
        found = _reach(fabric)
        fabric.__dict__["_reach"] = found
    return found


def _ports(fabric: Fabric, cells: Cells, hosts: Longs) -> tuple[Longs, Longs]:
    """Return the cell and the switch of every port of these hosts that is up, host by host."""
    links, devices = fabric.links, fabric.devices
    access = links.up & (links.tier == Tier.ACCESS) & (devices.kind[links.dst] == DeviceKind.SWITCH)
    rows = np.flatnonzero(access & np.isin(devices.host[links.src], hosts))
    rows = rows[np.lexsort((rows, devices.local[links.src[rows]], devices.host[links.src[rows]]))]
    return cells.of_host[devices.host[links.src[rows]]], links.dst[rows].astype(np.int64)


def _to_next(cell: Longs, switch: Longs) -> tuple[Longs, Longs, Longs, Longs, Floats]:
    """Return every port of a cell sending to its counterpart in the next one: cells, switches and amounts."""
    used = np.unique(cell)
    ports = [switch[cell == number] for number in used]
    found = [
        (np.full(len(mine), used[k]), np.full(len(mine), used[(k + 1) % len(used)]), mine, np.resize(after, len(mine)))
        for k, (mine, after) in enumerate(zip(ports, ports[1:] + ports[:1], strict=True))
    ]
    here, there, src, dst = (np.concatenate(column) for column in zip(*found, strict=True))
    return here, there, src, dst, np.ones(len(src))


def _to_all(cell: Longs, switch: Longs) -> tuple[Longs, Longs, Longs, Longs, Floats]:
    """Return every port sending to all others, the ports of a cell at one switch together."""
    width = int(switch.max(initial=0)) + 1
    key, count = np.unique(cell * width + switch, return_counts=True)
    if len(key) ** 2 > 4 * MAX_PAIRS:
        return _NONE, _NONE, _NONE, _NONE, np.zeros(0)
    a, b = (side.ravel() for side in np.meshgrid(np.arange(len(key)), np.arange(len(key)), indexing="ij"))
    return key[a] // width, key[b] // width, key[a] % width, key[b] % width, (count[a] * count[b]).astype(np.float64)


_NONE: Longs = np.zeros(0, np.int64)


def _reach(fabric: Fabric) -> FabricReach:
    links, devices = fabric.links, fabric.devices
    node = np.where(devices.host >= 0, devices.host, fabric.num_hosts + np.arange(len(devices)))
    outside = links.up & np.isin(links.tier, [int(tier) for tier in NETWORK_TIERS])
    hosts = _cells(fabric, "host", _domains(fabric), node, outside)
    outer: list[Cells] = []
    astray = _astray(fabric, node)
    joined = outside & ~astray
    grouped = bool((links.tier == Tier.GROUP_LOCAL).any())
    before = hosts
    for name, level in _INSIDE.items():
        label = _components(fabric, node, joined & _within(fabric, level))
        _, of_host = np.unique(label[: fabric.num_hosts], return_inverse=True)
        if not 1 < int(of_host.max(initial=-1)) + 1 <= before.num:
            continue
        shown = {"rack": "switch", "pod": "group"}.get(name, name) if grouped else name
        cells = _cells(fabric, shown, of_host.astype(np.int64), node, outside, label, astray)
        # A switch may serve one host alone, and limit it all the same.
        alone = before is hosts and (grouped or _thinner(cells, hosts))
        if cells.num < before.num or alone or name == "site":
            outer.append(cells)
            before = cells
    return FabricReach(fabric, hosts, tuple(outer))


def _thinner(cells: Cells, inner: Cells) -> bool:
    """Return whether one of as many cells as before lets out less than the one that it holds."""
    if not np.array_equal(cells.of_host, inner.of_host):
        return False
    used_alike = np.minimum(cells.exit_Bps, cells.even_Bps) < inner.even_Bps * (1 - 1e-9)
    return bool((used_alike | (cells.exit_Bps < inner.exit_Bps * (1 - 1e-9))).any())


def _within(fabric: Fabric, level: int) -> NDArray[np.bool_]:
    """Return the links that stay inside cells whose switches are of a level at most."""
    links, devices = fabric.links, fabric.devices
    if level == _INSIDE["site"]:  # all but the lines between border routers
        return np.asarray((devices.level[links.src] != BORDER) | (devices.level[links.dst] != BORDER))
    low = np.maximum(devices.level[links.src], devices.level[links.dst]) <= level
    beyond = {1: (Tier.WAN, Tier.GROUP_LOCAL, Tier.GROUP_GLOBAL), 2: (Tier.WAN, Tier.GROUP_GLOBAL)}[level]
    return np.asarray(low & ~np.isin(links.tier, [int(tier) for tier in beyond]))


def _astray(fabric: Fabric, node: Longs) -> NDArray[np.bool_]:
    """Return the ports of hosts that are on another leaf than most of their host's.

    Ports dealt to leaves one after the other leave some hosts on two of them, which would join all leaves to one cell.
    Such a host belongs to the leaf with most of its ports. Hosts that all share a leaf (rails, planes) are not meant,
    unless one of them has all its ports there: then they were dealt, and the second of two hosts begins on its leaf.
    """
    links, devices = fabric.links, fabric.devices
    none = np.zeros(len(links.src), dtype=bool)
    access = links.tier == Tier.ACCESS
    label = _components(fabric, node, access)
    rows = np.flatnonzero(access & (devices.kind[links.dst] == DeviceKind.SWITCH) & (devices.host[links.src] >= 0))
    pair, of_row, ports = np.unique(
        devices.host[links.src[rows]].astype(np.int64) * len(devices) + links.dst[rows],
        return_inverse=True, return_counts=True,
    )  # fmt: skip
    host, leaf = pair // max(len(devices), 1), pair % max(len(devices), 1)
    most = np.zeros(len(label), np.int64)  # by component: how many of its hosts the most common leaf has
    np.maximum.at(most, label[host], np.bincount(leaf, minlength=len(devices))[leaf])
    wired = np.unique(host)
    shared = most >= np.bincount(label[wired], minlength=len(label))
    leaves = np.bincount(host, minlength=fabric.num_hosts)
    owned = np.bincount(host, weights=ports, minlength=fabric.num_hosts)
    shared[label[: fabric.num_hosts][(leaves == 1) & (owned > 1)]] = False
    one_each = (leaves > 1) & (owned <= leaves)
    shared[label[: fabric.num_hosts][one_each]] = True
    order = np.lexsort((leaf, -ports, host))
    home = np.zeros(len(pair), dtype=bool)
    home[order[np.unique(host[order], return_index=True)[1]]] = True
    away = ~home & ~shared[label[host]]
    none[rows] = away[of_row.ravel()]
    back = np.flatnonzero(access & (devices.kind[links.src] == DeviceKind.SWITCH) & (devices.host[links.dst] >= 0))
    code = devices.host[links.dst[back]].astype(np.int64) * len(devices) + links.src[back]
    none[back] = np.isin(code, pair[away])
    return none


def _domains(fabric: Fabric) -> Longs:
    """Return the host, or the NVLink domain of several hosts, that each host is in."""
    links, devices = fabric.links, fabric.devices
    node = np.where(devices.host >= 0, devices.host, fabric.num_hosts + np.arange(len(devices)))
    shared = links.up & (links.tier == Tier.SCALE_UP) & (len(fabric.nics) > 0)
    label = _components(fabric, node, np.asarray(shared))
    _, of_host = np.unique(label[: fabric.num_hosts], return_inverse=True)
    return of_host.astype(np.int64)


def _components(fabric: Fabric, node: Longs, chosen: NDArray[np.bool_]) -> Longs:
    """Return a label for every node (hosts first): the smallest node that the chosen links join it to."""
    a, b = node[fabric.links.src[chosen]].astype(np.int64), node[fabric.links.dst[chosen]].astype(np.int64)
    return joined_nodes(a, b, fabric.num_hosts + len(fabric.devices))


def joined_nodes(a: Longs, b: Longs, num_nodes: int) -> Longs:
    """Return a label for every node: the smallest node that edges between `a` and `b` join it to."""
    label = np.arange(num_nodes, dtype=np.int64)
    while True:
        low = np.minimum(label[a], label[b])
        before = label.copy()
        np.minimum.at(label, a, low)
        np.minimum.at(label, b, low)
        label = label[label]
        if np.array_equal(label, before):
            return label


def _cells(
    fabric: Fabric, name: str, of_host: Longs, node: Longs, outside: NDArray[np.bool_], label: Longs | None = None,
    astray: NDArray[np.bool_] | None = None,
) -> Cells:  # fmt: skip
    """Return cells with the rates of the links that leave them; ports that are `astray` carry no traffic of others."""
    links = fabric.links
    num = int(of_host.max(initial=-1)) + 1
    of_node = np.full(fabric.num_hosts + len(fabric.devices), -1, dtype=np.int64)
    of_node[: fabric.num_hosts] = of_host
    if label is not None:  # switches belong to the cell of the hosts they are joined to
        first = np.full(len(of_node), -1, dtype=np.int64)
        first[label[: fabric.num_hosts]] = of_host
        of_node = first[label]
    cell, other = of_node[node[links.src]], of_node[node[links.dst]]
    leaves = outside & (cell >= 0) & (cell != other)
    rows, at = np.flatnonzero(leaves), cell[leaves]
    exit_Bps = np.bincount(at, weights=links.rate_Bps[rows], minlength=num).astype(np.float64)
    if astray is not None:
        rows, at = rows[~astray[rows]], at[~astray[rows]]
    cables = np.bincount(at, weights=links.num_cables[rows], minlength=num)
    slowest = np.full(num, np.inf)
    np.minimum.at(slowest, at, links.rate_Bps[rows] / np.maximum(links.num_cables[rows], 1))
    even = np.where(cables > 0, cables * np.where(np.isfinite(slowest), slowest, 0.0), 0.0)
    if name != "host" and stated_routing(fabric) in BY_LOAD:
        even = np.bincount(at, weights=links.rate_Bps[rows], minlength=num).astype(np.float64)
    if name == "host":  # GPUs of a failed port share a neighbour's, which then carries two rings
        all_network = np.isin(links.tier, [int(tier) for tier in NETWORK_TIERS])
        owned = np.flatnonzero(all_network & (cell >= 0) & (cell != other))
        built = np.bincount(cell[owned], weights=links.num_cables[owned], minlength=num)
        crowd = np.ceil(built / np.maximum(cables, 1))
        even = np.where(cables > 0, built * np.where(np.isfinite(slowest), slowest, 0.0) / np.maximum(crowd, 1), 0.0)
    gpus = np.bincount(of_host, weights=np.bincount(fabric.gpu_host, minlength=fabric.num_hosts), minlength=num)
    wan = rows[links.tier[rows] == Tier.WAN]
    latency = float(links.latency_s[wan].max()) if len(wan) and name == "site" else 0.0
    even = np.minimum(even, exit_Bps)
    return Cells(name, of_host, gpus.astype(np.int64), exit_Bps, even, latency, rows, at)
