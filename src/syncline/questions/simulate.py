"""What does a collective take on a cluster, size by size?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from syncline.describe import units
from syncline.describe.plain import JsonObject
from syncline.errors import UsageError
from syncline.fabric import Fabric
from syncline.fabric.assumed import assumed_of
from syncline.program import Placement, place
from syncline.program.program import ProgramStep
from syncline.questions.answer import Answer
from syncline.questions.cluster import Cluster, built
from syncline.questions.simulated.algorithms import AlgorithmChoice
from syncline.questions.simulated.log_ranks import ranks_of
from syncline.questions.simulated.packets import PacketQuestion, ProgressBlock
from syncline.schedule import Kind, Schedule
from syncline.sim.candidates import NAMES
from syncline.sim.flow.estimate import Estimate, over_seeds
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.sim.slow_port import slow_cables, slower_than_none
from syncline.sim.sweep import Contest, sizes_between
from syncline.sim.transport import message_lines, rails_apart, transport_on

if TYPE_CHECKING:
    from syncline.sim.packet import Outcome
    from syncline.timeline import Timeline

LEVELS = ("analytic", "flow", "packet")
MOST_SEEDS = 10_000
Sizes = str | int | Sequence[int]


@dataclass(frozen=True, eq=False)
class Simulation(Answer):
    """A collective on a cluster: one row a size, and what the level that says so ignores."""

    collective: str
    fabric: Fabric = field(repr=False)
    num_ranks: int
    level: str
    rows: tuple[Mapping[str, Any], ...] = field(repr=False)
    ignores: tuple[str, ...] = field(repr=False)
    #: What was asked beyond that, in the words of the command line: routing, transport, seed ...
    how: Mapping[str, Any] = field(default_factory=dict, repr=False)
    spread: Mapping[str, Any] | None = field(default=None, repr=False)
    #: The flows of the largest size, where the level has some.
    contest: Contest | None = field(default=None, repr=False)
    largest: Estimate | None = field(default=None, repr=False)
    packets: Outcome | None = field(default=None, repr=False)

    @property
    def time_s(self) -> float:
        """Time of the largest size."""
        return float(self.rows[-1]["time_s"])

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """Where the time of the largest size lies in 9 of 10 cases, where the level says so."""
        row = self.rows[-1]
        return (float(row["low_s"]), float(row["high_s"])) if "low_s" in row else None

    @property
    def limiting_link(self) -> str:
        """The link that limits the largest size."""
        return str(self.rows[-1]["limiting_link"])

    @property
    def algorithm(self) -> str:
        """The algorithm of the largest size."""
        return str(self.rows[-1]["algorithm"])

    @cached_property
    def timeline(self) -> Timeline:
        """What every rank and link does at the largest size."""
        from syncline.sim.flow.chronicle import timeline
        from syncline.sim.flow.flow import FlowJob, simulate

        if self.packets is not None:
            from syncline.sim.packet.chronicle import packet_timeline

            return packet_timeline(self.packets)
        if self.contest is None or self.largest is None:
            raise UsageError("--algorithm nccl is a cost model without flows: it has no timeline.",
                             hint="Name a family, or use auto.")  # fmt: skip
        program = self.contest.at(self.largest).program
        return timeline(simulate([FlowJob(program, self.largest.size_bytes)], self.contest.network, record=True))

    @property
    def schedule(self) -> Schedule:
        """The schedule of the largest size, proved: `syncline.schedule.formats` writes it for others to run."""
        if self.contest is None or self.largest is None:
            raise UsageError("this answer has no schedule.", hint="Ask at flow level, of auto, a family or a file.")
        step = self.contest.at(self.largest).program.steps[0]
        assert isinstance(step, ProgramStep)
        return step.proved.schedule

    def to_json(self) -> JsonObject:
        spread = {} if self.spread is None else {"spread": self.spread}
        return {"cluster": self.fabric.name, "ranks": self.num_ranks, **_ordered(self), **spread,
                "collective": self.collective}  # fmt: skip


def _ordered(answer: Simulation) -> JsonObject:
    """Return level and options in the order in which `--json` prints them."""
    how = dict(answer.how)
    first = {name: how.pop(name) for name in ("placement",) if name in how}
    return {**first, "level": answer.level, **how, "ignores": list(answer.ignores), "rows": list(answer.rows)}


def simulate(
    cluster: Cluster,
    collective: str,
    size: Sizes = "1KiB..16GiB",
    *,
    algorithm: str = "auto",
    chunks: int = 0,
    servers: int = 0,
    colocated: bool = False,
    level: str = "flow",
    routing: str = "auto",
    transport: str = "auto",
    placement: str = "auto",
    ranks: int | None = None,
    seed: int = 0,
    seeds: int = 0,
    cross_rail: str = "fabric",
    packets: PacketQuestion | None = None,
    calibrate: str | Path | None = None,
    profile: str | Path | None = None,
    shown: ProgressBlock = lambda words: nullcontext(),
) -> Simulation:
    """Say what a collective takes on a cluster, which link limits it, and what the answer ignores.

    `algorithm` is auto (the fastest), nccl, a family, or a file of your own; `chunks` is how many follow each other
    through its rounds (0: as suits the size).

    >>> answer = simulate("h100-64-rail", "allreduce", "1GiB", ranks=64)
    >>> answer.num_ranks, answer.time_s > 0, answer.limiting_link != ""
    (64, True, True)
    """
    kind = _kind(collective)
    asked = packets or PacketQuestion()
    if level not in LEVELS:
        raise UsageError(f'no level of simulation is called "{level}".', hint="One of: analytic, flow, packet.")
    if not 0 <= seeds <= MOST_SEEDS:
        raise UsageError(f"--seeds is {seeds:,}.", hint=f"Ask for 1 to {MOST_SEEDS:,}, or leave it out.")
    entry = AlgorithmChoice(algorithm, chunks, servers, colocated)
    entry.check()
    if calibrate and algorithm != "nccl":
        raise UsageError("--calibrate fits the model of NCCL.", hint="Add --algorithm nccl.")
    if profile and (calibrate or algorithm != "nccl"):
        raise UsageError("--profile calibrates the model of NCCL.",
                         hint="Leave --calibrate out." if calibrate else "Add --algorithm nccl.")  # fmt: skip
    if level != "packet" or algorithm == "nccl":
        asked.refuse("nccl" if algorithm == "nccl" else level)
    if algorithm == "nccl":
        asked_too = {"level": level != "flow", "routing": routing != "auto", "transport": transport != "auto",
                     "seed": seed, "seeds": seeds, "cross-rail": cross_rail != "fabric"}  # fmt: skip
        for name in (name for name, said in asked_too.items() if said):
            raise UsageError(f"--{name} does not apply to nccl, which is a cost model without flows.",
                             hint="Name a family, or use auto.")  # fmt: skip
    if seeds and level != "flow":
        raise UsageError(f"--seeds is about flows; level {level} has none.",
                         hint="Leave --level out, or give one --seed at a time.")  # fmt: skip
    fabric = built(cluster)
    sizes = read_sizes(size)
    if algorithm == "nccl":
        return _nccl(collective, kind, sizes, place(placement, fabric, ranks), calibrate, profile)
    transport = transport_on(transport, fabric)  # refused where the links do not carry it
    placed = place(placement, fabric, ranks)
    if level == "packet":
        how = (transport, routing, seed, "nvlink" if rails_apart(fabric) else cross_rail)
        return _packets(fabric, collective, sizes, placed, entry, how, asked, shown)
    options = NetworkOptions(routing=routing, seed=seed, transport=transport, cross_rail=cross_rail)  # type: ignore[arg-type]
    network = FlowNetwork(fabric, options)
    contest = entry.contest(kind, placed, network)
    found = [contest.best(s, level) for s in sizes]
    return Simulation(
        collective, fabric, placed.num_ranks, level,
        rows=tuple(estimate.row() for estimate in found),
        ignores=tuple(dict.fromkeys(text for estimate in found for text in estimate.ignores)),
        how={"placement": placed.name, "routing": network.options.routing, "seed": options.seed,
             "transport": options.transport, "assumed": assumptions(fabric, transport, network.options.routing)},
        spread=_spread(contest, found[-1], network, seeds) if seeds else None,
        contest=contest, largest=found[-1],
    )  # fmt: skip


def assumptions(fabric: Fabric, transport: str, routing: str = "") -> list[str]:
    """Return what an answer takes for granted: what the cluster's file leaves open, and what messages cost.

    Of cables that are slower than none it speaks where a routing that spreads evenly is named.
    """
    rails = ["messages change rails over NVLink (PXN): nothing else joins them"] if rails_apart(fabric) else []
    slow, cables = slower_than_none(fabric), slow_cables(fabric) if routing in ("ecmp", "spray", "static") else None
    return [
        *assumed_of(fabric.spec),
        *rails,
        *message_lines(fabric, transport),
        *([slow.on_the_links()] if slow else []),
        *([cables.words()] if cables else []),
    ]


def read_sizes(size: Sizes) -> list[int]:
    """Read "1KiB..16GiB" as sizes that double, one size, or sizes in bytes (1e6 is one too).

    >>> read_sizes("1KiB..4KiB")
    [1024, 2048, 4096]
    """
    if not isinstance(size, str):
        given: list[Any] = [size] if isinstance(size, Real) else list(cast(Sequence[int], size))  # NumPy's numbers too
        if not given or not all(map(_is_whole, given)):
            raise UsageError(f"{str(size)[:60]} is no size of a buffer.",
                             hint='Give "1GiB", "1KiB..16GiB", or whole numbers of bytes.')  # fmt: skip
        return [int(one) for one in given]
    low, dots, high = size.partition("..")
    return sizes_between(units.size(low), units.size(high)) if dots else [units.size(low)]


def _is_whole(number: Any) -> bool:
    return isinstance(number, Real) and isfinite(number) and number % 1 == 0


def _kind(collective: str) -> Kind:
    if collective not in NAMES:
        raise UsageError(f'no collective is called "{collective}".', hint=f"One of: {', '.join(NAMES)}.")
    return NAMES[collective]


def _spread(contest: Contest, best: Estimate, network: FlowNetwork, seeds: int) -> JsonObject:
    program = contest.at(best).program
    found = over_seeds(program, network, best.size_bytes, range(seeds))
    return {"size_bytes": best.size_bytes, "algorithm": best.algorithm, **found.to_json()}


def _packets(
    fabric: Fabric,
    collective: str,
    sizes: list[int],
    placed: Placement,
    entry: AlgorithmChoice,
    how: tuple[str, str, int, str],
    asked: PacketQuestion,
    shown: ProgressBlock,
) -> Simulation:
    from syncline.questions.simulated.traffic import packet_rows
    from syncline.sim.flow.wired import wire
    from syncline.sim.packet import packet_network
    from syncline.sim.packet.levels import plain_network, shown_options, with_posting
    from syncline.sim.packet.outcome import IGNORES

    transport, routing, seed, cross_rail = how
    network = packet_network(fabric)
    options = asked.options(network, transport, routing, seed, cross_rail=cross_rail)
    # The flow level beside the packets is that of `simulate` without `--level packet`; the plain one explains the rest.
    near = FlowNetwork(fabric, shown_options(options, transport, routing))
    options = with_posting(options, near.carrier)
    told = entry.contest(NAMES[collective], placed, near)
    answers = [told.best(size, "flow") for size in sizes]
    plain = plain_network(fabric, options)
    names = dict.fromkeys(answer.algorithm for answer in answers)
    contest = Contest(plain, {name: wire(told.wired[name].program, plain) for name in names}, 0)
    flows = [replace(contest, chunks=answer.chunks).one(answer.algorithm, answer.size_bytes) for answer in answers]
    rows, outcome = packet_rows(
        contest, flows, network, options, asked, shown, [answer.time_s for answer in answers]
    )  # fmt: skip
    return Simulation(
        collective, fabric, placed.num_ranks, "packet",
        rows=tuple(rows), ignores=IGNORES,
        how={"placement": placed.name, "routing": options.routing, "seed": seed, "transport": options.transport,
             "asked": asked.shown(), "assumed": assumptions(fabric, near.carrier.name, near.options.routing)},
        contest=contest, largest=flows[-1], packets=outcome,
    )  # fmt: skip


def _nccl(
    collective: str, kind: Kind, sizes: list[int], placed: Placement, log: str | Path | None, profile: str | Path | None
) -> Simulation:
    from syncline.sim.nccl.calibrate import calibrate
    from syncline.sim.nccl.describe import from_placement
    from syncline.sim.nccl.measured import read_log, read_text
    from syncline.sim.nccl.predict import IGNORES, predict
    from syncline.sim.nccl.wire import wires
    from syncline.sim.profile import load_profile
    from syncline.sim.step.machine import machine_from_fabric

    fabric = placed.fabric
    if log:
        ranks_of(Path(log), kind.value, placed.num_ranks, fabric)
    system = from_placement(placed)
    fitted = calibrate(system, read_log(read_text(log), str(log), kind.value)) if log else None
    if profile:
        measured = load_profile(profile)
        measured.check(machine_from_fabric(fabric).gpu.name)
        fitted = measured.collective(kind.value, system.num_hosts)
    prediction = predict(system, kind.value, sizes, calibration=fitted)
    rows = tuple(
        {
            **asdict(row),
            "wire_Bps": wire.rate_Bps,
            "limiting_link": wire.link,
            "utilisation": wire.utilisation,
            "method": "nccl",
            "exact": False,
        }
        for row, wire in zip(prediction.rows(), wires(prediction, fabric, placed.device), strict=True)
    )
    return Simulation(
        collective, fabric, system.num_ranks, "nccl", rows, tuple(IGNORES),
        how={"placement": placed.name, "assumed": list(prediction.unverified), "interval_basis": list(prediction.basis),
             "calibrated_on": str(log or profile) if fitted else None},
    )  # fmt: skip
