"""One run of nccl-tests or rccl-tests: which collective, on what, and its lines."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from syncline.bench.measured import PROGRAM, Measurement
from syncline.schedule.collective import Kind

_KIND = {name: kind for kind, name in PROGRAM.items()}
_PROGRAM = re.compile(r"(?<![a-z])(?:" + "|".join(sorted(_KIND, key=len, reverse=True)) + r")(?![a-z])")


@dataclass(frozen=True)
class Device:
    """One rank as the log names it."""

    rank: int
    host: str
    device: int
    name: str


@dataclass(frozen=True)
class NcclTestRun:
    """One run: which collective, on what, and its lines. `library` is nccl or rccl."""

    kind: Kind
    num_ranks: int
    rows: tuple[Measurement, ...]
    devices: tuple[Device, ...] = ()
    version: str = ""
    library: str = "nccl"
    notes: tuple[str, ...] = field(default=())

    @property
    def num_hosts(self) -> int:
        """Count the hosts that the devices name; 0 where the log has none."""
        return len({device.host for device in self.devices if device.host})


def program_in(text: str) -> Kind | None:
    """Return the collective whose program a text names first: `./build/all_reduce_perf_mpi -b 8`."""
    named = _PROGRAM.search(text)
    return _KIND[named.group(0)] if named else None


def is_amd(devices: Iterable[Device]) -> bool:
    """Say whether the ranks are AMD's."""
    return any("AMD" in device.name or "Instinct" in device.name for device in devices)
