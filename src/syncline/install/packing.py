"""Packing: boxes into racks, hosts with the leaves they share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from syncline.install.body import Boxes
from syncline.install.room import FRAME_KG, Room

Stood = list[int]
"""The boxes of one rack, from the floor up: hosts by their number, then switches."""


@dataclass(frozen=True)
class Lot:
    """Racks of hosts around the network rack that serves them; `network` is empty where leaves stand with hosts."""

    racks: list[Stood]
    network: list[int]


class Packer:
    """Fills racks box by box; equal runs of boxes are packed once."""

    def __init__(self, every: Boxes, room: Room) -> None:
        self.every, self.room = every, room
        self.sizes = [(body.height_u, body.power_w, body.weight_kg) for body in every.bodies]
        self.known: dict[tuple[int, ...], list[int]] = {}

    def racks(self, run: Sequence[int]) -> list[Stood]:
        """Return boxes in racks, one after the other; a box too large for any has its own."""
        kinds = tuple(self.every.of_box[box] for box in run)
        if kinds not in self.known:
            self.known[kinds] = self._ends(kinds)
        ends = self.known[kinds]
        return [list(run[start:end]) for start, end in zip([0, *ends], ends, strict=False)]

    def _ends(self, kinds: tuple[int, ...]) -> list[int]:
        ends: list[int] = []
        height, power, weight = 0, 0.0, FRAME_KG
        for at, kind in enumerate(kinds):
            u, w, kg = self.sizes[kind]
            height, power, weight = height + u, power + w, weight + kg
            if at > (ends[-1] if ends else 0) and not self._fits(height, power, weight):
                ends.append(at)
                height, power, weight = u, w, FRAME_KG + kg
        return [*ends, len(kinds)] if kinds else []

    def _fits(self, height: int, power: float, weight: float) -> bool:
        room = self.room
        return height <= room.rack_u and power <= room.filled_power_w and weight <= room.rack_weight_kg

    def site(self, lots: list[Lot], upper: list[int]) -> list[Stood]:
        """Return a site's racks in order: spines and cores in the middle, in the network rack there if they fit."""
        if not lots:
            return self.racks(upper)
        middle = len(lots) // 2
        racks: list[Stood] = []
        for number, lot in enumerate(lots):
            network = self.racks(lot.network)
            if number == middle and lot.network and len(together := self.racks([*lot.network, *upper])) == 1:
                network = together
            elif number == middle and (lot.network or len(lots) % 2):
                network = network + self.racks(upper)
            elif number == middle:
                racks += self.racks(upper)
            half = len(lot.racks) // 2
            racks += lot.racks[:half] + network + lot.racks[half:]
        return racks

    def lots(self, blocks: Iterable[tuple[Sequence[int], list[int]]], sold: dict[int, str]) -> list[Lot]:
        """Return the racks of all blocks; those whose leaves need a network rack share it as far as it goes."""
        lots: list[Lot] = []
        for hosts, leaves in blocks:
            racks, left = ([list(hosts)], leaves) if hosts[0] in sold else self._block(hosts, leaves)
            last = lots[-1] if lots else Lot([], [])
            if (left or hosts[0] in sold) and last.network and len(self.racks([*last.network, *left])) == 1:
                lots[-1] = Lot(last.racks + racks, last.network + left)
            else:
                lots.append(Lot(racks, left))
        return lots

    def _block(self, hosts: Sequence[int], leaves: list[int]) -> tuple[list[Stood], list[int]]:
        """Return the racks of hosts that share leaves, leaves on those in the middle, and leaves that are left."""
        racks = self.racks(hosts)
        tops = sorted(range(len(racks)), key=lambda at: abs(at - (len(racks) - 1) / 2))
        added: dict[int, list[int]] = {}
        left = list(leaves)
        for at in tops:
            mine = [self.sizes[self.every.of_box[box]] for box in racks[at]]
            height, power, weight = (sum(size[part] for size in mine) for part in range(3))
            weight += FRAME_KG
            while left:
                u, w, kg = self.sizes[self.every.of_box[left[0]]]
                height, power, weight = height + u, power + w, weight + kg
                if not self._fits(int(height), power, weight):
                    break
                added.setdefault(at, []).append(left.pop(0))
        if left:
            return racks, leaves
        return [rack + added.get(at, []) for at, rack in enumerate(racks)], []
