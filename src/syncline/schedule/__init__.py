"""How a collective is done, as data that can be drawn, proved, priced and run.

from syncline.schedule import build, ring, verify
proved = verify(ring(8)), verify(build("tree", 8))
"""

from __future__ import annotations

from syncline.schedule.collective import Collective, Kind
from syncline.schedule.counts import counted_cost, sent_bytes, traffic
from syncline.schedule.family.direct import direct
from syncline.schedule.family.families import FAMILIES, Options, build
from syncline.schedule.family.hierarchical import hierarchical
from syncline.schedule.family.in_network import in_network
from syncline.schedule.family.parameter_server import parameter_server
from syncline.schedule.family.ring import ring
from syncline.schedule.family.torus import torus
from syncline.schedule.family.weighted import balanced, weighted
from syncline.schedule.moves import MoveOp, Moves
from syncline.schedule.proof.verify import Proved, verify
from syncline.schedule.schedule import Schedule, Strand

__all__ = [
    "FAMILIES", "Collective", "Kind", "MoveOp", "Moves", "Options", "Proved", "Schedule", "Strand", "balanced", "build",
    "counted_cost", "direct", "hierarchical", "in_network", "parameter_server", "ring", "sent_bytes",
    "torus", "traffic", "verify", "weighted",
]  # fmt: skip
