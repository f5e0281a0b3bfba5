"""What each rank really does: placement, lowering, and the program that simulators and executors share."""

from __future__ import annotations

from syncline.program.lower import lower, vendor
from syncline.program.placement import Placement, given, packed, place, rail_aware, spread
from syncline.program.program import Messages, Program, ProgramStep, RankRound, VendorStep

__all__ = [
    "Messages",
    "Placement",
    "Program",
    "ProgramStep",
    "RankRound",
    "VendorStep",
    "given",
    "lower",
    "packed",
    "place",
    "rail_aware",
    "spread",
    "vendor",
]
