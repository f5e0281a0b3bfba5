"""Where the groups of a captured rank lie: all groups that do the same at the same time, and the stage they are in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from syncline.previewing.record import Capture

Longs = npt.NDArray[np.int64]


def family(ranks: tuple[int, ...], world: int) -> Longs:
    """Return all groups that lie in the world as this one does, one a row.

    Ranks at a constant stride are one line of a grid; the others are its parallels. Other shapes stand alone.

    >>> family((0, 4), 8).tolist()
    [[0, 4], [1, 5], [2, 6], [3, 7]]
    """
    members = np.array(sorted(ranks), dtype=np.int64)
    steps = np.diff(members)
    if len(members) < 2 or (steps != steps[0]).any():
        return members[None, :]
    stride, block = int(steps[0]), int(steps[0]) * len(members)
    if world % block or members[0] % block >= stride:
        return members[None, :]
    starts = (np.arange(0, world, block)[:, None] + np.arange(stride)[None, :]).ravel()
    return np.asarray(starts[:, None] + stride * np.arange(len(members))[None, :])


def stages(captures: tuple[Capture, ...]) -> list[Longs]:
    """Return, for each captured rank, the ranks that it stands for.

    Ranks that pass activations to each other are stages; a line of them has parallels, and the ranks at the same place
    of their lines do the same.
    """
    world = captures[0].world
    if len(captures) == 1:
        return [np.arange(world, dtype=np.int64)]
    lines = family(tuple(sorted(c.rank for c in captures)), world)
    if lines.size != world:
        return [np.array([c.rank], dtype=np.int64) for c in captures]
    order = np.argsort([c.rank for c in captures])
    found: list[Longs] = [np.empty(0, np.int64)] * len(captures)
    for place, number in enumerate(order.tolist()):
        found[number] = np.sort(lines[:, place])
    return found


def groups_of(capture: Capture, group: int, members: Longs) -> Longs:
    """Return the groups of a kind that lie within the ranks that a captured one stands for."""
    lines = family(capture.groups[group], capture.world)
    inside = np.isin(lines, members).all(axis=1)
    return lines[inside] if inside.any() else np.array([sorted(capture.groups[group])], dtype=np.int64)
