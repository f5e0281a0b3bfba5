"""Folding: devices that no measurement could tell apart become one cell.

Colour refinement splits devices until two devices of one colour have the same number of links of each rate and tier to
every other colour (an equitable partition). A fair network problem (maximum flow, max-min rates of symmetric traffic)
has the same answer on the cells as on the devices, since any solution can be averaged over a cell. A fabric of 131,072
GPUs folds to a few dozen cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.fabric.fabric import Fabric, IntArray


@dataclass(frozen=True, eq=False)
class CellMap:
    """Device to cell (-1: left out), and the capacity between cells: `rate_Bps[i]` from `src[i]` to `dst[i]`."""

    cell: IntArray
    size: NDArray[np.int64]
    src: IntArray
    dst: IntArray
    rate_Bps: NDArray[np.float64]
    num_links: NDArray[np.int64]


def fold(fabric: Fabric, colour: NDArray[np.int64], link_mask: NDArray[np.bool_]) -> CellMap:
    """Fold the devices with colour >= 0, starting from the given colours and looking at the given links only."""
    links = fabric.links
    kept = np.flatnonzero(link_mask & (colour[links.src] >= 0) & (colour[links.dst] >= 0))
    src, dst = links.src[kept], links.dst[kept]
    _, rate_index = np.unique(links.rate_Bps[kept], return_inverse=True)
    attribute = rate_index.ravel().astype(np.uint64) * np.uint64(256) + links.tier[kept]
    cell = _refine(colour, src, dst, attribute)
    num_cells = int(cell.max()) + 1 if len(cell) else 0
    pair = cell[src].astype(np.int64) * num_cells + cell[dst]
    pairs, which = np.unique(pair, return_inverse=True)
    rate = np.bincount(which, weights=links.rate_Bps[kept], minlength=len(pairs)).astype(np.float64)
    return CellMap(
        cell.astype(np.int32),
        np.bincount(cell[cell >= 0], minlength=num_cells),
        (pairs // max(1, num_cells)).astype(np.int32),
        (pairs % max(1, num_cells)).astype(np.int32),
        rate,
        np.bincount(which, minlength=len(pairs)),
    )


def _refine(
    colour: NDArray[np.int64], src: IntArray, dst: IntArray, attribute: NDArray[np.uint64]
) -> NDArray[np.int64]:
    inside = np.flatnonzero(colour >= 0)
    current = np.full(len(colour), -1, np.int64)
    _, current[inside] = np.unique(colour[inside], return_inverse=True)
    by_dst, by_src = np.argsort(dst, kind="stable"), np.argsort(src, kind="stable")
    count = 0
    while (num_colours := int(current.max()) + 1 if len(inside) else 0) != count:
        count = num_colours
        seen = _sums(current[src], attribute, dst, by_dst, len(colour), 1)
        seen += _sums(current[dst], attribute, src, by_src, len(colour), 2)
        mixed = _mix(current.astype(np.uint64), seen)
        _, current[inside] = np.unique(mixed[inside], return_inverse=True)
    return current


def _sums(
    neighbour: NDArray[np.int64],
    attribute: NDArray[np.uint64],
    at: IntArray,
    order: NDArray[np.int64],
    size: int,
    salt: int,
) -> NDArray[np.uint64]:
    """Sum a 64-bit hash of (neighbour's colour, link) over each device's links; equal sums mean equal multisets."""
    hashed = _mix(neighbour.astype(np.uint64), attribute * np.uint64(2) + np.uint64(salt))[order]
    total = np.zeros(size, np.uint64)
    if len(order):
        places = at[order]
        starts = np.flatnonzero(np.concatenate(([True], places[1:] != places[:-1])))
        total[places[starts]] = np.add.reduceat(hashed, starts)
    return total


def _mix(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        x = a * np.uint64(0x9E3779B97F4A7C15) ^ (b + np.uint64(0x632BE59BD9B4E019)) * np.uint64(0xD1B54A32D192ED03)
        x = (x ^ (x >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
        return x ^ (x >> np.uint64(29))  # type: ignore[no-any-return]
