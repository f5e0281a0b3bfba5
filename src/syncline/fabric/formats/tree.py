"""A network seen as a tree of switches: all that schedulers know of it, and what an explicit fabric is made from.

Schedulers want one parent per switch, while a real fabric has many spines above each leaf and, with rails, many leaves
above each host. `tree_of` therefore takes groups instead of boxes: hosts that reach each other over access links
alone, then also over leaf-spine links, then over everything. Each group bears the name of the first of its highest
switches.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from syncline.describe.plain import JsonObject
from syncline.errors import DescriptionError
from syncline.fabric.catalog import load_catalog
from syncline.fabric.check import joined
from syncline.fabric.fabric import DeviceKind, Fabric, Tier
from syncline.fabric.spec import ClusterSpec, HostSpec, host_from_text

_REACH = (
    (Tier.ACCESS,),
    (Tier.LEAF_SPINE, Tier.GROUP_LOCAL),
    (Tier.SPINE_CORE, Tier.GROUP_GLOBAL, Tier.OPTICAL),
    (Tier.WAN,),
)
_MAX_LEVEL = 9
_MAX_PARALLEL = 4096


@dataclass(frozen=True)
class TreeSwitch:
    """A switch of the tree: hosts below a leaf, switches below the others."""

    name: str
    hosts: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    where: str = ""


def tree_of(fabric: Fabric) -> tuple[TreeSwitch, ...]:
    """Return the tree of a fabric, leaves first and every switch after its children."""
    levels = _levels(fabric)
    names = _Names()
    tree: list[TreeSwitch] = []
    above: NDArray[np.int64] | None = None
    previous: dict[int, str] = {}
    for labels, switch_of in levels:
        called = {int(label): names.of(fabric, int(label), switch_of) for label in dict.fromkeys(labels.tolist())}
        members: dict[int, dict[str, None]] = {label: {} for label in called}
        for host, label in enumerate(labels.tolist()):
            inner = fabric.host_names[host] if above is None else previous[int(above[host])]
            members[label][inner] = None
        for label, inside in members.items():
            kids = tuple(inside)
            tree.append(
                TreeSwitch(called[label], hosts=kids) if above is None else TreeSwitch(called[label], children=kids)
            )
        above, previous = labels, called
    if len(previous) > 1:  # joined by their accelerators' own links alone, as TPU racks are
        tree.append(TreeSwitch(names.top(), children=tuple(previous.values())))
    return tuple(tree)


def domains_of(fabric: Fabric) -> tuple[TreeSwitch, ...]:
    """Return the scale-up domains that reach across hosts; without any, the leaves of the tree."""
    devices, links = fabric.devices, fabric.links
    domains = []
    for crossbar in np.flatnonzero((devices.kind == DeviceKind.NVSWITCH) & (devices.host < 0)):
        hosts = np.unique(devices.host[links.dst[fabric.out_links(int(crossbar))]])
        name = clean(fabric.device_name(int(crossbar)).removesuffix("/nvswitch"))
        domains.append(TreeSwitch(name, hosts=tuple(fabric.host_names[h] for h in hosts if h >= 0)))
    return tuple(domains) or tuple(switch for switch in tree_of(fabric) if switch.hosts)


def tree_of_chains(chains: Mapping[str, Sequence[str]], source: str) -> tuple[TreeSwitch, ...]:
    """Return the tree of hosts that each say what is above them, from the leaf outwards."""
    hosts: dict[str, dict[str, None]] = {}
    children: dict[str, dict[str, None]] = {}
    parent: dict[str, str] = {}
    for host, chain in chains.items():
        hosts.setdefault(chain[0], {})[host] = None
        for low, high in pairwise(chain):
            if parent.setdefault(low, high) != high:
                raise DescriptionError(
                    f'"{low}" lies below both "{parent[low]}" and "{high}" (host {host}).',
                    where=source,
                    hint="Give every switch of a level a name of its own.",
                )
            children.setdefault(high, {})[low] = None
    if both := sorted(set(hosts) & set(children)):
        raise DescriptionError(f'"{both[0]}" is a leaf of some hosts and above the leaf of others.', where=source)
    leaves = tuple(TreeSwitch(name, hosts=tuple(members)) for name, members in hosts.items())
    return leaves + tuple(TreeSwitch(name, children=tuple(below)) for name, below in children.items())


def tree_cluster(
    switches: Sequence[TreeSwitch],
    host: str | JsonObject,
    *,
    name: str,
    link: str | None = None,
    oversubscription: float = 1.0,
    source: str = "",
) -> ClusterSpec:
    """Return an explicit cluster: every NIC cabled to its host's leaf, and uplinks to match at each level.

    A tree says nothing about hardware: `host` is a host of the catalogue ("dgx-h100") or "8 x H100", `link` defaults to
    what that host's NICs run, and each switch gets one cable up for `oversubscription` cables down.
    """
    spec = HostSpec.model_validate(host_from_text(host))
    model = spec.resolve(load_catalog())
    medium = link or model.link
    if medium is None or model.num_nics == 0:
        raise DescriptionError(
            f"hosts of {model.name} have no NIC to hang below a switch.", where=source, hint="Name another host model."
        )
    levels = _check(switches, source)
    homes: dict[str, list[str]] = {}
    for switch in switches:
        for member in switch.hosts:
            homes.setdefault(member, []).append(switch.name)
    if not homes:
        raise DescriptionError("the tree has switches but no hosts.", where=source)
    per_nic = 1 if model.bond else model.ports_per_nic
    cables: list[JsonObject] = []
    down = dict.fromkeys((switch.name for switch in switches), 0)
    for member, leaves in homes.items():
        for nic in range(model.num_nics):
            leaf = leaves[nic * len(leaves) // model.num_nics]
            down[leaf] += per_nic
            cables.append({"a": f"{member}/nic-{nic}", "b": leaf} | ({"count": per_nic} if per_nic > 1 else {}))
    cables += _uplinks(switches, levels, down, oversubscription)
    boxes = [{"name": switch.name, "level": levels[switch.name]} for switch in switches]
    network = {"topology": "explicit", "link": medium, "switches": boxes, "cables": cables}
    group = {"names": list(homes), "host": spec.model_dump(exclude_none=True)}
    return ClusterSpec.model_validate({"name": name, "hosts": [group], "network": network, "source": source})


def clean(name: str) -> str:
    """Return a name without the characters that schedulers read as syntax."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-") or "x"


def _uplinks(
    switches: Sequence[TreeSwitch], levels: dict[str, int], down: dict[str, int], oversubscription: float
) -> list[JsonObject]:
    cables: list[JsonObject] = []
    for switch in sorted(switches, key=lambda s: levels[s.name]):
        for child in switch.children:
            count = max(1, math.ceil(down[child] / oversubscription - 1e-9))
            down[switch.name] += count
            whole, rest = divmod(count, _MAX_PARALLEL)
            parts = [_MAX_PARALLEL] * whole + ([rest] if rest else [])
            cables += [{"a": child, "b": switch.name, "count": part} for part in parts]
    return cables


def _check(switches: Sequence[TreeSwitch], source: str) -> dict[str, int]:
    """Return the level of every switch; raise unless the switches form trees."""
    by_name: dict[str, TreeSwitch] = {}
    for switch in switches:
        if switch.name in by_name:
            raise DescriptionError(f'switch "{switch.name}" is defined twice.', where=switch.where or source)
        by_name[switch.name] = switch
    parent: dict[str, str] = {}
    for switch in switches:
        for child in switch.children:
            where = switch.where or source
            if child not in by_name:
                raise DescriptionError(
                    f'switch "{switch.name}" has "{child}" below it, which is not defined.', where=where
                )
            if parent.setdefault(child, switch.name) != switch.name:
                raise DescriptionError(f'switch "{child}" is below "{parent[child]}" and "{switch.name}".', where=where)
    levels: dict[str, int] = {}
    while len(levels) < len(by_name):
        ready = [s for s in by_name.values() if s.name not in levels and all(c in levels for c in s.children)]
        if not ready:
            stuck = next(s for s in by_name.values() if s.name not in levels)
            raise DescriptionError(f'switch "{stuck.name}" is below itself.', where=stuck.where or source)
        for switch in ready:
            levels[switch.name] = 1 + max((levels[c] for c in switch.children), default=0)
            if levels[switch.name] > _MAX_LEVEL:
                raise DescriptionError(f"the tree has more than {_MAX_LEVEL} levels.", where=switch.where or source)
    return levels


def _levels(fabric: Fabric) -> list[tuple[NDArray[np.int64], dict[int, int]]]:
    """Return per level the group of each host (as a label), and the switch that stands for each group."""
    levels: list[tuple[NDArray[np.int64], dict[int, int]]] = []
    tiers: list[Tier] = []
    links, num_hosts = fabric.links, fabric.num_hosts
    vertex = np.where(fabric.devices.host >= 0, fabric.devices.host, num_hosts + np.arange(len(fabric.devices)))
    for step in _REACH:
        tiers += step
        keep = np.isin(links.tier[::2], tiers)
        ends = vertex[links.src[::2][keep]], vertex[links.dst[::2][keep]]
        labels = joined(num_hosts + len(fabric.devices), *ends)
        groups = labels[:num_hosts]
        if keep.any() and (not levels or (groups != levels[-1][0]).any()):
            levels.append((groups, _chiefs(fabric, labels[num_hosts:], ends)))
    return levels or [(fabric.rack_of_host.astype(np.int64), {})]


def _chiefs(fabric: Fabric, labels: NDArray[np.int64], ends: tuple[NDArray[np.int64], ...]) -> dict[int, int]:
    """Return the first of the highest switches of every group."""
    used = np.unique(np.concatenate(ends)) - fabric.num_hosts
    switches = used[used >= 0]
    chiefs: dict[int, int] = {}
    for switch in switches[np.argsort(-fabric.devices.level[switches].astype(int), kind="stable")].tolist():
        chiefs.setdefault(int(labels[switch]), int(switch))
    return chiefs


class _Names:
    """Hands every group a name of its own."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def of(self, fabric: Fabric, label: int, switch_of: dict[int, int]) -> str:
        if label in switch_of:
            full = fabric.device_name(switch_of[label])
            wishes = [full, full.rpartition("/")[0]]
        else:
            wishes = [f"rack-{label:02d}"]
        for wish in (clean(w) for w in wishes if w):
            if wish not in self.taken:
                self.taken.add(wish)
                return wish
        return self.top()

    def top(self) -> str:
        """Return a name for what has no switch of its own to be called after."""
        wishes = ("fabric", *(f"fabric-{i}" for i in range(len(self.taken) + 1)))
        name = next(wish for wish in wishes if wish not in self.taken)
        self.taken.add(name)
        return name
