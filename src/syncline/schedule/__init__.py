"""How a collective is done, as data that can be drawn, proved, priced and run.

from syncline.schedule import ring, verify
proved = verify(ring(8))
"""

from __future__ import annotations

from syncline.schedule.bruck import bruck
from syncline.schedule.collective import ALL, Collective, Kind
from syncline.schedule.counts import Traffic, counted_law, sent_bytes, traffic
from syncline.schedule.direct import direct
from syncline.schedule.dragonfly import dragonfly
from syncline.schedule.families import FAMILIES, Family, Options, build
from syncline.schedule.halving_doubling import halving_doubling, recursive_doubling
from syncline.schedule.hierarchical import hierarchical
from syncline.schedule.in_network import in_network
from syncline.schedule.kernel import Kernel, Stage
from syncline.schedule.law import CostLaw
from syncline.schedule.moves import Moves, Op, Round, Runs
from syncline.schedule.parameter_server import parameter_server
from syncline.schedule.ring import ring
from syncline.schedule.schedule import NO_HOME, Schedule, Strand
from syncline.schedule.torus import torus
from syncline.schedule.tree import double_tree, tree
from syncline.schedule.verify import Proved, verify
from syncline.schedule.weighted import balanced, striped, weighted

__all__ = [
    "ALL",
    "FAMILIES",
    "NO_HOME",
    "Collective",
    "CostLaw",
    "Family",
    "Kernel",
    "Kind",
    "Moves",
    "Op",
    "Options",
    "Proved",
    "Round",
    "Runs",
    "Schedule",
    "Stage",
    "Strand",
    "Traffic",
    "balanced",
    "bruck",
    "build",
    "counted_law",
    "direct",
    "double_tree",
    "dragonfly",
    "halving_doubling",
    "hierarchical",
    "in_network",
    "parameter_server",
    "recursive_doubling",
    "ring",
    "sent_bytes",
    "striped",
    "torus",
    "traffic",
    "tree",
    "verify",
    "weighted",
]
