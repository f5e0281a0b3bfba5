"""Lowering: a proved schedule, a placement and a codec become a program."""

from __future__ import annotations

from syncline.codec.codec import RAW, Codec
from syncline.errors import ProgramError
from syncline.program.placement import Placement
from syncline.program.program import Program, ProgramStep, VendorStep
from syncline.schedule import Collective, Proved


def lower(schedule: Proved, placement: Placement, codec: Codec = RAW) -> Program:
    """Return the program that performs a proved schedule on these devices.

    Nothing is expanded: the program keeps the schedule's factors. Message order at a rank is by strand, round, peer and
    chunk, the same at both ends, so that messages of one pair match without tags.
    """
    if not isinstance(schedule, Proved):
        raise ProgramError("only a proved schedule can be lowered.", hint="Call verify(schedule) first.")
    return Program(schedule.schedule.name, (ProgramStep(schedule, codec),), placement)


def vendor(collective: Collective, placement: Placement, library: str = "nccl") -> Program:
    """Return the program that leaves a collective to the platform's library."""
    step = VendorStep(collective, library)
    return Program(step.name, (step,), placement)
