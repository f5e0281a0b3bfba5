"""Cables straight from NIC to NIC: hosts joined without a switch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syncline.fabric.fabric import DeviceKind, Fabric, IntArray, LongArray, Tier

_Ids = IntArray | LongArray


class DirectCables:
    """The links between NICs of a fabric that are up, sorted by both ends; most fabrics have none."""

    def __init__(self, fabric: Fabric) -> None:
        links, is_nic = fabric.links, fabric.devices.kind == DeviceKind.NIC
        cables = np.flatnonzero(links.up & (links.tier >= Tier.ACCESS) & is_nic[links.src] & is_nic[links.dst])
        self.fabric = fabric
        self.links: LongArray = cables[np.lexsort((cables, links.dst[cables], links.src[cables]))]

    def __len__(self) -> int:
        return len(self.links)

    def between(self, nic_a: int, nic_b: int) -> LongArray:
        """Return all cables from one NIC to another."""
        first, count = self._rows(np.array([nic_a]), np.array([nic_b]))
        return self.links[first[0] : first[0] + count[0]]

    def pick(self, nic_a: LongArray, nic_b: LongArray, order: NDArray[np.uint64]) -> LongArray:
        """Return for each pair of NICs its (order mod count)-th cable, or -1."""
        if len(self) == 0:
            return np.full(len(nic_a), -1, np.int64)
        first, count = self._rows(nic_a, nic_b)
        place = first + (order % np.maximum(count, 1).astype(np.uint64)).astype(np.int64)
        return np.where(count > 0, self.links[np.minimum(place, len(self) - 1)], -1)

    def ends(self, nic_a: LongArray, nic_b: LongArray) -> tuple[LongArray, LongArray]:
        """Return the same NICs, or the ends of a cable between their hosts where one of the two has such a cable.

        A cable that joins the two comes first, then one that begins at `nic_a`, one that ends at `nic_b`, and any.
        """
        if len(self) == 0:
            return nic_a, nic_b
        links, host = self.fabric.links, self.fabric.devices.host
        src, dst = links.src[self.links], links.dst[self.links]
        chosen = np.full(len(nic_a), -1, np.int64)
        for ends, wanted in (
            ((src, dst), (nic_a, nic_b)),
            ((src, host[dst]), (nic_a, host[nic_b])),
            ((host[src], dst), (host[nic_a], nic_b)),
            ((host[src], host[dst]), (host[nic_a], host[nic_b])),
        ):
            chosen = np.where(chosen >= 0, chosen, self._first(ends, wanted))
        cabled = (chosen >= 0) & (np.isin(nic_a, src) | np.isin(nic_b, src))
        return np.where(cabled, links.src[chosen], nic_a), np.where(cabled, links.dst[chosen], nic_b)

    def _rows(self, nic_a: LongArray, nic_b: LongArray) -> tuple[LongArray, LongArray]:
        """Return where the cables of each pair begin in `links`, and how many they are."""
        links = self.fabric.links
        keys = self._key(links.src[self.links], links.dst[self.links])
        first = np.searchsorted(keys, self._key(nic_a, nic_b))
        return first, np.searchsorted(keys, self._key(nic_a, nic_b), "right") - first

    def _first(self, ends: tuple[_Ids, _Ids], wanted: tuple[_Ids, _Ids]) -> LongArray:
        """Return for each wanted pair the first cable with those ends (NICs or hosts), or -1."""
        keys, goal = self._key(*ends), self._key(*wanted)
        order = np.argsort(keys, kind="stable")
        slot = np.minimum(np.searchsorted(keys[order], goal), len(keys) - 1)
        return np.where(keys[order][slot] == goal, self.links[order][slot], -1)

    def _key(self, a: _Ids, b: _Ids) -> LongArray:
        return np.asarray(a, np.int64) * len(self.fabric.devices) + b
