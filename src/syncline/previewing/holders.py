"""What fills a GPU's memory when it is fullest, and which line of the script asked for it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from syncline.describe.model import reported
from syncline.previewing.record import Capture
from syncline.sim.step.memory import COMMUNICATOR_BYTES, CONTEXT_BYTES, USABLE

COMMUNICATORS = 4
"""Process groups of a usual script, with NCCL's buffers each."""
BESIDE_BYTES = CONTEXT_BYTES + COMMUNICATORS * COMMUNICATOR_BYTES
WORKSPACE_BYTES, OLD_WORKSPACE_BYTES = 32 << 20, 8 << 20
"""What torch keeps for cuBLAS from Hopper on, and before: for each thread that multiplies, and for sums with a bias."""
OLD = ("Volta", "Turing", "Ampere", "Ada")


@dataclass(frozen=True)
class Holder:
    """Allocations alive at the peak that belong together."""

    label: str  # parameters, gradients, optimizer state, buffers, activations
    size_bytes: int
    count: int
    module: str  # of the largest of them
    line: str


@dataclass(frozen=True)
class PeakMemory:
    """The fullest moment of a rank, in steps after the warm-up."""

    rank: int
    peak_bytes: int
    at_module: str
    at_line: str
    at_phase: str
    holders: tuple[Holder, ...]
    capacity_bytes: int
    over_line: str  # where it first does not fit; empty if it always does

    @reported
    def fits(self) -> bool:
        """Whether the peak and what the driver and libraries take fit."""
        return not self.over_line

    @reported
    def context_bytes(self) -> int:
        """What the driver and libraries take."""
        return int(BESIDE_BYTES)


def workspaces(captured: Capture, architecture: str) -> int:
    """Return what the allocator holds for cuBLAS: the script's thread and autograd's, and epilogues with a bias."""
    first, last = captured.steady[-1] if captured.steady else (0, 0)
    seen = {
        (captured.kernels[op.signature].name.split(".")[1], op.phase == "backward")
        for op in captured.ops[first:last]
        if op.kind == "kernel" and "mm" in captured.kernels[op.signature].name.partition(".")[2]
    }
    number = len({backward for _, backward in seen}) + any(name == "addmm" for name, _ in seen)
    return number * (OLD_WORKSPACE_BYTES if architecture in OLD else WORKSPACE_BYTES)


def peak_memory(captured: Capture, capacity_bytes: float, workspace_bytes: int = 0) -> PeakMemory:
    """Return the fullest moment of a captured rank, and who holds what then; 0 is a capacity that is not known."""
    room = USABLE * capacity_bytes - BESIDE_BYTES - workspace_bytes if capacity_bytes else math.inf
    used = peak = at = 0
    over = -1  # the first allocation that does not fit
    for number, (op, allocation, change) in enumerate(captured.memory):
        used += change
        if used > room and over < 0:
            over = allocation
        if used > peak and op >= captured.steady[0][0]:
            peak, at = used, number
    held: Counter[int] = Counter()
    for _, allocation, change in captured.memory[: at + 1] if peak else ():
        held[allocation] += change
    words = captured.words
    op, allocation, _ = captured.memory[at] if captured.memory else (0, 0, 0)
    made = captured.allocations[allocation] if captured.allocations else None
    phase = captured.ops[min(op, len(captured.ops) - 1)].phase if captured.ops else ""
    line = words[captured.allocations[over].line] or words[captured.allocations[over].module] if over >= 0 else ""
    return PeakMemory(
        rank=captured.rank,
        peak_bytes=peak + workspace_bytes,
        at_module=words[made.module] if made else "",
        at_line=words[made.line] if made else "",
        at_phase=phase,
        holders=_holders(captured, held, workspace_bytes),
        capacity_bytes=int(capacity_bytes),
        over_line=line or ("the start" if over >= 0 else ""),
    )


def _holders(captured: Capture, held: Mapping[int, int], workspace_bytes: int) -> tuple[Holder, ...]:
    parts: dict[str, dict[tuple[int, int], list[int]]] = {}
    for allocation, size in held.items():
        if size > 0:
            made = captured.allocations[allocation]
            label = made.label or "activations and temporaries"
            parts.setdefault(label, {}).setdefault((made.module, made.line), []).append(size)
    found = [Holder("cuBLAS workspaces", workspace_bytes, 1, "", "")] if workspace_bytes else []
    for label, places in parts.items():
        module, line = max(places, key=lambda place: sum(places[place]))
        sizes = [size for each in places.values() for size in each]
        found.append(Holder(label, sum(sizes), len(sizes), captured.words[module], captured.words[line]))
    return tuple(sorted(found, key=lambda each: -each.size_bytes))
