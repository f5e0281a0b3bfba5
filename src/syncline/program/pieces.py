"""How a synchronised bucket is cut and carried: the one place for the size of pieces, how many are under way, threads.

A bucket is cut into pieces of about `PIECE_BYTES`, a piece into one shard for each rank. What runs (`runtime.sync`) and
what prices it (`program.stages`) ask here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import pairwise

PIECE_BYTES = 4 << 20
"""A bucket is exchanged in pieces of about this size, so that encoding and sending overlap."""
DEVICE_PIECE_BYTES = 32 << 20
"""On a GPU a piece costs the host about a millisecond whatever its size, and encoding takes next to no time."""
DEPTH = 2
"""Pieces whose sums are awaited at once, so that the wire is busy while the next piece is summed."""
AHEAD = 96
"""Pieces that a device is given to encode before the first of them is waited for: where processes take turns on a card,
a turn passes before the next can be given, and three a turn left an int8 step of a GPT of 350M a seventh longer."""
PIECE_ALIGNMENT = 4096
"""Elements: all pieces but the last of a bucket have a multiple of this."""
SHARD_ALIGNMENT = 256
"""Elements: shards begin on a multiple of this, so that blocks of codecs are whole."""
MOST_THREADS = 4
THREADS_VARIABLE = "SYNCLINE_WIRE_THREADS"


def piece_bytes_on(device: str) -> int:
    """Return the size of pieces for gradients on the CPU ("cpu") or on a GPU."""
    return PIECE_BYTES if device == "cpu" else DEVICE_PIECE_BYTES


def piece_cuts(num_elements: int, piece_bytes: int = PIECE_BYTES) -> list[int]:
    """Return where a bucket is cut into equal pieces of about `piece_bytes` of float32."""
    count = max(1, round(4 * num_elements / piece_bytes))
    size = -(-num_elements // count)
    size = max(1, -(-size // PIECE_ALIGNMENT)) * PIECE_ALIGNMENT
    return [*range(0, num_elements, size), num_elements]


def piece_sizes(num_elements: int) -> list[int]:
    """Return the elements of the pieces in which a bucket is exchanged."""
    return [high - low for low, high in pairwise(piece_cuts(num_elements))]


def shard_bounds(num_elements: int, num_shards: int) -> list[tuple[int, int]]:
    """Return where each shard begins and ends: equal, aligned to blocks, the last ones shorter or empty."""
    step = -(-num_elements // num_shards)
    step = -(-step // SHARD_ALIGNMENT) * SHARD_ALIGNMENT
    cuts = [min(k * step, num_elements) for k in range(num_shards + 1)]
    return list(pairwise(cuts))


def equal_bounds(num_elements: int, num_shards: int) -> list[tuple[int, int]]:
    """Return the shards of a framework that has made them equal itself."""
    size = num_elements // num_shards
    return [(k * size, (k + 1) * size) for k in range(num_shards)]


def shard_sizes(num_elements: int, num_shards: int) -> list[int]:
    """Return the elements of each shard of a piece."""
    return [high - low for low, high in shard_bounds(num_elements, num_shards)]


def wire_threads(environment: Mapping[str, str] | None = None) -> int:
    """Return how many threads the native wire of one rank has: half of its share of the processors, at most four."""
    environment = os.environ if environment is None else environment
    given = environment.get(THREADS_VARIABLE, "")
    if given.isdigit() and int(given) >= 1:
        return min(256, int(given))
    local = environment.get("LOCAL_WORLD_SIZE", "")
    num_ranks = int(local) if local.isdigit() and int(local) >= 1 else 1
    return max(1, min(MOST_THREADS, len(os.sched_getaffinity(0)) // (2 * num_ranks)))
