"""What do several jobs, tenants, failures and other traffic do to each other on one cluster?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from syncline.describe.guide import cite
from syncline.describe.mistakes import blamed_on
from syncline.describe.model import Handle, handle
from syncline.describe.progress import Progress
from syncline.errors import UsageError
from syncline.fabric import Fabric, load
from syncline.questions.answer import Answer, OptionGroup, Output, Parameter, question
from syncline.questions.inputs import Cluster, built
from syncline.questions.simulated.packets import PacketQuestion, run_progress
from syncline.sharing.epochs import BusyLink
from syncline.sim.flow.chronicle import timeline as flow_timeline
from syncline.sim.flow.flow import IGNORES, FlowOutcome
from syncline.sim.flow.routing import FlowNetwork
from syncline.sim.packet import Outcome, PacketNetwork, PacketOptions, packet_network
from syncline.sim.packet.chronicle import packet_timeline
from syncline.sim.packet.levels import shown_options, with_posting
from syncline.sim.packet.outcome import IGNORES as PACKET_IGNORES
from syncline.sim.packet.play import Other, PacketJobReport, play_packets
from syncline.sim.play import JobReport, play
from syncline.sim.scenario import Scenario, load_scenario
from syncline.sim.transport import transport_on
from syncline.timeline import Timeline, save

TRACE = Output("Write the timeline (.json for Perfetto, .parquet).", lambda answer, path: save(answer.timeline, path))
SCENARIO_OPTIONS = ("loss", "buffer", "payload", "mtu", "recovery", "pfc", "ecn", "background")


@dataclass(frozen=True)
class ScenarioReport(Answer):
    """What each job of a scenario lost against having the cluster to itself, at flow level."""

    schema_name: ClassVar[str] = "scenario"
    outputs: ClassVar[Mapping[str, Output]] = {"trace": TRACE}

    scenario: str
    cluster: str
    makespan_s: float
    jobs: tuple[JobReport, ...]
    busiest_links: tuple[BusyLink, ...]
    level: str = "flow"
    ignores: tuple[str, ...] = IGNORES
    record: Handle[Callable[[], FlowOutcome]] = handle()

    @property
    def timeline(self) -> Timeline:
        """What every rank and link did: the scenario played again, and recorded."""
        return flow_timeline(self.record())


@dataclass(frozen=True)
class PacketScenarioReport(Answer):
    """The same, packet by packet, beside the flow level's time."""

    schema_name: ClassVar[str] = "scenario-packet"
    outputs: ClassVar[Mapping[str, Output]] = {"trace": TRACE}

    scenario: str
    cluster: str
    transport: str
    routing: str
    seed: int
    makespan_s: float
    flow_makespan_s: float
    classes: tuple[str, ...]
    jobs: tuple[PacketJobReport, ...]
    others: tuple[Other, ...]
    counters: dict[str, int]
    busiest_link: str
    busiest_utilisation: float
    peak_queue_bytes: int
    packets: PacketQuestion
    level: str = "packet"
    ignores: tuple[str, ...] = PACKET_IGNORES
    outcome: Handle[Outcome] = handle()

    @property
    def timeline(self) -> Timeline:
        """What every port did."""
        return packet_timeline(self.outcome)


@question(
    "syncline scenario shared.yaml --cluster h100-64-rail",
    "syncline scenario shared.yaml --trace shared.json --json",
    "syncline scenario shared.yaml --level packet --transport dctcp --loss 0.0001 --background 0.2:storage",
)
def scenario(
    file: Annotated[str | Path | Scenario, Parameter(f"The scenario ({cite('scenario')} has the keys).", kind=Path)],
    *,
    cluster: Annotated[
        Cluster | None,
        Parameter("The cluster, if the file names none.", names=("--cluster", "-c"), metavar="FILE|PRESET", kind=str),
    ] = None,
    level: Annotated[str, Parameter("flow (links shared fairly) or packet (every packet).")] = "flow",
    transport: Annotated[str | None, Parameter("Packet level: dcqcn (default), dctcp, ndp, roce ...")] = None,
    routing: Annotated[
        str | None, Parameter("Packet level: ecmp, flowlet, adaptive, spray ... (default: the file's).")
    ] = None,
    seed: Annotated[
        int | None, Parameter("Packet level: seed of hashes, marks and losses (default: the file's).", rare=True)
    ] = None,
    packets: Annotated[PacketQuestion | None, OptionGroup(PacketQuestion, only=SCENARIO_OPTIONS)] = None,
    progress: Progress | None = None,
) -> ScenarioReport | PacketScenarioReport:
    """Play a scenario; report each job's slowdown against running alone."""
    asked = packets or PacketQuestion()
    if level not in ("flow", "packet"):
        raise UsageError(f'a scenario cannot be played at level "{level}".', hint="One of: flow, packet.")
    described = file if isinstance(file, Scenario) else load_scenario(Path(file))
    name = described.name if isinstance(file, Scenario) else str(file)
    fabric = _fabric(described, name, cluster)
    if level == "packet":
        with blamed_on(name):
            return _packets(described, fabric, asked, (transport, routing, seed), progress)
    asked.refuse(level)
    for option, value in (("transport", transport), ("routing", routing), ("seed", seed)):
        if value is not None:
            hint = f"Write network: {{{option}: ...}} in {name}."
            raise UsageError(f"`{option}` needs the packet level.", hint=hint)
    with blamed_on(name):
        found = play(described, fabric)
    busiest = tuple(BusyLink(link, use) for link, use in found.busiest)
    return ScenarioReport(
        described.name, fabric.name, found.outcome.makespan_s, found.jobs, busiest,
        record=lambda: play(described, fabric, record=True).outcome,
    )  # fmt: skip


def _fabric(described: Scenario, source: str, cluster: Cluster | None) -> Fabric:
    if cluster is not None:
        return built(cluster)
    if described.cluster is None:
        raise UsageError(f"{source} names no cluster.", hint="Add `cluster: FILE|PRESET` to it, or give `cluster`.")
    beside = Path(source).parent / described.cluster
    return load(beside if beside.is_file() else described.cluster)


def _packets(
    described: Scenario,
    fabric: Fabric,
    asked: PacketQuestion,
    how: tuple[str | None, str | None, int | None],
    progress: Progress | None,
) -> PacketScenarioReport:
    network = packet_network(fabric)
    options = _options(described, network, asked, how)
    found = play_packets(described, network, options, beside=asked.beside(), progress=run_progress(progress))
    outcome, busiest = found.outcome, found.outcome.busiest
    return PacketScenarioReport(
        described.name, fabric.name, outcome.options.transport, outcome.options.routing, outcome.options.seed,
        found.makespan_s, found.flow.outcome.makespan_s, found.classes, found.jobs, found.others,
        {name: int(count) for name, count in outcome.counters.items()}, outcome.network.port_name(busiest),
        float(outcome.utilisation()[busiest]), int(outcome.ports["peak_bytes"].max(initial=0)), asked, outcome=outcome,
    )  # fmt: skip


def _options(
    described: Scenario, network: PacketNetwork, asked: PacketQuestion, how: tuple[str | None, str | None, int | None]
) -> PacketOptions:
    transport, routing, seed = how
    own = described.network
    if transport is None and own.transport == "ideal":
        raise UsageError('"ideal" is a transport of the flow level.', hint="Set `transport` to dctcp, srd ...")
    if routing is None and own.routing == "static":
        raise UsageError('routing "static" exists at the flow level only.', hint="Set `routing` to ecmp, first ...")
    named = transport or transport_on(own.transport, network.fabric)
    found = asked.options(
        network, named, routing or own.routing, own.seed if seed is None else seed, cross_rail=own.cross_rail
    )
    return with_posting(found, FlowNetwork(network.fabric, shown_options(found, named, found.routing)).carrier)


COMMANDS = {"": scenario}
