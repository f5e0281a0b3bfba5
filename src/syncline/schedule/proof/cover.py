"""Which chunks of a strand each stage works on, and as what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.errors import ScheduleError
from syncline.schedule.collective import Ints
from syncline.schedule.kernel import Stage


@dataclass(frozen=True)
class Cover:
    """Per chunk of the strand: which of the stage's bases covers it (-1 none), and as which block of the goal."""

    bases: Ints
    which: Ints
    block: Ints


def cover(stage: Stage, num_chunks: int) -> Cover:
    """Return what a stage covers, or say that its groups overlap in part."""
    bases = np.unique(stage.base)
    which, block = np.full(num_chunks, -1, dtype=np.int64), np.full(num_chunks, -1, dtype=np.int64)
    local = stage.kernel.goal.blocks(stage.kernel.num_chunks)
    places = (stage.chunk_offsets()[:, None] + stage.span_offsets()[None, :]).ravel()
    owner = np.repeat(local, stage.span_size)
    for number, base in enumerate(bases):
        at = base + places
        if (which[at] != -1).any():
            raise ScheduleError("groups of one stage cover chunks in part: this cannot be proved in factors.",
                                hint='Use the "flat" method.')  # fmt: skip
        which[at], block[at] = number, owner
    return Cover(bases, which, block)
