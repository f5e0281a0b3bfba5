"""Strands that are bound to a rail: which NIC they use, and how data gets to it inside the host."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syncline.errors import SimulationError
from syncline.fabric.route import Policy, Routes
from syncline.sim.flow.engine import Paths

Longs = NDArray[np.int64]


def on_rails(
    routes: Routes, paths: Paths, src: Longs, dst: Longs, rail: Longs, label: Longs, seed: int, policy: Policy
) -> Paths:
    """Return the paths with those of rail-bound connections between hosts sent over the NICs of their rail.

    Data goes to the NIC over its own GPU (NVLink, then PCIe) where the host has one, else over PCIe.
    """
    rows = np.flatnonzero((rail >= 0) & (routes.inside.direct(src, dst)[:, 0] < 0) & (src != dst))
    if len(rows) == 0:
        return paths
    near, far = (_nic_on_rail(routes, ends[rows], rail[rows]) for ends in (src, dst))
    middle = routes.many(near, far, seed=seed, policy=policy, flow=label[rows])
    heads = _to_nic(routes, src[rows], near)
    tails = [row[::-1] ^ 1 for row in _to_nic(routes, dst[rows], far)]
    replaced = {
        int(row): np.concatenate((heads[k], middle[k], tails[k])).astype(np.int32) for k, row in enumerate(rows)
    }
    return Paths.of([replaced.get(i, paths.row(i)) for i in range(len(paths))])


def _nic_on_rail(routes: Routes, device: Longs, rail: Longs) -> Longs:
    """Return the NIC of each device's host on a rail; without rails in the fabric, the NIC of that number."""
    fabric = routes.fabric
    nics = fabric.nics.astype(np.int64)
    number = fabric.devices.rail[nics].astype(np.int64)
    number = np.where(number >= 0, number, fabric.devices.local[nics])
    width = int(max(number.max(initial=0), rail.max(initial=0))) + 1
    table = np.full(fabric.num_hosts * width, -1, np.int64)
    table[fabric.devices.host[nics] * width + number] = nics
    found: Longs = table[fabric.devices.host[device] * width + rail]
    if (found < 0).any():
        bad = int(np.argmax(found < 0))
        raise SimulationError(f"{fabric.device_name(int(device[bad]))} has no NIC on rail {int(rail[bad])}.",
                              hint="Stripe over the rails that the hosts have.")  # fmt: skip
    return found


def _to_nic(routes: Routes, gpu: Longs, nic: Longs) -> list[NDArray[np.int64]]:
    inside = routes.inside
    owner = inside.owner_of_nic[nic]
    owner = np.where(owner < 0, gpu, owner)
    hop, climb = inside.direct(gpu, owner), inside.over_pcie(owner, nic)
    return [np.concatenate((hop[i][hop[i] >= 0], climb[i][climb[i] >= 0])) for i in range(len(gpu))]
