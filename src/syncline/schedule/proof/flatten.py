"""A strand as one kernel over all ranks: every group's moves side by side, round by round."""

from __future__ import annotations

from syncline.errors import ScheduleError
from syncline.schedule.kernel import Kernel
from syncline.schedule.moves import moves_round
from syncline.schedule.schedule import Schedule, Strand

MAX_MOVES = 1 << 24


def flatten(schedule: Schedule, strand: Strand) -> Kernel:
    """Return the strand as one kernel whose goal is the schedule's collective. For small schedules: all is expanded."""
    if strand.num_moves > MAX_MOVES:
        raise ScheduleError(f"{schedule.name}: {strand.num_moves:,} moves are too many to expand "
                            f"(at most {MAX_MOVES:,}).", hint='Use the "factored" method.')  # fmt: skip
    rounds = tuple(moves_round(m.src, m.dst, m.chunk, m.op) for m in strand.steps())
    chunks = strand.num_chunks * strand.pieces
    return Kernel(schedule.name, schedule.collective.even(), chunks, rounds, schedule.num_helpers)
