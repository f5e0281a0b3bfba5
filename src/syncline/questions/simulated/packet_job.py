"""A job of packets as people write it: a collective and its size, a pattern of messages, or a file of flows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from syncline.describe import units
from syncline.errors import UsageError
from syncline.program import lower, packed
from syncline.questions.answer import Parameter
from syncline.sim.candidates import NAMES, find, usual
from syncline.sim.packet import PacketJob, PacketNetwork, Traffic, all_to_all, incast, permutation
from syncline.sim.packet.flow_file import read_flows

PacketJobArgument = Annotated[
    str,
    Parameter("allreduce:64MiB, alltoall:8MiB, incast:32:2MB, permutation:2MB, all-pairs:64KiB or a file of flows."),
]


def read_job(network: PacketNetwork, text: str, seed: int) -> PacketJob | Traffic:
    """Read "allreduce:64MiB", "incast:32:2MB", "permutation:2MB", "all-pairs:64KiB" or a file of flows."""
    fabric = network.fabric
    if Path(text).is_file():
        return read_flows(text, fabric)
    name, *rest = text.split(":")
    try:
        if name == "incast" and len(rest) == 2:
            return incast(fabric, int(rest[0]), units.size(rest[1]))
        if name == "permutation" and len(rest) == 1:
            return permutation(fabric, units.size(rest[0]), seed=seed)
        if name == "all-pairs" and len(rest) == 1:
            return all_to_all(fabric, units.size(rest[0]))
    except ValueError:
        pass
    if name in NAMES and len(rest) in (1, 2):
        placed = packed(fabric)
        algorithm = rest[1] if len(rest) == 2 else usual(fabric, NAMES[name], placed.num_ranks)
        return PacketJob(
            lower(find(fabric, NAMES[name], placed.num_ranks, algorithm), placed), units.size(rest[0]), name
        )
    raise UsageError(
        f'"{text}" is neither a job nor a file of flows.',
        hint="Write allreduce:64MiB, alltoall:8MiB:direct, incast:32:2MB, permutation:2MB or all-pairs:64KiB.",
    )
