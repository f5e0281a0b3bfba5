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

    `levels` are the ranks inside each level, innermost first, as `synchronize(levels=...)` takes them. The outermost
    level alone is in the codec; what travels inside is float32.
    """
    num_ranks = placement.num_ranks
    if not levels:
        return lower(verify(direct(num_ranks, Kind.ALL_REDUCE)), placement, codec)
    if num_ranks % math.prod(levels) or num_ranks == math.prod(levels):
        raise ProgramError(f"{num_ranks} ranks have no level outside groups of {' x '.join(map(str, levels))}.")
    shape = (num_ranks // math.prod(levels), *reversed(levels))
    proved = verify(hierarchical(shape, families=("direct",) * len(shape)))
    stages = range(len(proved.schedule.strands[0].stages))
    # From the inside out, across, and back: the one in the middle is the outermost level.
    inside = frozenset(stages) - {len(levels)} if codec != RAW else frozenset()
    return lower(proved, placement, codec, inside)
