"""Scripts without GPUs: what gloo makes of a collective between CPUs, and what a preview of them cannot say.

All-reduces and all-gathers go around a ring; a broadcast goes down a tree; a reduce-scatter of torch's gloo is an
all-reduce of a copy of which each rank keeps its part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from syncline.errors import UsageError
from syncline.preview.measured import OwnHost
from syncline.preview.record import Capture
from syncline.sim.emulate.emulation import HostCosts
from syncline.sim.uncertainty import Spread

PAYLOAD = HostCosts().efficiency
CALL_S = 120e-6
"""A call until its first message is under way: handed to gloo's own thread, which posts it."""
ERROR = 0.08
"""How far steps in the lab may be off beyond what a script's own steps differ."""
TWICE = ("all_reduce", "reduce_scatter")
ONCE = ("all_gather", "all_to_all")


def sent_bytes(what: str, size_bytes: float, n: int) -> float:
    """Return what a rank of `n` sends; of a broadcast, its root.

    >>> sent_bytes("reduce_scatter", 8.0, 4), sent_bytes("all_gather", 8.0, 4), sent_bytes("broadcast", 8.0, 4)
    (12.0, 6.0, 16.0)
    """
    if what in TWICE or what in ONCE:
        return (2.0 if what in TWICE else 1.0) * (n - 1) / n * size_bytes
    return size_bytes * (math.ceil(math.log2(n)) if what == "broadcast" else 1)


def messages(what: str, n: int) -> int:
    """Return how many messages follow each other on the way of one call.

    >>> messages("all_reduce", 4), messages("all_gather", 4), messages("barrier", 4)
    (6, 3, 2)
    """
    if what in TWICE or what in ONCE:
        return (2 if what in TWICE else 1) * (n - 1)
    return math.ceil(math.log2(n)) if what in ("broadcast", "barrier") else 1


def check_question(timed: bool, beside: bool, changes: Sequence[str]) -> None:
    """Refuse what a preview on CPUs cannot say."""
    if not timed:
        raise UsageError(
            "what an operator takes on a CPU is not modelled.",
            hint="Add --measure to time them on this machine's CPU, or give a file of such times to --measured.",
        )
    if beside:
        raise UsageError("a job file describes training on GPUs.", hint="Leave --job out with --cpu.")
    for change in changes:
        if change.partition("=")[0] in ("gpu", "codec", "algorithm"):
            raise UsageError(f"{change} is not known of a script on CPUs.", hint="Leave it out, or leave --cpu out.")


def check_device(captured: Capture, cpu: bool) -> None:
    """Refuse a capture of the other kind."""
    if captured.on_cpu != cpu:
        raise UsageError(
            f"the script was captured on {'CPUs' if captured.on_cpu else 'GPUs'}.",
            hint=f"{'Add' if captured.on_cpu else 'Leave out'} --cpu, or capture it again.",
        )


def cpu_spread(own: OwnHost | None, usual: tuple[float, float]) -> Spread:
    """Return how far a step may be off: as its own steps on a CPU differed, or as the lab's did."""
    least, most = own.spread if own is not None else usual
    low, high = min(least, 1 - ERROR), max(most, 1 + ERROR)
    said = "the quickest and the slowest step of the script itself on a CPU"
    return Spread(low, math.sqrt(low), math.sqrt(high), high, 2, 1, said, counted="{rows} steps of {sources} machine")
