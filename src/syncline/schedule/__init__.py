"""How a collective is done, as data that can be drawn, proved, priced and run.

from syncline.schedule import ring, verify
proved = verify(ring(8))
"""

from __future__ import annotations

from syncline.schedule.collective import ALL, Collective, Kind
from syncline.schedule.counts import VertexTraffic, counted_law, sent_bytes, traffic
from syncline.schedule.family.bruck import bruck
from syncline.schedule.family.direct import direct
from syncline.schedule.family.dragonfly import dragonfly
from syncline.schedule.family.families import FAMILIES, Family, Options, build
from syncline.schedule.family.halving_doubling import halving_doubling, recursive_doubling
from syncline.schedule.family.hierarchical import hierarchical
from syncline.schedule.family.in_network import in_network
from syncline.schedule.family.parameter_server import parameter_server
from syncline.schedule.family.ring import ring
from syncline.schedule.family.torus import torus
from syncline.schedule.family.tree import double_tree, tree
from syncline.schedule.family.weighted import balanced, striped, weighted
from syncline.schedule.kernel import Kernel, Stage
from syncline.schedule.law import CostLaw
from syncline.schedule.moves import MoveOp, Moves, Round, Runs
from syncline.schedule.proof.verify import Proved, verify
from syncline.schedule.schedule import NO_HOME, Schedule, Strand

__all__ = [
    "ALL",
    "FAMILIES",
    "NO_HOME",
    "Collective",
    "CostLaw",
    "Family",
    "Kernel",
    "Kind",
    "MoveOp",
    "Moves",
    "Options",
    "Proved",
    "Round",
    "Runs",
    "Schedule",
    "Stage",
    "Strand",
    "VertexTraffic",
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
