"""Resilience: what a synchronous job keeps after the worst failure of one switch, and of two.

A host that loses some of its ports slows all others to its rate, unless the job goes on without the hosts concerned;
the better of the two remains. A lost spine takes its share of every leaf's uplinks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.fabric import Fabric
from syncline.fabric.fabric import DeviceKind, Tier


@dataclass(frozen=True)
class Remains:
    """The share of the cluster's training that remains after any one and any two failed switches."""

    after_one: float
    after_two: float
    worst: str
    """Whose failure costs most: a leaf, a spine or a core."""


def remains(fabric: Fabric) -> Remains:
    """Return what remains after the worst one and the worst two failures of switches."""
    found = {"leaf": _leaves(fabric)}
    for tier, word in ((Tier.LEAF_SPINE, "spine"), (Tier.SPINE_CORE, "core")):
        lost = _uplink_shares(fabric, tier)
        if lost is not None:
            found[word] = (1 - lost[0], 1 - lost[1])
    worst = min(found, key=lambda word: found[word][0])
    return Remains(found[worst][0], min(pair[1] for pair in found.values()), worst)


def _leaves(fabric: Fabric) -> tuple[float, float]:
    links, devices = fabric.links, fabric.devices
    access = (links.tier == Tier.ACCESS) & (devices.kind[links.src] == DeviceKind.NIC) & links.up
    host, leaf = devices.host[links.src[access]], links.dst[access]
    rate = links.rate_Bps[access]
    total = np.bincount(host, weights=rate, minlength=fabric.num_hosts)
    pair, at = np.unique(np.stack((host, leaf), axis=1), axis=0, return_inverse=True)
    share = np.bincount(at.ravel(), weights=rate) / total[pair[:, 0]]
    worst = pair[int(np.argmax(share))]
    below = len(np.unique(host[leaf == worst[1]])) / fabric.num_hosts
    mine = np.sort(share[pair[:, 0] == worst[0]])[::-1]
    second = float(mine[1]) if len(mine) > 1 else 0.0
    one = max(1 - float(mine[0]), 1 - below)
    # A second leaf strikes the same hosts where they have one, and as many others where they have not.
    two = max(1 - float(mine[0]) - second, 1 - 2 * below) if second else 1 - 2 * below
    return max(0.0, one), max(0.0, two)


def _uplink_shares(fabric: Fabric, tier: Tier) -> tuple[float, float] | None:
    """Return the largest share of a switch's uplinks that go to one switch above, and to two."""
    links, devices = fabric.links, fabric.devices
    up = (links.tier == tier) & (devices.level[links.src] < devices.level[links.dst]) & links.up
    if not up.any():
        return None
    low, high = links.src[up], links.dst[up]
    pair, at = np.unique(np.stack((low, high), axis=1), axis=0, return_inverse=True)
    rate = np.bincount(at.ravel(), weights=links.rate_Bps[up])
    total = np.bincount(pair[:, 0], weights=rate)
    share = rate / total[pair[:, 0]]
    first = pair[int(np.argmax(share))][0]
    mine = np.sort(share[pair[:, 0] == first])[::-1]
    return float(mine[0]), float(mine[:2].sum())
