"""Where to draw what: devices on levels (hosts below, the switches above them), links between them."""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

from syncline.describe.names import natural
from syncline.describe.plain import JsonObject
from syncline.watch.links import LinkTable

OUTSIDE = "network"
MAX_GROUPS = 24
_TIERS = ("hosts", "leaves", "spines", "cores", "tops")
_POD = re.compile(r"((?:pod|rack|su|row|group|site|dc)[-_]?\d+)(?=[-_/])", re.IGNORECASE)
_PART = re.compile(r"(?:nic|gpu|nvswitch|pcie|cpu|nvlink|eth|en|ib|mlx|bond|lo$|wl)[^/]*$", re.IGNORECASE)
_COPY = re.compile(r" #\d+$")
_HOST = re.compile(r"(?:host|node|h|gpu|rank|r)[-_]?\d+$", re.IGNORECASE)


class _Group(NamedTuple):
    """What links of one group have in common."""

    pod: str
    rail: int
    tier: int
    up: bool


def picture(table: LinkTable) -> JsonObject:
    """Return devices with level and place (0 to 1 across), and the two device numbers of each link.

    NICs and GPUs are drawn as their host. A link with one unknown end leads to the network.
    """
    ends = [(_owner(src) or OUTSIDE, _owner(dst) or OUTSIDE) for src, dst in zip(table.src, table.dst, strict=True)]
    names = sorted({end for pair in ends for end in pair}, key=natural)
    level = _levels(names, ends, _hosts(names, ends, table))
    order = _ordered(names, ends, level)
    x = {name: (i + 0.5) / len(row) for row in order.values() for i, name in enumerate(row)}
    number = {name: i for i, name in enumerate(names)}
    groups, group_of = _groups(ends, level, table)
    return {
        "devices": [{"name": name, "level": level[name], "x": round(x[name], 5)} for name in names],
        "links": [[number[src], number[dst]] for src, dst in ends],
        "num_levels": 1 + max(level.values(), default=0),
        "groups": groups,
        "group_of": group_of,
    }


def _groups(ends: list[tuple[str, str]], level: dict[str, int], table: LinkTable) -> tuple[list[JsonObject], list[int]]:
    """Return groups of links with what they have in common (pod, rail, tier, direction), and the group of each link.

    Where there would be more groups than a reader can tell apart, rails are put together, then pods.
    """
    rows = [
        _Group(_pod(src) or _pod(dst), int(rail), min(level[src], level[dst]), level[src] <= level[dst])
        for (src, dst), rail in zip(ends, table.rail, strict=True)
    ]
    for blind in ({}, {"rail": -1}, {"rail": -1, "pod": ""}):
        keys = [row._replace(**blind) for row in rows]
        distinct = sorted(set(keys), key=lambda key: (key.tier, not key.up, natural(key.pod), key.rail))
        if len(distinct) <= MAX_GROUPS:
            break
    number = {key: i for i, key in enumerate(distinct)}
    tops = 1 + max(level.values(), default=0)
    groups: list[JsonObject] = [
        {"name": _group_name(key, tops), "tier": key.tier, "rail": key.rail, "pod": key.pod} for key in distinct
    ]
    return groups, [number[key] for key in keys]


def _group_name(group: _Group, num_levels: int) -> str:
    below, above = (_TIERS[min(t, len(_TIERS) - 1)] for t in (group.tier, group.tier + 1))
    if num_levels < 2:
        return "links"
    way = f"{below} to {above}" if group.up else f"{above} to {below}"
    return ", ".join(filter(None, (way, f"rail {group.rail}" if group.rail >= 0 else "", group.pod)))


def _pod(name: str) -> str:
    """Return what of a name says where a device stands: `west` of `west/leaf-03`, `pod-2` of `pod-2-leaf-1`."""
    site, slash, _ = name.partition("/")
    found = _POD.match(name)
    return found[1] if found else site if slash else ""


def _owner(end: str) -> str:
    """Return what an end is drawn as: a host for its parts; `west/leaf-03` is a switch of a site and stays itself."""
    whole = _COPY.sub("", end)
    owner, slash, part = whole.rpartition("/")
    return owner if slash and _PART.match(part) else whole


def _hosts(names: list[str], ends: list[tuple[str, str]], table: LinkTable) -> set[str]:
    """Return what stands at the bottom: devices with parts or a host's name, else those with the fewest links."""
    with_parts = {_owner(end) for end in (*table.src, *table.dst) if _owner(end) != _COPY.sub("", end)}
    found = with_parts | {name for name in names if _HOST.fullmatch(name.rpartition("/")[2])}
    if found:
        return found
    degree = dict.fromkeys(names, 0)
    for src, dst in ends:
        degree[src] += 1
        degree[dst] += 1
    least = min(degree.values(), default=0)
    return {name for name, count in degree.items() if count == least}


def _levels(names: list[str], ends: list[tuple[str, str]], hosts: set[str]) -> dict[str, int]:
    near: dict[str, set[str]] = {name: set() for name in names}
    for src, dst in ends:
        near[src].add(dst)
        near[dst].add(src)
    level = dict.fromkeys((name for name in names if name in hosts), 0)
    waiting = deque(level)
    while waiting:
        here = waiting.popleft()
        for other in near[here] - level.keys():
            level[other] = level[here] + 1
            waiting.append(other)
    return {name: level.get(name, 0) for name in names}


def _ordered(names: list[str], ends: list[tuple[str, str]], level: dict[str, int]) -> dict[int, list[str]]:
    """Return the devices of each level from left to right: hosts by name, switches above the middle of theirs."""
    rows: dict[int, list[str]] = {}
    for name in names:
        rows.setdefault(level[name], []).append(name)
    place = {name: i / max(1, len(rows.get(0, [])) - 1) for i, name in enumerate(rows.get(0, []))}
    for depth in sorted(rows)[1:]:
        below: dict[str, list[float]] = {name: [] for name in rows[depth]}
        for src, dst in ends:
            for up, down in ((src, dst), (dst, src)):
                if up in below and level[down] == depth - 1:
                    below[up].append(place[down])
        middle = {name: round(sum(xs) / len(xs), 6) if xs else 0.5 for name, xs in below.items()}
        rows[depth].sort(key=lambda name: (middle[name], natural(name)))
        place |= {name: (i + 0.5) / len(rows[depth]) for i, name in enumerate(rows[depth])}
    return rows
