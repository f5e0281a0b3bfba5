"""The order in which each pipeline stage works: GPipe, 1F1B, interleaved, zero-bubble.

An item is (phase, chunk, micro-batch); phases are F (forward), B (backward) and, with zero-bubble, W (weight gradient).
"""

from __future__ import annotations

from syncline.workload.parallel import Parallel

Item = tuple[str, int, int]


def stage_order(split: Parallel, stage: int, num_micro: int) -> list[Item]:
    """Return what one stage does, in order."""
    if split.schedule == "gpipe":
        return [("F", 0, i) for i in range(num_micro)] + [("B", 0, i) for i in reversed(range(num_micro))]
    if split.virtual > 1:
        return _interleaved(split.pp, split.virtual, stage, num_micro)
    order = _one_forward_one_backward(split.pp, stage, num_micro)
    return _zero_bubble(order, stage) if split.schedule == "zero-bubble" else order


def _one_forward_one_backward(pp: int, stage: int, num_micro: int) -> list[Item]:
    warm = min(pp - 1 - stage, num_micro)
    order: list[Item] = [("F", 0, i) for i in range(warm)]
    for i in range(num_micro - warm):
        order += [("F", 0, warm + i), ("B", 0, i)]
    return order + [("B", 0, i) for i in range(num_micro - warm, num_micro)]


def _zero_bubble(order: list[Item], stage: int) -> list[Item]:
    """Return 1F1B with weight gradients split off and put off, so that they fill what was the bubble (ZB-H1).

    A stage near the end keeps fewer micro-batches in flight, so it may put off as many more.
    """
    delayed = stage
    out: list[Item] = []
    pending: list[int] = []
    for item in order:
        out.append(item)
        if item[0] == "B":
            pending.append(item[2])
            if len(pending) > delayed:
                out.append(("W", 0, pending.pop(0)))
    return out + [("W", 0, i) for i in pending]


def _interleaved(pp: int, virtual: int, stage: int, num_micro: int) -> list[Item]:
    """Return the interleaved order: groups of pp micro-batches pass chunk after chunk."""
    groups = -(-num_micro // pp)
    total = groups * pp * virtual

    def forward(k: int) -> tuple[int, int]:
        return k % (pp * virtual) // pp, k // (pp * virtual) * pp + k % pp

    warm = min((pp - stage - 1) * 2 + (virtual - 1) * pp, total)
    order: list[Item] = [("F", *forward(k)) for k in range(warm)]
    for k in range(total - warm):
        order.append(("F", *forward(warm + k)))
        chunk, micro = forward(k)
        order.append(("B", virtual - 1 - chunk, micro))
    for k in range(total - warm, total):
        chunk, micro = forward(k)
        order.append(("B", virtual - 1 - chunk, micro))
    return [item for item in order if item[2] < num_micro]
