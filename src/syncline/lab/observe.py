"""What the lab's own observers are ordered to do: which namespace counts which link, which links are measured."""

from __future__ import annotations

from syncline.lab.inside.build import Works
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
    return [
        {"namespace": works.namespaces[box], "links": mine, "is_switch": is_switch}
        for is_switch, table in ((True, links), (False, queue_only))
        for box, mine in enumerate(table)
        if mine
    ]


def sampler_order(works: Works, files: list[int], *, interval_s: float, queue_interval_s: float) -> Message:
    """Return the order of a sampler that writes into two files."""
    samples, queues = files
    intervals = {"interval_s": interval_s, "queue_interval_s": queue_interval_s}
    return {"places": places(works), "samples": samples, "queues": queues, **intervals}


def meter_order(
    works: Works, files: list[int], *, directions: list[tuple[int, int]], seconds: float, pairs: bool
) -> Message:
    """Return the order of a meter that measures links one by one into a file; with `pairs`, who reaches whom too."""
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
        for host in (works.blueprint.hosts if pairs else ())
    ]
    frame_bytes = works.profile.frame_bytes
    return {"links": links, "hosts": hosts, "out": files[0], "seconds": seconds, "frame_bytes": frame_bytes}
