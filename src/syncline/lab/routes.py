"""The routes that hosts and routers should have, for any set of cables that are down.

Each interface of a host has an address 10.RAIL.x.y. Traffic to it leaves by the same rail of the sender where that
reaches it; where it does not (a NIC is dead, a rail is cut) the address moves to another interface of its host, as a
routing daemon on the host would announce it.
"""

from __future__ import annotations

from syncline.lab.blueprint import Blueprint, End
from syncline.lab.reach import Hop, SwitchRoutes

Port = tuple[int, End, End]
Table = dict[str, tuple[Hop, ...]]


def tables(blueprint: Blueprint, down: frozenset[int] = frozenset()) -> list[Table]:
    """Return the routes of all boxes, by destination address, with the cables in `down` missing.

    Hosts list only what differs from their rail's own route.
    """
    reach = SwitchRoutes(blueprint, down)
    attached = {host: reach.attachments(host) for host in blueprint.hosts}
    result: list[Table] = []
    for index, box in enumerate(blueprint.boxes):
        if box.kind == "host":
            result.append(_host_table(blueprint, reach, attached, index))
        elif box.kind == "router":
            result.append(_router_table(blueprint, reach, attached, index))
        else:
            result.append({})
    return result


def _addresses(blueprint: Blueprint, host: int) -> list[End]:
    return [near for _, near, _ in blueprint.ports(host)]


def _router_table(
    blueprint: Blueprint, reach: SwitchRoutes, attached: dict[int, dict[str, Port]], router: int
) -> Table:
    table: Table = {}
    for host in blueprint.hosts:
        for end in _addresses(blueprint, host):
            port = _attachment(reach, attached[host], end.interface, router)
            if port is None:
                continue
            switch = port[2].box
            if switch != router:
                hops = tuple(Hop(near.interface, far.address) for _, near, far in reach.next_cables(router, switch))
                if hops:
                    table[end.address] = hops
            elif port[1].interface != end.interface:
                table[end.address] = (Hop(port[2].interface, port[1].address),)
    return table


def _attachment(reach: SwitchRoutes, ports: dict[str, Port], interface: str, router: int) -> Port | None:
    """Return the cable by which a router should reach an address: its own interface's, or else the nearest other."""
    best: tuple[tuple[bool, int], Port] | None = None
    for name, port in ports.items():
        if reach.blueprint.boxes[port[2].box].kind != "router":
            continue
        distance = reach.distance(port[2].box).get(router)
        if distance is not None and (best is None or (name != interface, distance) < best[0]):
            best = ((name != interface, distance), port)
    return best[1] if best else None


def _host_table(blueprint: Blueprint, reach: SwitchRoutes, attached: dict[int, dict[str, Port]], host: int) -> Table:
    table: Table = {}
    mine = {near.interface for near in _addresses(blueprint, host)}
    for other in blueprint.hosts:
        if other == host:
            continue
        for end in _addresses(blueprint, other):
            chosen = _choice(reach, attached[host], attached[other], end.interface)
            if chosen is None:
                continue
            near, far = chosen
            usual = near[1].interface == end.interface == far[1].interface and end.interface in mine
            if not (usual and blueprint.boxes[near[2].box].kind != "host"):
                table[end.address] = (_first_hop(blueprint, near, far, end),)
    return table


def _choice(
    reach: SwitchRoutes, mine: dict[str, Port], theirs: dict[str, Port], interface: str
) -> tuple[Port, Port] | None:
    """Return the sender's and the receiver's cable: the rail itself, else to the right NIC, else whatever joins."""
    best: tuple[tuple[bool, bool, int], tuple[Port, Port]] | None = None
    for near_name, near in mine.items():
        for far_name, far in theirs.items():
            distance = reach.between(near, far)
            if distance is None:
                continue
            order = (far_name != interface, near_name != interface, distance)
            if best is None or order < best[0]:
                best = (order, (near, far))
    return best[1] if best else None


def _first_hop(blueprint: Blueprint, near: Port, far: Port, end: End) -> Hop:
    if blueprint.boxes[near[2].box].kind == "router":
        return Hop(near[1].interface, near[2].address)
    # On a bridge or a cable from host to host the receiver itself is the next hop.
    return Hop(near[1].interface, "" if far[1].address == end.address else far[1].address)
