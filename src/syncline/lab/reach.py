"""Who reaches whom over which cables: components, distances and next hops of a blueprint with some cables down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from syncline.lab.blueprint import Blueprint, End, LabBox


def switch_components(boxes: Sequence[LabBox], pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[list[int], bool]]:
    """Yield the sets of switches that are joined, each with whether it is a tree (no loop, no parallel cables)."""
    near: dict[int, list[int]] = {i: [] for i, box in enumerate(boxes) if box.kind != "host"}
    for a, b in pairs:
        if a in near and b in near:
            near[a].append(b)
            near[b].append(a)
    seen: set[int] = set()
    for first in near:
        if first in seen:
            continue
        members, todo = [], [first]
        seen.add(first)
        while todo:
            box = todo.pop()
            members.append(box)
            for there in near[box]:
                if there not in seen:
                    seen.add(there)
                    todo.append(there)
        num_cables = sum(len(near[box]) for box in members) // 2
        yield sorted(members), num_cables == len(members) - 1


@dataclass(frozen=True)
class Hop:
    """A way out of a box: the interface, and the gateway's address (empty: the destination is on the wire)."""

    interface: str
    gateway: str = ""


class SwitchRoutes:
    """Shortest ways between the switches of a blueprint, with the cables in `down` missing."""

    def __init__(self, blueprint: Blueprint, down: frozenset[int] = frozenset()) -> None:
        self.blueprint = blueprint
        self.down = down
        self._distances: dict[int, dict[int, int]] = {}

    def is_up(self, cable: int) -> bool:
        """Say whether a cable carries anything."""
        return cable not in self.down and self.blueprint.cables[cable].up

    def distance(self, target: int) -> dict[int, int]:
        """Return the distance of every box that can reach the switch (or host) `target` through switches."""
        if target not in self._distances:
            self._distances[target] = self._search(target)
        return self._distances[target]

    def _search(self, target: int) -> dict[int, int]:
        distances: dict[int, int] = {}
        ahead = [(0, target)]
        while ahead:
            distance, box = heappop(ahead)
            if box in distances:
                continue
            distances[box] = distance
            for cable, _, far in self.blueprint.ports(box):
                if self.is_up(cable) and self.blueprint.boxes[far.box].kind != "host":
                    heappush(ahead, (distance + self.blueprint.cables[cable].weight, far.box))
        return distances

    def next_cables(self, box: int, target: int) -> list[tuple[int, End, End]]:
        """Return the cables of a switch that lie on a shortest way to the switch `target`."""
        distance = self.distance(target)
        if box not in distance:
            return []
        return [
            (cable, near, far)
            for cable, near, far in self.blueprint.ports(box)
            if self.is_up(cable)
            and far.box in distance
            and self.blueprint.boxes[far.box].kind != "host"
            and distance[far.box] + self.blueprint.cables[cable].weight == distance[box]
        ]

    def attachments(self, host: int) -> dict[str, tuple[int, End, End]]:
        """Return the cables of a host that are up, by interface: (cable, the host's end, the far end)."""
        return {near.interface: (c, near, far) for c, near, far in self.blueprint.ports(host) if self.is_up(c)}

    def between(self, near: tuple[int, End, End], far: tuple[int, End, End]) -> int | None:
        """Return the distance between the far ends of two hosts' cables, or None if nothing joins them."""
        if near[0] == far[0]:
            return 0  # one cable from host to host
        switch_a, switch_b = near[2].box, far[2].box
        if "host" in (self.blueprint.boxes[switch_a].kind, self.blueprint.boxes[switch_b].kind):
            return None
        return self.distance(switch_b).get(switch_a)

    def walk(self, box: int, target: int) -> list[tuple[int, End, End]]:
        """Return the cables from one switch to another where there is only one way (bridges)."""
        path = []
        while box != target:
            cable, near, far = self.next_cables(box, target)[0]
            path.append((cable, near, far))
            box = far.box
        return path


def same_rail_cables(blueprint: Blueprint) -> list[bool]:
    """Say of each cable whether some shortest way between equal interfaces of two hosts crosses it."""
    reach = SwitchRoutes(blueprint)
    kept = [False] * len(blueprint.cables)
    rails: dict[str, list[tuple[int, End, End]]] = {}
    for host in blueprint.hosts:
        for interface, port in reach.attachments(host).items():
            kept[port[0]] = True
            rails.setdefault(interface, []).append(port)
    for ports in rails.values():
        switches = {port[2].box for port in ports}
        for target in switches:
            edge, seen = [s for s in switches if s in reach.distance(target)], set()
            while edge:
                box = edge.pop()
                if box in seen:
                    continue
                seen.add(box)
                for cable, _, far in reach.next_cables(box, target):
                    kept[cable] = True
                    edge.append(far.box)
    return kept
