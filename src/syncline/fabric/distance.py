"""Shortest distances between forwarding devices, for all destinations at once.

Distances are whole numbers of hops, with a global cable of a dragonfly counting three, so that the shortest path
crosses at most one of them (local - global - local), as minimal dragonfly routing does.

All destinations are searched together: every device keeps a bit set of the destinations it can reach within d hops,
and one step of the search is an OR over its neighbours' sets. A three-tier fabric of ten thousand switches takes
seconds, where a search per destination takes minutes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.fabric.fabric import NETWORK_TIERS, DeviceKind, Fabric, IntArray, Tier

GLOBAL_HOPS = 3
UNREACHABLE = np.iinfo(np.int16).max
_BLOCK_BITS = 4096


@dataclass(frozen=True, eq=False)
class Distances:
    """`hops[f, t]` from forwarder f to target t; `forwarder` and `target` map device ids to rows and columns."""

    hops: NDArray[np.int16]
    forwarders: IntArray
    targets: IntArray
    forwarder: IntArray
    target: IntArray
    start: NDArray[np.int64]
    link: IntArray
    """Out-links between forwarders, as compressed rows by forwarder, in link order."""


def forwards(fabric: Fabric) -> NDArray[np.bool_]:
    """Say which devices pass other devices' traffic on: switches, and the chips of a chip torus."""
    mask: NDArray[np.bool_] = fabric.devices.kind == DeviceKind.SWITCH
    if chips_forward(fabric):
        mask = mask | (fabric.devices.kind == DeviceKind.GPU)
    return mask


def chips_forward(fabric: Fabric) -> bool:
    """Say whether accelerators route for each other, as TPU chips do."""
    network = fabric.spec.network
    return network is not None and network.topology == "torus" and getattr(network, "of", "") == "chips"


def distances(fabric: Fabric) -> Distances:
    """Return hop counts from every forwarder to every forwarder that has an endpoint."""
    mask = forwards(fabric)
    forwarders = np.flatnonzero(mask).astype(np.int32)
    forwarder = _inverse(forwarders, len(fabric.devices))
    links = fabric.links
    tiers = [int(t) for t in NETWORK_TIERS]
    usable = links.up & (np.isin(links.tier, tiers) | (links.tier == Tier.SCALE_UP))
    between = np.flatnonzero(usable & mask[links.src] & mask[links.dst]).astype(np.int32)
    order = np.argsort(forwarder[links.src[between]], kind="stable")
    between = between[order]
    counts = np.bincount(forwarder[links.src[between]], minlength=len(forwarders))
    start = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    ends = mask[links.dst] & ~mask[links.src] & usable
    targets = np.unique(links.dst[ends]).astype(np.int32)
    if chips_forward(fabric):
        targets = np.union1d(targets, fabric.gpus).astype(np.int32)
    hops = np.full((len(forwarders), len(targets)), UNREACHABLE, np.int16)
    for first in range(0, len(targets), _BLOCK_BITS):
        block = forwarder[targets[first : first + _BLOCK_BITS]]
        _search(hops[:, first : first + _BLOCK_BITS], block, forwarder, fabric, between, start)
    return Distances(hops, forwarders, targets, forwarder, _inverse(targets, len(fabric.devices)), start, between)


def _search(
    hops: NDArray[np.int16],
    targets: IntArray,
    forwarder: IntArray,
    fabric: Fabric,
    between: IntArray,
    start: NDArray[np.int64],
) -> None:
    """Fill the columns of `hops` for one block of targets."""
    num, words = hops.shape[0], -(-len(targets) // 64)
    column = np.arange(len(targets))
    reached = np.zeros((num, words), np.uint64)
    reached[targets, column // 64] |= np.uint64(1) << (column % 64).astype(np.uint64)
    weight = np.where(fabric.links.tier[between] == Tier.GROUP_GLOBAL, GLOBAL_HOPS, 1)
    neighbour = forwarder[fabric.links.dst[between]]
    classes = [(w, _rows(start, weight == w), neighbour[weight == w]) for w in np.unique(weight)]
    history = [reached]
    planes: list[NDArray[np.uint64]] = []
    for level in range(1, UNREACHABLE):
        now = history[-1].copy()
        for w, rows, targets_of in classes:
            if level >= w:
                _merge(now, history[level - w], rows, targets_of)
        fresh = now & ~history[-1]
        if not fresh.any() and _settled(history, max((c[0] for c in classes), default=1)):
            break
        _note(planes, fresh, level)
        history.append(now)
        if len(history) > GLOBAL_HOPS + 1:
            history[level - GLOBAL_HOPS - 1] = np.zeros((0, 0), np.uint64)  # keep only what a later level reads
    reached_bits = _bits(history[-1], hops.shape[1])
    value = sum(
        (_bits(plane, hops.shape[1]).astype(np.int16) << k for k, plane in enumerate(planes)), start=np.int16(0)
    )
    hops[:] = np.where(reached_bits, value, UNREACHABLE)


def _note(planes: list[NDArray[np.uint64]], fresh: NDArray[np.uint64], level: int) -> None:
    """Write the level of newly reached targets in binary, a bit set for each digit: far less to unpack at the end."""
    for k in range(level.bit_length()):
        if k == len(planes):
            planes.append(np.zeros_like(fresh))
        if level >> k & 1:
            planes[k] |= fresh


def _bits(rows: NDArray[np.uint64], width: int) -> NDArray[np.uint8]:
    return np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little")[:, :width]


def _settled(history: list[NDArray[np.uint64]], reach: int) -> bool:
    recent = history[-reach:]
    return len(history) >= reach and all(np.array_equal(recent[0], h) for h in recent[1:])


def _rows(start: NDArray[np.int64], keep: NDArray[np.bool_]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(keep)))[start]


def _merge(into: NDArray[np.uint64], source: NDArray[np.uint64], rows: NDArray[np.int64], neighbours: IntArray) -> None:
    """OR into each row the sets of its neighbours, a bounded number of rows at a time."""
    step = max(1, 2**22 // max(1, into.shape[1] * 64))
    for first in range(0, len(rows) - 1, step):
        last = min(first + step, len(rows) - 1)
        degree = np.diff(rows[first : last + 1])
        busy = np.flatnonzero(degree)
        if len(busy) == 0:
            continue
        gathered = source[neighbours[rows[first] : rows[last]]]
        offsets = (rows[first:last][busy] - rows[first]).astype(np.intp)
        into[first + busy] |= np.bitwise_or.reduceat(gathered, offsets, axis=0)


def _inverse(ids: IntArray, size: int) -> IntArray:
    result = np.full(size, -1, np.int32)
    result[ids] = np.arange(len(ids), dtype=np.int32)
    return result
