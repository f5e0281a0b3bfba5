"""What does a collective take on a cluster, size by size?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, ClassVar

from syncline.describe import units
from syncline.describe.model import Handle, handle
from syncline.describe.progress import Progress
from syncline.errors import SimulationError, UsageError
from syncline.fabric import Fabric
from syncline.program import Placement, place
from syncline.program.program import ProgramStep
from syncline.questions.answer import Answer, Output, Parameter, page_output, question
from syncline.questions.inputs import ClusterOption, built
from syncline.questions.simulated.algorithms import AlgorithmChoice
from syncline.questions.simulated.buffers import buffers
from syncline.questions.simulated.compare_algorithms import compare_algorithms
from syncline.questions.simulated.figures import PacketFigures
from syncline.questions.simulated.flows import flows
from syncline.questions.simulated.log_ranks import ranks_of
from syncline.questions.simulated.matrix import Matrix, read_matrix
from syncline.questions.simulated.packets import PacketArgument, PacketQuestion, run_progress
from syncline.questions.simulated.rows import CollectiveRow, DifferencePart, best_of, row_of, row_of_library
from syncline.questions.simulated.slots import slots
from syncline.questions.simulated.sweep import (
    ChunksOption,
    CrossRailOption,
    PlacementOption,
    RanksOption,
    RoutingOption,
    SeedOption,
    SizeOption,
    TransportOption,
    assumptions,
    read_sizes,
)
from syncline.questions.simulated.traffic import PATTERNS, traffic
from syncline.schedule import Kind, Schedule
from syncline.schedule.formats.files import ending_of, write
from syncline.sim.candidates import NAMES
from syncline.sim.collective.price import CollectivePricer
from syncline.sim.collective.uneven import price_uneven
from syncline.sim.flow.estimate import Estimate, bus_factor, over_seeds
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.sim.flow.wired import WiredProgram
from syncline.sim.packet import Outcome, PacketJob
from syncline.sim.sweep import Contest
from syncline.sim.transport import rails_apart, transport_on
from syncline.timeline import Timeline, save

LEVELS = ("analytic", "flow", "packet")
MOST_SEEDS = 10_000


@dataclass(frozen=True)
class SeedSpread:
    """The largest size over many seeds of the ECMP hash."""

    size_bytes: int
    algorithm: str
    median_s: float
    p10_s: float
    p90_s: float
    worst_s: float
    best_s: float
    num_seeds: int


@dataclass(frozen=True)
class Simulation(Answer):
    """A collective on a cluster: one row a size, and what the level ignores."""

    schema_name: ClassVar[str] = "simulate"
    outputs: ClassVar[Mapping[str, Output]] = {
        "trace": Output(
            "Write the timeline of the largest size (.json for Perfetto, .parquet).",
            lambda answer, path: save(answer.timeline, path),
        ),
        "schedule": Output(
            "Write the schedule of the largest size, proved (.json, or .xml for MSCCL, which cuts it itself).",
            lambda answer, path: write(answer.schedule_for(path), path),
            check=ending_of,
        ),
        **page_output("Write a page: bandwidth curve, link load, traffic matrix."),
    }

    cluster: str
    collective: str
    ranks: int
    level: str
    placement: str
    rows: tuple[CollectiveRow, ...]
    ignores: tuple[str, ...]
    assumed: tuple[str, ...]
    routing: str | None = None
    transport: str | None = None
    seed: int | None = None
    packets: PacketQuestion | None = None
    spread: SeedSpread | None = None
    interval_basis: tuple[str, ...] = ()
    calibrated_on: str | None = None
    fabric: Handle[Fabric] = handle()
    contest: Handle[Contest | None] = handle()
    """The flows of the largest size, where the level has some."""
    largest: Handle[Estimate | None] = handle()
    outcome: Handle[Outcome | None] = handle()

    @property
    def time_s(self) -> float:
        """Time of the largest size."""
        return self.rows[-1].time_s

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """The 90 % interval of the largest size's time, where the level has one."""
        row = self.rows[-1]
        return None if row.low_s is None or row.high_s is None else (row.low_s, row.high_s)

    @property
    def limiting_link(self) -> str:
        """The link that limits the largest size."""
        return self.rows[-1].limiting_link

    @property
    def algorithm(self) -> str:
        """The algorithm of the largest size."""
        return self.rows[-1].algorithm

    @cached_property
    def timeline(self) -> Timeline:
        """What every rank and link does at the largest size."""
        from syncline.sim.flow.chronicle import timeline
        from syncline.sim.flow.flow import FlowJob, simulate
        from syncline.sim.packet.chronicle import packet_timeline

        if self.outcome is not None:
            return packet_timeline(self.outcome)
        contest, largest = self._flows("timeline")
        program = contest.at(largest).program
        return timeline(simulate([FlowJob(program, largest.size_bytes)], contest.network, record=True))

    @property
    def best_schedule(self) -> Schedule:
        """The schedule of the largest size, proved: `syncline.schedule.formats` writes it for others to run."""
        contest, largest = self._flows("schedule")
        return _schedule_of(contest.at(largest))

    def schedule_for(self, path: Path) -> Schedule:
        """Return the schedule as a file's reader wants it: MSCCL's runtime loops over the buffer in chunks of its own.

        A number of chunks that was asked for is kept.
        """
        contest, largest = self._flows("schedule")
        own = ending_of(path) == ".xml" and not contest.chunks
        return _schedule_of(contest.uncut(largest)) if own else self.best_schedule

    def _flows(self, what: str) -> tuple[Contest, Estimate]:
        if self.contest is None or self.largest is None:
            raise UsageError(f"NCCL's model is a cost model without flows: it has no {what}.",
                             hint="Ask for an algorithm family, or for auto.")  # fmt: skip
        return self.contest, self.largest


@question(
    "syncline simulate {0} --cluster h100-64-rail --size 1KiB..1GiB",
    "syncline simulate {0} --cluster h100-64-rail --ranks 64 --size 64MiB --html page.html --json",
    help="Simulate this collective on a cluster.",
    line="Simulate {0}.",
)
def simulate(
    cluster: ClusterOption,
    collective: Annotated[str, Parameter(f"One of {', '.join(NAMES)}.")],
    size: SizeOption = "1KiB..16GiB",
    *,
    algorithm: Annotated[
        str,
        Parameter(
            "auto (NCCL's choice next to the best known schedule), nccl or best (one of them alone), a family, or your "
            "own .xml or .json file."
        ),
    ] = "auto",
    ranks: RanksOption = None,
    level: Annotated[
        str, Parameter("flow (links shared fairly), packet (every packet) or analytic (a bound).")
    ] = "flow",
    routing: RoutingOption = "auto",
    transport: TransportOption = "auto",
    placement: PlacementOption = "auto",
    profile: Annotated[
        str | Path | None, Parameter("With nccl: what was measured here (`syncline calibrate collective`).")
    ] = None,
    calibrate: Annotated[
        str | Path | None, Parameter("With nccl: an nccl-tests log (text or JSON) of this operation here, to fit to.")
    ] = None,
    seeds: Annotated[int, Parameter("Also give the spread over this many seeds.")] = 0,
    seed: SeedOption = 0,
    chunks: ChunksOption = 0,
    servers: Annotated[
        int, Parameter("parameter-server: how many; on GPUs that `ranks` leaves over, if it does.", rare=True)
    ] = 0,
    colocated: Annotated[
        bool, Parameter("parameter-server: servers share the GPUs of ranks.", names=("--colocated",), rare=True)
    ] = False,
    cross_rail: CrossRailOption = "fabric",
    packets: PacketArgument = None,
    progress: Progress | None = None,
) -> Simulation:
    """Say what a collective takes on a cluster, which link limits it, and what the answer ignores.

    A row is what the job's library takes (NCCL, RCCL; gloo where the cluster file says so) with its interval. Beside it
    stand the best known schedule, which no library runs, and the bound that nothing beats.

    `algorithm` is auto (both), nccl, best, a family, or a file of your own; `chunks` is how many follow each other
    through a schedule's rounds (0: as suits the size).

    >>> answer = simulate("h100-64-rail", "allreduce", "1GiB", ranks=64)
    >>> answer.ranks, answer.time_s > 0, answer.limiting_link != ""
    (64, True, True)
    """
    kind = _kind(collective)
    asked = packets or PacketQuestion()
    if level not in LEVELS:
        raise UsageError(f'no level of simulation is called "{level}".', hint="One of: analytic, flow, packet.")
    if not 0 <= seeds <= MOST_SEEDS:
        raise UsageError(f"`seeds` is {seeds:,}.", hint=f"Ask for 1 to {MOST_SEEDS:,}, or leave it out.")
    entry = AlgorithmChoice(algorithm, chunks, servers, colocated)
    entry.check()
    if calibrate and algorithm != "nccl":
        raise UsageError("`calibrate` fits the model of NCCL.", hint="Set `algorithm` to nccl.")
    if profile and (calibrate or algorithm != "nccl"):
        raise UsageError("`profile` calibrates the model of NCCL.",
                         hint="Leave `calibrate` out." if calibrate else "Set `algorithm` to nccl.")  # fmt: skip
    if level != "packet" or algorithm == "nccl":
        asked.refuse("nccl" if algorithm == "nccl" else level)
    if algorithm == "nccl":
        asked_too = {"level": level != "flow", "routing": routing != "auto", "transport": transport != "auto",
                     "seed": seed, "seeds": seeds, "cross_rail": cross_rail != "fabric"}  # fmt: skip
        for name in (name for name, given in asked_too.items() if given):
            raise UsageError(f"`{name}` does not apply to nccl, which is a cost model without flows.",
                             hint="Name a family, or use auto.")  # fmt: skip
    if seeds and level != "flow":
        raise UsageError(f"`seeds` is about flows; level {level} has none.",
                         hint="Leave `level` out, or give one `seed` at a time.")  # fmt: skip
    fabric = built(cluster)
    sizes = read_sizes(size)
    if algorithm == "nccl":
        return _nccl(collective, kind, sizes, place(placement, fabric, ranks), calibrate, profile)
    transport = transport_on(transport, fabric)  # refused where the links do not carry it
    placed = place(placement, fabric, ranks)
    if level == "packet":
        how = (transport, routing, seed, "nvlink" if rails_apart(fabric) else cross_rail)
        return _packets(fabric, collective, sizes, placed, entry, how, asked, progress)
    options = NetworkOptions(routing=routing, seed=seed, transport=transport, cross_rail=cross_rail)  # type: ignore[arg-type]
    pricer = CollectivePricer(kind, placed, options=options, candidates=partial(entry.contest, kind, placed))
    network, contest = pricer.network, pricer.contest
    library = algorithm == "auto" and level == "flow" and not pricer.refused
    if library:
        prices = pricer.at(sizes)
        rows = tuple(row_of_library(found, with_best=True) for found in prices)
        found = [each.best for each in prices]
    else:
        found = [contest.best(s, level) for s in sizes]
        rows = tuple(map(row_of, found))
    refused = (f"{pricer.refused} These are times of the best known schedule.",) if algorithm == "auto" else ()
    return Simulation(
        fabric.name, collective, placed.num_ranks, level, placed.name, rows=rows,
        ignores=pricer.ignores if library
        else tuple(dict.fromkeys(text for estimate in found for text in estimate.ignores)),
        assumed=(*(pricer.assumed if library else refused if pricer.refused else ()),
                 *assumptions(fabric, transport, network.options.routing)),
        routing=network.options.routing, transport=options.transport, seed=options.seed,
        spread=_spread(contest, found[-1], network, seeds) if seeds else None,
        interval_basis=pricer.basis(sizes) if library else (),
        fabric=fabric, contest=contest, largest=found[-1],
    )  # fmt: skip


def _schedule_of(wired: WiredProgram) -> Schedule:
    step = wired.program.steps[0]
    assert isinstance(step, ProgramStep)
    return step.proved.schedule


def _kind(collective: str) -> Kind:
    if collective not in NAMES:
        raise UsageError(f'no collective is called "{collective}".', hint=f"One of: {', '.join(NAMES)}.")
    return NAMES[collective]


def _spread(contest: Contest, best: Estimate, network: FlowNetwork, seeds: int) -> SeedSpread:
    found = over_seeds(contest.at(best).program, network, best.size_bytes, range(seeds))
    return SeedSpread(best.size_bytes, best.algorithm, **found.to_json())  # type: ignore[arg-type]


def _packets(
    fabric: Fabric,
    collective: str,
    sizes: list[int],
    placed: Placement,
    entry: AlgorithmChoice,
    how: tuple[str, str, int, str],
    asked: PacketQuestion,
    progress: Progress | None,
) -> Simulation:
    from syncline.sim.flow.wired import wire
    from syncline.sim.packet import packet_network
    from syncline.sim.packet.levels import beside, difference, plain_network, shown_options, with_posting
    from syncline.sim.packet.loaded import simulate_loaded
    from syncline.sim.packet.outcome import IGNORES

    transport, routing, seed, cross_rail = how
    network = packet_network(fabric)
    options = asked.options(network, transport, routing, seed, cross_rail=cross_rail)
    # The flow level beside the packets is that of level flow; the plain one explains the rest.
    near = FlowNetwork(fabric, shown_options(options, transport, routing))
    options = with_posting(options, near.carrier)
    shown = entry.contest(NAMES[collective], placed, near)
    chosen = replace(shown, windows=False, _cut={}, _last={})
    best = [shown.best(size, "flow") for size in sizes]
    answers = [chosen.executed(each) for each in best]
    plain = plain_network(fabric, options)
    names = dict.fromkeys(answer.algorithm for answer in answers)
    contest = Contest(plain, {name: wire(chosen.wired[name].program, plain) for name in names}, 0, windows=False)
    changes, load = asked.changes(network), asked.beside()
    rows = []
    for found_s, answer in zip((each.time_s for each in best), answers, strict=True):
        flow = replace(contest, chunks=answer.chunks).one(answer.algorithm, answer.size_bytes)
        wired, job = contest.at(flow), PacketJob(contest.at(flow).program, flow.size_bytes)
        outcome = simulate_loaded(
            network, [job], options, load, flow.time_s, changes=changes, progress=run_progress(progress)
        )
        explained = outcome.done(0) and flow.time_s > 0
        found = beside(difference(outcome, flow, wired), answer.time_s, found_s) if explained else None
        figures, time_s = PacketFigures.of(outcome), outcome.job_end_s(0)
        algbw = flow.size_bytes / time_s if time_s > 0 else 0.0
        rows.append(CollectiveRow(
            flow.size_bytes, time_s, algbw, algbw * bus_factor(flow.kind, flow.num_ranks), flow.algorithm,
            figures.busiest_link, "packets", True, chunks=flow.chunks, utilisation=figures.busiest_utilisation,
            flow_time_s=found_s, over_flow=time_s / found_s if found_s > 0 else None,
            why=tuple(found.lines()) if found else (f"packets: {outcome.state}",),
            difference={name: DifferencePart(**part) for name, part in found.to_json().items()} if found else None,
            packet=figures,
        ))  # fmt: skip
    return Simulation(
        fabric.name, collective, placed.num_ranks, "packet", placed.name,
        rows=tuple(rows), ignores=IGNORES,
        assumed=tuple(assumptions(fabric, near.carrier.name, near.options.routing)),
        routing=options.routing, transport=options.transport, seed=seed, packets=asked,
        fabric=fabric, contest=contest, largest=flow, outcome=outcome,
    )  # fmt: skip


def _nccl(
    collective: str, kind: Kind, sizes: list[int], placed: Placement, log: str | Path | None, profile: str | Path | None
) -> Simulation:
    from syncline.sim.nccl.measured import read_log, read_text
    from syncline.sim.profile import load_profile
    from syncline.sim.step.machine import machine_from_fabric
    from syncline.sim.swept import calibration_of, seen_in

    fabric = placed.fabric
    if log:
        ranks_of(Path(log), kind.value, placed.num_ranks, fabric)
    pricer = CollectivePricer(kind, placed)
    if pricer.refused:
        raise SimulationError(pricer.refused)
    system = pricer.system
    fitted = None
    if log:
        seen = seen_in(system, read_log(read_text(log), str(log), kind.value))
        fitted = calibration_of(seen, kind.value, system.num_hosts)
    if profile:
        measured = load_profile(profile)
        measured.check(machine_from_fabric(fabric).gpu.name)
        fitted = measured.collective(kind.value, system.num_hosts)
    pricer = replace(pricer, calibration=fitted)
    return Simulation(
        fabric.name, collective, placed.num_ranks, "nccl", placed.name,
        tuple(row_of_library(found, with_best=False) for found in pricer.at(sizes)), pricer.ignores, pricer.assumed,
        interval_basis=pricer.basis(sizes), calibrated_on=str(log or profile) if fitted else None, fabric=fabric,
    )  # fmt: skip


@question(
    "syncline simulate alltoallv sent.csv --cluster h100-64-rail",
    "syncline simulate alltoallv sent.json --cluster cluster.yaml --placement spread --json",
    line="Simulate an all-to-all of uneven sizes (MoE layers, recommenders).",
)
def alltoallv(
    cluster: ClusterOption,
    matrix: Annotated[
        Matrix,
        Parameter(
            "CSV, or a JSON list of rows: what rank i sends to rank j, in bytes (or 1MiB).", kind=str, metavar="FILE"
        ),
    ],
    *,
    routing: RoutingOption = "auto",
    transport: TransportOption = "auto",
    placement: PlacementOption = "auto",
    seed: SeedOption = 0,
    cross_rail: CrossRailOption = "fabric",
) -> Simulation:
    """Predict an all-to-all in which pairs exchange different amounts.

    The answer is the time of the job's library, next to every message sent directly (flow level) and the bound. Sizes
    and bandwidths are of the mean send buffer.

    >>> alltoallv("h100-64-rail", [["0", "1MiB"], ["64MiB", "0"]]).ranks
    2
    """
    sent = read_matrix(matrix)
    fabric = built(cluster)
    transport = transport_on(transport, fabric)
    options = NetworkOptions(routing=routing, seed=seed, transport=transport, cross_rail=cross_rail)  # type: ignore[arg-type]
    placed = place(placement, fabric, len(sent))
    found = price_uneven(sent, placed, options)
    row, straight, time = row_of(found.straight), found.straight, found.library
    if time is not None:
        scale = found.mean_bytes / time.time_s
        row = CollectiveRow(
            found.mean_bytes, time.time_s, scale, scale * bus_factor(Kind.ALL_TO_ALL, len(sent)), time.algorithm,
            straight.limiting_link_name, "nccl", False, bound_s=found.bound_s, low_s=time.low_s, high_s=time.high_s,
            low50_s=time.low50_s, high50_s=time.high50_s, library=time.library, channels=time.channels,
            best=best_of(min(straight, replace(straight, time_s=time.time_s, algorithm=time.algorithm, method="nccl"),
                             key=lambda each: each.time_s)),
        )  # fmt: skip
    equal = f"priced as the equal all-to-all of {units.show_given_size(found.equal_bytes)} a rank, which the fabric " \
            f"can finish as soon; the mean send buffer is {units.show_given_size(found.mean_bytes)}"  # fmt: skip
    return Simulation(
        fabric.name, "alltoallv", placed.num_ranks, "flow", placed.name, rows=(row,), ignores=straight.ignores,
        assumed=(equal if time is not None else found.refused,
                 *assumptions(fabric, transport, found.contest.network.options.routing)),
        routing=found.contest.network.options.routing, transport=transport, seed=seed, fabric=fabric,
        contest=found.contest, largest=straight,
    )  # fmt: skip


COMMANDS = {
    **{name: partial(simulate, collective=name) for name in NAMES},
    "alltoallv": alltoallv,
    "compare": compare_algorithms,
    **{name: partial(traffic, pattern=name) for name in PATTERNS},
    "flows": flows,
    "buffers": buffers,
    "slots": slots,
}
HELP = "Simulate a collective on a cluster: time, bandwidths and the limiting link, size by size."
EXAMPLES = (
    "syncline simulate allreduce --cluster h100-64-rail --size 1KiB..16GiB",
    "syncline simulate allreduce --cluster h100-64-rail --algorithm ring --routing ecmp --seeds 20 --size 1GiB",
    "syncline simulate alltoall --cluster cluster.yaml --size 1MiB..1GiB --level analytic --json",
    "syncline simulate allreduce --cluster h100-64-rail --size 64MiB --schedule best.xml",
    "syncline simulate allreduce --cluster h100-64-rail --algorithm mine.xml --size 64MiB --chunks 16",
    "syncline simulate allreduce --cluster h100-64-rail --ranks 448 --algorithm parameter-server --servers 8",
    "syncline simulate compare --cluster h100-64-rail        which algorithm wins at which size",
    "syncline scenario shared.yaml     several jobs, tenants with guarantees, failures, stragglers, other traffic",
)
