"""Which algorithms a command line asks for: all of them, one by name, a file, or parameter servers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from syncline.errors import UsageError
from syncline.program import Placement
from syncline.schedule import Kind, Proved, build, verify
from syncline.schedule.formats.files import is_file, read
from syncline.sim.flow.routing import FlowNetwork
from syncline.sim.sweep import Contest, contest_of

SERVER = "parameter-server"


@dataclass(frozen=True)
class AlgorithmChoice:
    """The algorithm asked for, and into how many chunks it cuts the buffer (0: as suits the size)."""

    algorithm: str = "auto"
    chunks: int = 0
    servers: int = 0
    colocated: bool = False

    def check(self) -> None:
        """Refuse options that cannot be meant."""
        if self.chunks < 0:
            raise UsageError(f"`chunks` must be 1 or more, got {self.chunks}.", hint="Leave it out to have it chosen.")
        if self.servers < 0:
            raise UsageError(f"`servers` must be 1 or more, got {self.servers}.")
        if (self.servers or self.colocated) and self.algorithm != SERVER:
            raise UsageError(
                "`servers` and `colocated` shape a parameter server.", hint=f"Set `algorithm` to {SERVER}."
            )
        if self.chunks and self.algorithm == "nccl":
            raise UsageError("`chunks` does not apply to nccl, which cuts as it likes.", hint="Name a family.")

    def contest(self, kind: Kind, placed: Placement, network: FlowNetwork) -> Contest:
        """Return the algorithms, proved and routed, ready to be priced."""
        if self.algorithm == SERVER:
            name, found, placed = self._servers(kind, placed)
            return Contest.of({name: found}, placed, network, chunks=self.chunks)
        if is_file(self.algorithm):
            own = {Path(self.algorithm).name: self._file(kind, placed)}
            return Contest.of(own, placed, network, chunks=self.chunks or 1)
        return contest_of(
            "auto" if self.algorithm == "best" else self.algorithm, kind, placed, network, chunks=self.chunks
        )

    def _servers(self, kind: Kind, placed: Placement) -> tuple[str, Proved, Placement]:
        """Return name, schedule and placement: servers on GPUs that no rank uses, or with ranks where none is left."""
        count = self.servers or 1
        spare = [] if self.colocated else _spare(placed)
        colocated = len(spare) < count
        if colocated and spare:
            raise UsageError(
                f"{count} parameter servers need a GPU each; {placed.num_ranks:,} ranks leave {len(spare)}.",
                hint="Give fewer `ranks` or `servers`, or `colocated`: servers on the GPUs of ranks.",
            )
        found = verify(build(SERVER, placed.num_ranks, kind=kind, servers=count, colocated=colocated))
        if colocated:
            return f"{SERVER}, {count} on ranks' GPUs", found, placed
        return (
            f"{SERVER}, {count} on spare GPUs",
            found,
            replace(placed, helpers=np.array(spare[:count], dtype=np.int32)),
        )

    def _file(self, kind: Kind, placed: Placement) -> Proved:
        schedule = read(Path(self.algorithm))
        goal = schedule.collective
        if goal.kind is not kind:
            raise UsageError(f"{self.algorithm} does {goal.kind}, not {kind}.",
                             hint=f"Simulate {goal.kind.value.replace('_', '')}, or give another file.")  # fmt: skip
        if goal.num_ranks != placed.num_ranks:
            raise UsageError(f"{self.algorithm} is for {goal.num_ranks:,} ranks, and {placed.num_ranks:,} are placed.",
                             hint=f"Set `ranks` to {goal.num_ranks}.")  # fmt: skip
        return verify(schedule)


def _spare(placed: Placement) -> list[int]:
    """Return the GPUs that no rank uses, the first of every host before the second of any."""
    used = set(placed.device.tolist())
    free = [gpu for gpu in placed.fabric.gpus.tolist() if gpu not in used]
    seen: dict[int, int] = {}
    turn = []
    for gpu in free:
        host = int(placed.fabric.devices.host[gpu])
        turn.append((seen.setdefault(host, 0), gpu))
        seen[host] += 1
    return [gpu for _, gpu in sorted(turn)]
