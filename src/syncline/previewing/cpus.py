"""Scripts without GPUs: what gloo makes of a collective between CPUs, and what a preview of them cannot say.

All-reduces and all-gathers go around a ring; a broadcast goes down a tree; a reduce-scatter of torch's gloo is an
all-reduce of a copy of which each rank keeps its part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from syncline.errors import UsageError
from syncline.fabric.fabric import Fabric
from syncline.previewing.measured import OwnHost
from syncline.previewing.record import Capture
from syncline.sim.emulate.emulation import HostCosts, costs_of
from syncline.sim.uncertainty import Spread

ERROR = 0.17
"""The furthest that six steps in the lab were off when they were first scored."""
UNTIMED = 0.35, 1.91
"""How far a step may lie where nothing was timed: processors differ, and so do their hosts."""
CODING_S_PER_BYTE = 4.1e-10
"""What a codec takes for a byte of gradient: int8 encoded with its residual, added and decoded on one core."""
TWICE = ("all_reduce", "reduce_scatter")
ONCE = ("all_gather", "all_to_all")
RUNS_AS = {"reduce_scatter": "all_reduce"}
"""What gloo runs, and names in traces, instead of an operation."""


@dataclass(frozen=True)
class SharedCores:
    """Ranks that share the cores of one machine, which also carries their messages."""

    cores: int
    ranks: int
    threads: int
    byte_s: float
    """The processor's time for a byte that is sent, both ends together."""
    costs: HostCosts
    """What gloo's calls cost these ranks."""

    others: float = 1.0
    """How much longer everything takes for what else runs on the machine."""

    def slower(self, sent_bytes: float = 0.0, busy_s: float = 0.0) -> float:
        """Return how much longer work takes than on a core of its own, beside messages of so many bytes a rank.

        >>> two, eight = (SharedCores(cores, 4, 1, 2e-9, HostCosts()) for cores in (2, 8))
        >>> two.slower(), two.slower(125e6, 1.0), eight.slower(125e6, 1.0)
        (2.0, 2.5, 1.0)
        """
        talking = self.ranks * self.byte_s * sent_bytes / busy_s if busy_s > 0 else 0.0
        return self.others * max(1.0, (self.ranks * self.threads + talking) / self.cores)


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


def host_costs(fabric: Fabric) -> HostCosts:
    """Return what TCP costs the hosts of a cluster: as `syncline calibrate` wrote it into its file, or as usual."""
    return costs_of(fabric.spec) or HostCosts()


def call_s(costs: HostCosts, what: str, n: int) -> float:
    """Return what a call takes beyond its bytes: a rank wakes, and messages follow each other.

    >>> round(call_s(HostCosts(), "all_reduce", 4), 6)
    0.0029
    """
    return costs.start_s + messages(what, n) * (costs.post_s + costs.latency_s)


def waits_s(n: int, work_s: float, noise_s: float) -> float:
    """Return what a rank waits for the slowest of `n`, each having worked so long since they last met.

    Interruptions add up: what a rank's work differs by grows as its root, `noise_s` being the variance a second of it.

    >>> round(waits_s(4, 0.01, 1e-4), 6), waits_s(1, 0.01, 1e-4)
    (0.001049, 0.0)
    """
    if n < 2:
        return 0.0
    return NormalDist().inv_cdf((n - 0.375) / (n + 0.25)) * math.sqrt(work_s * noise_s)  # the largest of n, by Blom


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
        if change.partition("=")[0] in ("gpu", "algorithm", "compiled"):
            raise UsageError(f"{change} is not known of a script on CPUs.", hint="Leave it out, or leave --cpu out.")


def check_device(captured: Capture, cpu: bool) -> None:
    """Refuse a capture of the other kind."""
    if captured.on_cpu != cpu:
        raise UsageError(
            f"the script was captured on {'CPUs' if captured.on_cpu else 'GPUs'}.",
            hint=f"{'Add' if captured.on_cpu else 'Leave out'} --cpu, or capture it again.",
        )


def cpu_spread(own: OwnHost | None, usual: tuple[float, float] = UNTIMED) -> Spread:
    """Return how far a step may be off: as its own steps on a CPU differed, or as the lab's did."""
    least, most = own.spread if own is not None else usual
    low, high = min(least, 1 - ERROR), max(most, 1 + ERROR)
    source = "the quickest and the slowest step of the script itself on a CPU"
    return Spread(low, math.sqrt(low), math.sqrt(high), high, 2, 1, source, counted="{rows} steps of {sources} machine")
