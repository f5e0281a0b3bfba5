"""The programs that tests run on real processes, and what a rank does with them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.codec.codec import RAW, Codec
from syncline.fabric import ClusterSpec, build
from syncline.program import Program, lower, packed, vendor
from syncline.schedule import FAMILIES, Collective, Kind, verify
from syncline.schedule import build as family
from syncline.schedule.collective import PAIRED
from syncline.schedule.schedule import pipelined
from syncline.timeline import SpanKind

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "executor.md"
NUM_PROCESSES = 8
SIZES = (2, 3, 5, 8)
SMALL_TOO = ("ring", "tree", "halving-doubling", "direct", "bruck", "parameter-server")
"""Families whose rounds differ between odd, even and prime numbers of ranks; the others are run on eight."""
FABRIC = build(ClusterSpec.model_validate({"hosts": 4, "host": "2 x H100", "network": "leaf-spine NDR"}))


@dataclass(frozen=True)
class Case:
    """One program, by what makes it, with the buffer it runs on."""

    name: str
    kind: Kind
    ranks: int
    size: int = 61
    dtype: str = "float32"
    options: tuple[tuple[str, Any], ...] = ()
    codec: str = RAW.name
    lockstep: bool = False
    spare: int = 0
    pieces: int = 1

    def __str__(self) -> str:
        extra = "-".join(str(value) for _, value in self.options)
        parts = [
            self.name,
            str(self.kind),
            str(self.ranks),
            str(self.size),
            extra,
            self.codec if self.codec != RAW.name else "",
        ]
        return "-".join(
            part
            for part in (
                *parts,
                f"{self.pieces}-pieces" if self.pieces > 1 else "",
                "lockstep" if self.lockstep else "",
                "spare" * self.spare,
                self.dtype,
            )
            if part
        )

    def program(self) -> Program:
        """Return the program, proved and placed."""
        if self.name == "vendor":
            options = dict(self.options)
            return vendor(Collective(self.kind, self.ranks, **options), packed(FABRIC, self.ranks), "gloo")
        schedule = pipelined(family(self.name, self.ranks, kind=self.kind, **dict(self.options)), self.pieces)
        return lower(verify(schedule), packed(FABRIC, self.ranks), Codec(self.codec))

    def buffer(self, rank: int) -> NDArray[Any]:
        """Return what a rank starts with."""
        rng = np.random.default_rng([rank, self.ranks, self.size])
        width = self.size * self.ranks if self.kind in PAIRED else self.size
        values = rng.standard_normal(width) * 10
        return values.astype(self.dtype)


def _options(name: str, kind: Kind, ranks: int) -> list[dict[str, Any]]:
    if kind is Kind.SEND_RECV:
        return [{"root": ranks - 1, "peer": 0}]
    if kind is Kind.ALL_TO_ALLV:
        rng = np.random.default_rng(ranks)
        return [{"sizes": tuple(int(v) for v in rng.integers(0, 5, ranks * ranks))}]
    if name == "hierarchical":
        return [{"shape": (ranks // 2, 2)}] if ranks % 2 == 0 and ranks > 2 else []
    if name == "torus":
        return [{"shape": (2, 2, 2)}] if ranks == 8 else [{"shape": (ranks,)}]
    if name == "dragonfly":
        return [{"shape": (4, 2)}] if ranks == 8 else []
    if name == "balanced":
        return [{"speeds_Bps": tuple(float(1 + r % 3) for r in range(ranks))}]
    if name == "parameter-server":
        return [{"servers": 1}, {"servers": 2, "colocated": True}]
    if kind in (Kind.BROADCAST, Kind.REDUCE, Kind.SCATTER, Kind.GATHER):
        return [{"root": ranks - 1}]
    return [{}, {"channels": 2}] if name in ("ring", "direct", "halving-doubling") else [{}]


def every_family() -> list[Case]:
    """Return every collective of every family at several sizes of group."""
    return [
        Case(name, kind, ranks, options=tuple(options.items()), size=60 if kind in PAIRED else 61)
        for name, known in FAMILIES.items()
        for kind in known.kinds
        for ranks in (SIZES if name in SMALL_TOO else SIZES[-1:])
        for options in _options(name, kind, ranks)
    ]


def others() -> list[Case]:
    """Return what families alone do not show: other types, tiny buffers, lockstep, the backend's own collectives."""
    found = [Case("ring", Kind.ALL_REDUCE, 8, dtype=dtype, size=1000) for dtype in ("int64", "float64", "int32")]
    found += [
        Case("parameter-server", Kind.ALL_REDUCE, 7, options=(("servers", 1),), spare=1)
    ]  # on a process of its own
    found += [Case(name, Kind.ALL_REDUCE, 8, size=size) for name in ("ring", "halving-doubling") for size in (1, 3)]
    found += [
        Case("hierarchical", kind, 8, size=1000, options=(("shape", (2, 4)),), pieces=8)
        for kind in (Kind.ALL_REDUCE, Kind.BROADCAST, Kind.REDUCE_SCATTER)
    ]
    for name in ("ring", "direct", "hierarchical", "parameter-server", "in-network", "tree"):
        for options in _options(name, Kind.ALL_REDUCE, 8):
            if Kind.ALL_REDUCE in FAMILIES[name].kinds:
                found.append(Case(name, Kind.ALL_REDUCE, 8, options=tuple(options.items()), lockstep=True))
    return found


def vendors() -> list[Case]:
    """Return every collective as the backend's own step, at even and uneven sizes."""
    found = []
    for kind in Kind:
        options: dict[str, Any] = {}
        if kind is Kind.SEND_RECV:
            options = {"root": 1, "peer": 3}
        if kind is Kind.ALL_TO_ALLV:
            options = _options("direct", kind, 8)[0]
        more = tuple(options.items())
        found += [Case("vendor", kind, 8, size=size, dtype="int64", options=more) for size in (64, 61)]
    return found


CODECS = ("int8", "bf16", "int4")


def coded() -> list[Case]:
    """Return programs whose bytes travel in a codec."""
    return [
        Case(name, Kind.ALL_REDUCE, 8, size=1000, codec=codec,
             options=(("shape", (4, 2)),) if name == "hierarchical" else ())
        for codec in CODECS
        for name in ("ring", "halving-doubling", "recursive-doubling", "tree", "hierarchical", "parameter-server")
    ]  # fmt: skip


CASES = [*every_family(), *others(), *vendors(), *coded()]


def two_steps(own: bool) -> Program:
    """Return an all-reduce in two steps: a ring's reduce-scatter, then the ring's or the backend's all-gather."""
    scatter = Case("ring", Kind.REDUCE_SCATTER, NUM_PROCESSES).program()
    return scatter.then(Case("ring" if own else "vendor", Kind.ALL_GATHER, NUM_PROCESSES).program())


def repeats(executor: Any, case: Case, rank: int) -> dict[str, Any]:
    """Run one program several times on one buffer; return everyone's timeline and what was allocated meanwhile."""
    import torch

    program, buffer = case.program(), torch.from_numpy(case.buffer(rank))
    start = buffer.clone()
    bound = executor.bind(program, buffer)
    wires = [message.wire.data_ptr() for lane in bound.steps[0].player.lanes for message in lane.messages]
    for _ in range(3):
        buffer.copy_(start)
        timeline = executor.run(program, buffer)
    again = executor.bind(program, buffer)
    return {
        "same": again is bound,
        "wires": wires == [m.wire.data_ptr() for lane in again.steps[0].player.lanes for m in lane.messages],
        "mine": timeline,
        "everyone": executor.gather(timeline),
        "sum": buffer.numpy().copy(),
    }


def guide() -> tuple[float, float]:
    """Run what the guide shows; return its first and last element."""
    (block,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    return float(names["buffer"][0]), float(names["buffer"][-1])


def do_all(rank: int, port: int) -> dict[str, Any]:
    """Run every case this rank belongs to; return its buffer and the shape of its timeline."""
    import torch
    import torch.distributed as dist

    from syncline.errors import ExecutionError
    from syncline.runtime.execute.executor import Executor
    from syncline.runtime.group import Group
    from syncline.runtime.launch import Launch

    found: dict[str, Any] = {}
    single = Case("ring", Kind.ALL_REDUCE, NUM_PROCESSES, size=4096)
    with Group.join(Launch("test", rank, NUM_PROCESSES, rank, "127.0.0.1", port)) as world:
        groups = {size: dist.new_group(list(range(size))) for size in SIZES}
        for case in CASES:
            if rank >= case.ranks + case.spare:
                continue
            buffer = torch.from_numpy(case.buffer(rank))
            with Executor(
                Group(groups[case.ranks + case.spare]), lockstep=case.lockstep or None, lead_s=0.0
            ) as executor:
                try:
                    timeline = executor.run(case.program(), buffer)
                except ExecutionError as error:
                    if "ProcessGroupGloo does not support" not in str(error):
                        raise
                    found[str(case)] = (None, 0)  # that of torch before 2.6 has no reduce_scatter
                    continue
            sent = timeline.spans.size_bytes[timeline.spans.kind == SpanKind.SEND].sum()
            found[str(case)] = (buffer.numpy().copy(), int(sent))
        with Executor(world) as executor:
            for own in (True, False):
                buffer = torch.from_numpy(single.buffer(rank))
                kinds = executor.run(two_steps(own), buffer).spans.kind.tolist()
                found[f"two steps, own {own}"] = (buffer.numpy().copy(), int(SpanKind.COLLECTIVE) in kinds)
            found["repeats"] = repeats(executor, single, rank)
        found["guide"] = guide()
        world.barrier()
    return found


def closed(rank: int, port: int) -> tuple[int, int, str]:
    """Close a group that has run a vendor step; return how many threads it had, how many are left, and its error."""
    import os

    import torch

    from syncline.errors import SynclineError
    from syncline.runtime.execute.executor import Executor
    from syncline.runtime.group import Group
    from syncline.runtime.launch import Launch

    before = len(os.listdir("/proc/self/task"))
    case = Case("vendor", Kind.ALL_REDUCE, 2)
    with Group.join(Launch("test", rank, 2, rank, "127.0.0.1", port)) as group, Executor(group) as executor:
        bound = executor.bind(case.program(), torch.from_numpy(case.buffer(rank)))
        bound.run(0.0)
        during = len(os.listdir("/proc/self/task"))
        group.barrier()
    after = len(os.listdir("/proc/self/task"))
    try:
        bound.run(0.0)
    except SynclineError as error:
        return during - before, after - before, str(error)
    return during - before, after - before, "nothing was raised"


def stalled(rank: int, port: int) -> tuple[str, str]:
    """Run a ring in which the last rank never takes part; return the errors of the others."""
    import time

    import torch
    import torch.distributed as dist

    from syncline.errors import SynclineError
    from syncline.runtime.execute.executor import Executor
    from syncline.runtime.group import Group
    from syncline.runtime.launch import Launch

    case = Case("ring", Kind.ALL_REDUCE, 4)
    group = Group.join(Launch("test", rank, 4, rank, "127.0.0.1", port))
    store: Any = dist.distributed_c10d._get_default_store()
    executor = Executor(group)
    buffer = torch.from_numpy(case.buffer(rank))
    executor.run(case.program(), buffer)  # connects, in its own time
    group.barrier()
    executor.deadline_s = 1.0
    if rank == 3:
        store.wait([f"done {other}" for other in range(3)])
        store.set("done 3", "")
        return "", ""
    try:
        executor.bind(case.program(), buffer).run(time.monotonic())
    except SynclineError as error:
        try:
            executor.bind(case.program(), buffer).run(time.monotonic())
        except SynclineError as second:
            return str(error), str(second)
    finally:
        store.set(f"done {rank}", "")
        if rank == 0:  # the store lives here
            store.wait(["done 3"])
    return "nothing was raised", ""
