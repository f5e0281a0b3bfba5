"""How a collective is done, as data that can be drawn, proved, priced and run."""

from __future__ import annotations

from syncline.schedule.collective import ALL, Collective, Kind
from syncline.schedule.hierarchical import hierarchical
from syncline.schedule.kernel import Kernel, Stage
from syncline.schedule.law import CostLaw
from syncline.schedule.moves import Moves, Op, Round, Runs
from syncline.schedule.ring import ring
from syncline.schedule.schedule import NO_HOME, Schedule, Strand
from syncline.schedule.verify import Proved, verify

__all__ = [
    "ALL",
    "NO_HOME",
    "Collective",
    "CostLaw",
    "Kernel",
    "Kind",
    "Moves",
    "Op",
    "Proved",
    "Round",
    "Runs",
    "Schedule",
    "Stage",
    "Strand",
    "hierarchical",
    "ring",
    "verify",
]
