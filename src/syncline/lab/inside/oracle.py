"""Which path every flow takes: the kernel is asked, hop by hop, instead of guessing its hash."""

from __future__ import annotations

from syncline.lab.blueprint import Blueprint, End
from syncline.lab.inside.build import Works
from syncline.lab.inside.protocol import Message
from syncline.lab.reach import SwitchRoutes


def paths(works: Works) -> list[Message]:
    """Return the links from every host to every address of every other, as the kernel routes them now."""
    reach = SwitchRoutes(works.blueprint, frozenset(works.down))
    rows = []
    for host in works.blueprint.hosts:
        for other in works.blueprint.hosts:
            if other == host:
                continue
            for _, end, _ in works.blueprint.ports(other):
                rows.append(_row(works, reach, host, other, end))
    return rows


def _row(works: Works, reach: SwitchRoutes, host: int, other: int, end: End) -> Message:
    try:
        out = works.out_interface(host, end.address)
        source = works.blueprint.addresses(host)[out]
        links = _walk(works, reach, host, other, end.address, source, out)
    except (OSError, LookupError, StopIteration, RecursionError) as error:
        return {"host": host, "to": other, "address": end.address, "links": None, "why": str(error)}
    return {"host": host, "to": other, "address": end.address, "source": source, "interface": out, "links": links}


def _walk(
    works: Works, reach: SwitchRoutes, box: int, other: int, address: str, source: str, interface: str
) -> list[int]:
    blueprint, links, came = works.blueprint, [], ""
    for _ in range(64):
        cable, _, far = next(port for port in blueprint.ports(box) if port[1].interface == interface)
        links.append(_directed(blueprint, cable, box))
        box, came = far.box, far.interface
        kind = blueprint.boxes[box].kind
        if kind == "host":
            return links
        if kind == "bridge":
            return links + _bridged(blueprint, reach, box, other, address)
        interface = works.out_interface(box, address, source, came)
    raise LookupError("the route goes in a circle")


def _bridged(blueprint: Blueprint, reach: SwitchRoutes, box: int, other: int, address: str) -> list[int]:
    """Return the links from a bridge to a host: there is only one way through a tree."""
    ports = sorted(reach.attachments(other).values(), key=lambda port: port[1].address != address)
    target = next(port for port in ports if box in reach.distance(port[2].box))
    links = [_directed(blueprint, cable, near.box) for cable, near, _ in reach.walk(box, target[2].box)]
    return [*links, _directed(blueprint, target[0], target[2].box)]


def _directed(blueprint: Blueprint, cable: int, box: int) -> int:
    link = blueprint.cables[cable].link
    return link if blueprint.cables[cable].a.box == box else link ^ 1
