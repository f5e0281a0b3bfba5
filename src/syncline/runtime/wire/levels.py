"""Levels of a hierarchy: ranks of one host, hosts of one site, sites; dense inside, compressed across the outermost.

levels=(8,)          eight ranks a host; from LOCAL_WORLD_SIZE where levels="host"
levels=(8, 4)        eight ranks a host, four hosts a site
"""

from __future__ import annotations

import math
import os

from syncline.errors import SynchronizationError

VARIABLE = "LOCAL_WORLD_SIZE"


def resolve(levels: object, num_ranks: int) -> tuple[int, ...]:
    """Return the sizes of all levels but the outermost, innermost first; () where everything is one level."""
    if levels is None or levels == () or levels == []:
        return ()
    if levels == "host":
        sizes = _from_environment()
    elif isinstance(levels, (tuple, list)) and all(type(size) is int and size >= 1 for size in levels):
        sizes = tuple(levels)
    else:
        raise SynchronizationError(
            f"levels={levels!r} is not understood.",
            hint='Give sizes from the inside out, such as (8,) or (8, 4), or "host".',
        )
    inner = math.prod(sizes)
    if num_ranks % inner:
        raise SynchronizationError(
            f"{num_ranks} ranks cannot be divided into groups of {' x '.join(map(str, sizes))}.",
            hint="Every host, and every site, must have equally many ranks, numbered one after the other.",
        )
    return tuple(size for size in sizes if size > 1)


def members(rank: int, num_ranks: int, sizes: tuple[int, ...]) -> list[list[int]]:
    """Return the ranks that exchange with `rank` at each level, innermost first, the outermost last."""
    result, stride = [], 1
    for size in (*sizes, num_ranks // math.prod(sizes)):
        base = rank - (rank // stride % size) * stride
        result.append([base + k * stride for k in range(size)])
        stride *= size
    return result


def _from_environment() -> tuple[int, ...]:
    text = os.environ.get(VARIABLE, "")
    if not text.isdigit() or int(text) < 1:
        raise SynchronizationError(
            f'levels="host" needs {VARIABLE}, which is {text!r}.',
            hint="torchrun sets it; under another launcher set it, or give levels=(ranks of one host,).",
        )
    return (int(text),)
