"""Start a sampler inside the lab: which namespace counts which link, each link once."""

from __future__ import annotations

import socket
from collections.abc import Callable

from syncline.lab.inside.build import Works
from syncline.lab.inside.nursery import Child, Nursery
from syncline.lab.inside.protocol import Message


def places(works: Works) -> list[Message]:
    """Return the namespaces to read: every link once, at a switch where it has one, and the queues of all ends."""
    kinds = [box.kind for box in works.blueprint.boxes]
    links: list[dict[int, list[int]]] = [{} for _ in kinds]
    queue_only: list[dict[int, list[int]]] = [{} for _ in kinds]
    for cable in works.blueprint.cables:
        for near, far, link, _ in cable.ends():
            near_index, far_index = works.index[near.box, near.interface], works.index[far.box, far.interface]
            if kinds[near.box] == "host" and kinds[far.box] != "host":
                links[far.box].setdefault(far_index, [-1, -1])[0] = link
                queue_only[near.box][near_index] = [-1, link]
            else:
                links[near.box].setdefault(near_index, [-1, -1])[1] = link
    found = [
        {"namespace": works.namespaces[box], "links": mine, "is_switch": True} for box, mine in enumerate(links) if mine
    ]
    found += [
        {"namespace": works.namespaces[box], "links": mine, "is_switch": False}
        for box, mine in enumerate(queue_only)
        if mine
    ]
    return found


def start_sampler(
    works: Works,
    nursery: Nursery,
    files: list[int],
    channel: socket.socket,
    tell: Callable[[socket.socket | None, Message], None],
    *,
    interval_s: float,
    queue_interval_s: float,
) -> Child:
    """Start a sampler that writes into two files and says `recorded` to the one who asked when it has ended."""
    watched = places(works)
    samples, queues = files
    order = {
        "places": watched,
        "samples": samples,
        "queues": queues,
        "interval_s": interval_s,
        "queue_interval_s": queue_interval_s,
    }
    passed = [samples, queues, *(int(place["namespace"]) for place in watched)]
    child = nursery.helper("sampler", order, passed)
    child.on_exit = lambda code: tell(channel, {"event": "recorded", "recording": child.number, "code": code})
    return child


def start_meter(
    works: Works,
    nursery: Nursery,
    files: list[int],
    channel: socket.socket,
    tell: Callable[[socket.socket | None, Message], None],
    *,
    directions: list[tuple[int, int]],
    seconds: float,
    pairs: bool,
) -> Child:
    """Start a meter that measures links one by one into a file and says `recorded` when it has ended."""
    links = []
    for cable, side in directions:
        near, far, link, rate_Bps = works.blueprint.cables[cable].ends()[side]
        links.append(
            {
                "link": link,
                "near": works.namespaces[near.box],
                "interface": near.interface,
                "far": works.namespaces[far.box],
                "far_interface": far.interface,
                "far_index": works.index[far.box, far.interface],
                "rate_Bps": rate_Bps,
                "delay_s": works.blueprint.cables[cable].delay_s,
            }
        )
    hosts = [
        {"namespace": works.namespaces[host], "addresses": list(works.blueprint.addresses(host).values())}
        for host in works.blueprint.hosts
    ]
    order = {
        "links": links,
        "hosts": hosts if pairs else [],
        "out": files[0],
        "seconds": seconds,
        "frame_bytes": works.profile.frame_bytes,
    }
    child = nursery.helper("meter", order, [files[0], *works.namespaces])
    child.on_exit = lambda code: tell(channel, {"event": "recorded", "recording": child.number, "code": code})
    return child
