"""Whether another rank does what the one that stands for it does."""

from __future__ import annotations

from collections import Counter

from syncline.previewing.place import stages
from syncline.previewing.record import Capture


def differences(captures: tuple[Capture, ...], other: Capture) -> list[str]:
    """Return in words what a rank does otherwise than the captured one that stands for it; empty if nothing."""
    places = stages(captures)
    number = next((i for i, members in enumerate(places) if other.rank in members), 0)
    mine = captures[number]
    found = []
    for what, (a, b) in {
        "kernels": (_kernels(mine), _kernels(other)),
        "collectives": (_moved(mine), _moved(other)),
    }.items():
        if a != b:
            extra, missing = sum((b - a).values()), sum((a - b).values())
            found.append(f"rank {other.rank} has {extra} {what} that rank {mine.rank} has not, and lacks {missing}")
    return found


def _kernels(capture: Capture) -> Counter[str]:
    first, last = capture.steady[-1]
    ops = [capture.kernels[op.signature] for op in capture.ops[first:last] if op.kind == "kernel"]
    return Counter(f"{kernel.name} {kernel.ins} {kernel.outs}" for kernel in ops)


def _moved(capture: Capture) -> Counter[str]:
    first, last = capture.steady[-1]
    rows = [op.extra for op in capture.ops[first:last] if op.kind in ("collective", "send", "recv")]
    return Counter(f"{row[0]} {len(capture.groups[row[1]])} {row[2]}" for row in rows if isinstance(row, list))
