"""A synchronised piece of a gradient bucket as a Program: shards to their owners, sums back to all.

bucket_program(packed(fabric, 8), scheme("int8").price())
"""

from __future__ import annotations

import math

from syncline.codec.codec import RAW, Codec
from syncline.errors import ProgramError
from syncline.program.lower import lower
from syncline.program.placement import Placement
from syncline.program.program import Program
from syncline.schedule import Kind, direct, hierarchical, verify


def bucket_program(placement: Placement, codec: Codec = RAW, levels: tuple[int, ...] = ()) -> Program:
    """Return what the runtime does with one piece: the direct all-reduce, level by level from the inside out.

    `levels` are the ranks inside each level, innermost first, as `synchronize(levels=...)` takes them. A step of a
    program has one codec, and the runtime encodes at the outermost level alone: with levels only plain bytes are
    lowered.
    """
    num_ranks = placement.num_ranks
    if not levels:
        return lower(verify(direct(num_ranks, Kind.ALL_REDUCE)), placement, codec)
    if codec.wire_ratio != 1.0:
        raise ProgramError(
            f'codec "{codec.name}" is used at the outermost of {len(levels) + 1} levels, and a program has one codec.',
            hint="Ask for the program of fp32, or of one level.",
        )
    if num_ranks % math.prod(levels) or num_ranks == math.prod(levels):
        raise ProgramError(f"{num_ranks} ranks have no level outside groups of {' x '.join(map(str, levels))}.")
    shape = (num_ranks // math.prod(levels), *reversed(levels))
    return lower(verify(hierarchical(shape, families=("direct",) * len(shape))), placement, codec)
