"""Placement: which device each rank runs on, and through it which NIC it uses.

packed(fabric, 64)        ranks fill one host after the other
spread(fabric, 64)        ranks go round the hosts, one at a time
rail_aware(fabric, 64)    packed, every second host backwards, so that neighbours in different hosts share a rail
grid(fabric)              the coordinates of a torus of chips
place("auto", fabric)     grid where there is one and all of it is used, else packed
given(fabric, ["host-03/gpu-1", ...])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from syncline.errors import ProgramError
from syncline.fabric import Fabric
from syncline.fabric.fabric import DeviceKind
from syncline.fabric.topology.torus import Torus

Devices = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Placement:
    """The device of each rank. A device may run several ranks; `helpers` are the devices of helpers without a home."""

    fabric: Fabric
    device: Devices
    name: str = "given"
    helpers: Devices = field(default_factory=lambda: np.empty(0, dtype=np.int32))

    def __post_init__(self) -> None:
        for column in ("device", "helpers"):
            values = np.ascontiguousarray(getattr(self, column), dtype=np.int32)
            bad = np.flatnonzero((values < 0) | (values >= len(self.fabric.devices)))
            if len(bad):
                raise ProgramError(
                    f"rank {bad[0]} is placed on device {values[bad[0]]}; {self.fabric.name} has "
                    f"{len(self.fabric.devices)} devices."
                )
            values.flags.writeable = False
            object.__setattr__(self, column, values)
        kinds = self.fabric.devices.kind[self.device]
        wrong = np.flatnonzero(kinds != DeviceKind.GPU)
        if len(wrong):
            raise ProgramError(
                f"rank {wrong[0]} is placed on {self.fabric.device_name(int(self.device[wrong[0]]))}, "
                "which is not a GPU.",
                hint="Ranks run on GPUs; servers and reducing switches are helpers.",
            )

    @property
    def num_ranks(self) -> int:
        return len(self.device)

    @property
    def host(self) -> NDArray[np.int32]:
        """The host of each rank."""
        return self.fabric.devices.host[self.device]


def packed(fabric: Fabric, num_ranks: int | None = None) -> Placement:
    """Return ranks that fill one host after the other, in the order of the fabric (so one rack after the other)."""
    return Placement(fabric, fabric.gpus[: _count(fabric, num_ranks)], "packed")


def spread(fabric: Fabric, num_ranks: int | None = None) -> Placement:
    """Return ranks that go round the hosts: first GPU 0 of every host, then GPU 1, and so on."""
    order = np.lexsort((fabric.gpu_host, fabric.devices.local[fabric.gpus]))
    return Placement(fabric, fabric.gpus[order][: _count(fabric, num_ranks)], "spread")


def rail_aware(fabric: Fabric, num_ranks: int | None = None) -> Placement:
    """Return packed ranks with every second host backwards: a ring then leaves and enters hosts on the same rail."""
    local = fabric.devices.local[fabric.gpus].astype(np.int64)
    backwards = fabric.gpu_host % 2 == 1
    order = np.lexsort((np.where(backwards, -local, local), fabric.gpu_host))
    return Placement(fabric, fabric.gpus[order][: _count(fabric, num_ranks)], "rail-aware")


def grid(fabric: Fabric, num_ranks: int | None = None) -> Placement:
    """Return ranks in the order of a torus's coordinates, which its schedules mean."""
    network, placed = fabric.spec.network, np.empty_like(fabric.gpus)
    if not (isinstance(network, Torus) and network.of == "chips"):
        raise ProgramError(f"{fabric.name} is not a torus of chips, so ranks have no place in a grid.")
    placed[network.places()] = fabric.gpus
    return Placement(fabric, placed[: _count(fabric, num_ranks)], "grid")


def auto(fabric: Fabric, num_ranks: int | None = None) -> Placement:
    """Return the grid where the whole of a torus of chips is used, else packed ranks."""
    network = fabric.spec.network
    whole = _count(fabric, num_ranks) == fabric.num_gpus
    has_grid = isinstance(network, Torus) and network.of == "chips"
    return grid(fabric, num_ranks) if whole and has_grid else packed(fabric, num_ranks)


def given(fabric: Fabric, devices: Sequence[int] | Sequence[str]) -> Placement:
    """Return ranks on these devices, by number or by name."""
    ids = [fabric.device(device) if isinstance(device, str) else int(device) for device in devices]
    return Placement(fabric, np.asarray(ids, dtype=np.int32), "given")


PLACEMENTS: dict[str, Callable[[Fabric, int | None], Placement]] = {
    "packed": packed,
    "spread": spread,
    "rail-aware": rail_aware,
    "grid": grid,
    "auto": auto,
}


def place(name: str, fabric: Fabric, num_ranks: int | None = None) -> Placement:
    """Return the placement of that name."""
    if name not in PLACEMENTS:
        raise ProgramError(f'no placement is called "{name}".', hint=f"One of: {', '.join(PLACEMENTS)}.")
    return PLACEMENTS[name](fabric, num_ranks)


def _count(fabric: Fabric, num_ranks: int | None) -> int:
    if num_ranks is None:
        return fabric.num_gpus
    if not 1 <= num_ranks <= fabric.num_gpus:
        raise ProgramError(f"{num_ranks:,} ranks do not fit on {fabric.name}: it has {fabric.num_gpus:,} GPUs.",
                           hint="Use fewer ranks, or give several to a GPU by name.")  # fmt: skip
    return num_ranks
