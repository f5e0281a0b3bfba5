"""One rank as a profiler recorded it: what ran on its device, what its host did, and which step that was.

Times are seconds since the first event. Columns are in order of start.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from syncline.timeline.columns import Floats, Ints

Bools = npt.NDArray[np.bool_]


class Doing(IntEnum):
    """What a device does."""

    COMPUTE = 0
    COPY = 1
    COLLECTIVE = 2


class Calling(IntEnum):
    """What a host does."""

    OPERATOR = 0
    LAUNCH = 1
    BLOCK = 2
    INPUT = 3
    PYTHON = 4


@dataclass(frozen=True, eq=False)
class DeviceActivities:
    """Rows of what ran on the device; `call` is the host's call that launched it and `collective` what it is, or -1."""

    name: Ints
    doing: Ints
    start_s: Floats
    end_s: Floats
    stream: Ints
    call: Ints
    collective: Ints

    def __len__(self) -> int:
        return len(self.start_s)

    def take(self, rows: Ints | Bools) -> DeviceActivities:
        """Return some rows."""
        return DeviceActivities(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})


@dataclass(frozen=True, eq=False)
class HostCalls:
    """Rows of what host threads did; calls may be inside each other."""

    name: Ints
    calling: Ints
    start_s: Floats
    end_s: Floats
    thread: Ints

    def __len__(self) -> int:
        return len(self.start_s)

    def take(self, rows: Ints | Bools) -> HostCalls:
        """Return some rows."""
        return HostCalls(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})

    @classmethod
    def none(cls) -> HostCalls:
        """Return no calls."""
        whole, real = np.empty(0, np.int64), np.empty(0)
        return cls(whole, whole, real, real, whole)


@dataclass(frozen=True)
class CollectiveCall:
    """One collective of a rank: `ranks` is the size of its group, `group` its name; 0 and "" where nothing says so."""

    operation: str
    group: str = ""
    ranks: int = 0
    size_bytes: float = 0.0
    algorithm: str = ""
    members: tuple[int, ...] = ()
    receives: bool = False
    """Of a message between two ranks, whether this one receives it."""


@dataclass(frozen=True)
class StepMark:
    """One step as the host marked it."""

    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True, eq=False)
class Recording:
    """Everything recorded of one rank."""

    rank: int
    world: int
    where: str
    tool: str
    device_name: str
    names: tuple[str, ...]
    device: DeviceActivities
    host: HostCalls
    collectives: tuple[CollectiveCall, ...] = ()
    steps: tuple[StepMark, ...] = ()
    lacks: tuple[str, ...] = field(default=())
    """What the trace does not say, each with what would record it."""

    @property
    def start_s(self) -> float:
        """The first moment that anything was recorded of."""
        starts = [column.start_s[:1] for column in (self.device, self.host) if len(column)]
        return float(np.concatenate(starts).min()) if starts else 0.0

    @property
    def end_s(self) -> float:
        """The last moment."""
        ends = [float(column.end_s.max()) for column in (self.device, self.host) if len(column)]
        return max(ends, default=0.0)

    def with_rank(self, rank: int) -> Recording:
        """Return the recording as that of another rank."""
        return replace(self, rank=rank)

    def name_of(self, row: int) -> str:
        """Return the name of a device activity."""
        return self.names[int(self.device.name[row])]
