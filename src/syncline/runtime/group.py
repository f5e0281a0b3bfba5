"""A torch.distributed group as programs use it: messages between pairs, one agreed start, small numbers exchanged.

with Group.join(detect(os.environ), backend="gloo") as group: ...
group = Group()                                       # the default group of a job that is already running
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch._C._distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from syncline.errors import ExecutionError
from syncline.runtime.launch import Launch

Floats = NDArray[np.float64]
Meeting = Store
"""The key-value store in which ranks meet."""
MEET_S = 120.0
"""How long ranks wait for each other when they start."""
TAGGED = ("gloo", "mpi")
"""Backends that match messages of a pair by tag; the others match them by order alone."""


class Group:
    """This process's seat in a group of processes. Closing it leaves a group it did not make alone."""

    def __init__(self, group: dist.ProcessGroup | None = None, *, device: torch.device | str | None = None) -> None:
        if not dist.is_initialized():
            raise ExecutionError(
                "torch.distributed has no process group.",
                hint="Call torch.distributed.init_process_group first, or use Group.join.",
            )
        found: Any = group if group is not None else dist.group.WORLD
        self._handle: dist.ProcessGroup | None = found
        self.rank = dist.get_rank(self.handle)
        self.size = dist.get_world_size(self.handle)
        self.backend = str(dist.get_backend(self.handle))
        self.device = torch.device(device) if device is not None else _default_device(self.backend)
        self._made = False
        self._same_clock: bool | None = None

    @classmethod
    def join(cls, launch: Launch, *, backend: str = "gloo", store: Meeting | None = None) -> Group:
        """Return the group of all ranks that were launched together, made now; `store` is where they met already."""
        if backend == "nccl":
            torch.cuda.set_device(launch.local_rank)
        met = meet(launch, MEET_S) if store is None else store
        try:
            dist.init_process_group(
                backend, store=met, rank=launch.rank, world_size=launch.num_ranks, timeout=timedelta(seconds=MEET_S)
            )
        except RuntimeError as error:
            raise _not_met(launch, f"have met and do not connect with {backend}", error) from None
        group = cls()
        group._made = True
        return group

    @staticmethod
    def usual_backend() -> str:
        """Return the backend this machine's ranks would use: nccl where there are GPUs, else gloo."""
        return "nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"

    @property
    def handle(self) -> dist.ProcessGroup:
        """The group as torch knows it."""
        if self._handle is None:
            raise ExecutionError("this group was closed.", hint="Make a new one with Group.join.")
        return self._handle

    def close(self) -> None:
        """Leave the group, if this object made it.

        Letting go of torch's object joins its threads. One that still drops a tensor while the interpreter ends would
        abort the process.
        """
        if self._made:
            self._made = False
            self._handle = None
            if dist.is_initialized():
                dist.destroy_process_group()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def tagged(self) -> bool:
        """Whether a tag distinguishes the messages of one pair."""
        return self.backend in TAGGED

    # Small numbers, in every rank's hands

    def numbers(self, values: Sequence[float] | Floats) -> Floats:
        """Return everyone's numbers, one row a rank; every rank gives as many."""
        mine = torch.as_tensor(np.asarray(values, dtype=np.float64), device=self.device)
        rows = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(rows, mine, group=self.handle)
        table: Floats = torch.stack(rows).cpu().numpy()
        return table

    def texts(self, text: str, width: int = 64) -> list[str]:
        """Return everyone's text, cut to `width` bytes; numbers carry it, so that nothing is unpickled."""
        data = text.encode()[:width].ljust(width, b"\0")
        return [bytes(row.astype(np.uint8)).rstrip(b"\0").decode(errors="replace") for row in self.numbers(list(data))]

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.numbers([0.0])

    def global_rank(self, rank: int) -> int:
        """Return the rank in the whole job of a rank of this group."""
        return dist.get_global_rank(self.handle, rank)

    # One start

    @property
    def same_clock(self) -> bool:
        """Whether all ranks read the same CLOCK_MONOTONIC: one kernel, one boot, one time namespace."""
        if self._same_clock is None:
            table = self.numbers(_clock_id())
            self._same_clock = bool((table == table[0]).all() and table[0, 0] >= 0)
        return self._same_clock

    def agree_start_s(self, lead_s: float = 0.02) -> float:
        """Return the moment, on this rank's monotonic clock, at which all ranks start.

        Ranks that share a clock start `lead_s` after the last of them came here: whoever is still busy with what was
        before holds up everybody, and its leftovers are not taken for the new measurement. Others leave a barrier
        together, as well as they can, and start at once.
        """
        came = self.numbers([time.monotonic()])
        return float(came.max()) + lead_s if self.same_clock else time.monotonic()

    def store(self) -> Any | None:
        """Return the key-value store the job met in, if it can still be had: it answers when the fabric does not."""
        from torch.distributed import distributed_c10d

        try:
            return distributed_c10d._get_default_store()
        except (AttributeError, ValueError, RuntimeError):
            return None


def meet(launch: Launch, timeout_s: float = MEET_S) -> Meeting:
    """Return the key-value store of all ranks that were launched together; no group is made and no collective begun."""
    try:
        store, _, _ = next(
            rendezvous(
                launch.init_method, launch.rank, launch.num_ranks, timeout=timedelta(seconds=timeout_s)
            )
        )  # fmt: skip
    except RuntimeError as error:
        raise _not_met(launch, f"did not meet within {timeout_s:.0f} s", error) from None
    store.set_timeout(timedelta(seconds=timeout_s))
    met: Meeting = store
    return met


def _not_met(launch: Launch, what: str, error: RuntimeError) -> ExecutionError:
    reason = str(error).strip().partition("\n")[0]
    return ExecutionError(
        f"the {launch.num_ranks} ranks {what}: {reason:.200}",
        where=f"{launch.master}:{launch.port}",
        hint="Were all started? Do their hosts reach that address, and each other on the interface that is used?",
    )


def _default_device(backend: str) -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else torch.device("cpu")


def _clock_id() -> list[float]:
    """Return numbers that two processes have in common when their monotonic clocks are one; -1 where unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
        offsets = Path("/proc/self/timens_offsets")
        text = offsets.read_text() if offsets.exists() else ""
    except OSError:
        return [-1.0] * 5
    shift = float(zlib.crc32(text.encode())) if text and _shifted(text) else 0.0
    return [*(float(int(boot[i : i + 8], 16)) for i in range(0, 32, 8)), shift]


def _shifted(offsets: str) -> bool:
    """Whether a time namespace moves any clock."""
    return any(int(word) for line in offsets.splitlines() for word in line.split()[1:])
