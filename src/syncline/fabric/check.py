"""Checks on a whole fabric: no switch has more cables than ports, and every host can reach every other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syncline.errors import FabricError
from syncline.fabric.catalog import Catalog, Switch
from syncline.fabric.draft import UNKNOWN_CABLE
from syncline.fabric.fabric import Fabric


def check_ports(fabric: Fabric, switches: dict[str, Switch], catalog: Catalog) -> None:
    """Raise if a switch has more cables than its model has ports; ports of two kinds share the box in proportion."""
    links = fabric.links
    wired = links.cable >= 0
    used = np.zeros(len(fabric.devices))
    for medium, name in enumerate(fabric.media):
        rows = wired & (links.medium == medium)
        if not rows.any():
            continue
        if name == UNKNOWN_CABLE:
            continue  # a cable of a stated rate: how many of them a switch takes is not known
        counts = np.bincount(links.src[rows], weights=links.num_cables[rows], minlength=len(fabric.devices))
        for part, model in switches.items():
            mine = fabric.devices.part == fabric.parts.index(part)
            if counts[mine].any():
                used[mine] += counts[mine] / catalog.num_ports(model, catalog.link(name))
    over = np.flatnonzero(used > 1 + 1e-9)
    if len(over):
        _raise_over(fabric, int(over[0]), used, wired)


def _raise_over(fabric: Fabric, device: int, used: NDArray[np.float64], wired: NDArray[np.bool_]) -> None:
    mine = np.flatnonzero((fabric.links.src == device) & wired)
    mine = np.repeat(mine, fabric.links.num_cables[mine])
    fits = round(len(mine) / used[device])
    last = [fabric.link_name(int(i)) for i in mine[fits : fits + 3]]
    model = fabric.parts[fabric.devices.part[device]]
    raise FabricError(
        f'switch "{fabric.device_name(device)}" has {len(mine)} ports in use but "{model}" has {fits}.',
        detail=f"Links over the limit: {', '.join(last)}{', ...' if len(mine) > fits + 3 else ''}",
        hint="Drop a link, pick a larger switch, or put fewer hosts under it.",
    )


def check_connected(fabric: Fabric) -> None:
    """Raise if some GPU cannot reach the first one by any path, naming the hosts cut off."""
    label = components(fabric)
    gpus = label[fabric.gpus]
    stray = np.flatnonzero(gpus != gpus[0])
    if len(stray) == 0:
        return
    hosts = np.unique(fabric.gpu_host[stray])
    names = ", ".join(fabric.host_names[h] for h in hosts[:4])
    raise FabricError(
        f"the fabric is not connected: {len(hosts)} of {fabric.num_hosts} hosts cannot reach "
        f"{fabric.host_names[int(fabric.gpu_host[0])]}.",
        detail=f"Cut off: {names}{', ...' if len(hosts) > 4 else ''}",
        hint="Add the missing cables, or describe the parts as separate clusters.",
    )


def components(fabric: Fabric) -> NDArray[np.int64]:
    """Label every device with its connected component (the smallest device id in it)."""
    links = fabric.links
    return joined(len(fabric.devices), links.src[::2].astype(np.int64), links.dst[::2].astype(np.int64))


def joined(count: int, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    """Label the vertices of a graph with edges a - b by the smallest vertex that each can reach."""
    label = np.arange(count)
    while True:
        low = np.minimum(label[a], label[b])
        before = label.copy()
        np.minimum.at(label, a, low)
        np.minimum.at(label, b, low)
        label = label[label]  # jump pointers: labels shrink towards the root in few rounds
        if (label == before).all():
            return label
