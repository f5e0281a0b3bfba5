"""What do several jobs, tenants, failures and other traffic do to each other on one cluster?"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.describe.mistakes import blamed_on
from syncline.describe.plain import JsonObject
from syncline.errors import UsageError
from syncline.fabric import Fabric, load
from syncline.questions.answer import Answer
from syncline.questions.cluster import Cluster, built
from syncline.questions.simulated.packets import PacketQuestion, ProgressBlock
from syncline.sim.flow.flow import IGNORES
from syncline.sim.flow.routing import FlowNetwork
from syncline.sim.play import Report, play
from syncline.sim.scenario import Scenario, load_scenario
from syncline.sim.transport import transport_on
from syncline.timeline import Timeline

if TYPE_CHECKING:
    from syncline.sim.packet import PacketNetwork, PacketOptions
    from syncline.sim.packet.play import PacketReport


@dataclass(frozen=True, eq=False)
class ScenarioReport(Answer):
    """What each job of a scenario lost against having the cluster to itself, at flow level."""

    name: str
    cluster: str
    report: Report = field(repr=False)

    @property
    def makespan_s(self) -> float:
        return self.report.outcome.makespan_s

    @property
    def timeline(self) -> Timeline:
        """What every rank and link did; needs `record=True`."""
        from syncline.sim.flow.chronicle import timeline

        return timeline(self.report.outcome)

    def to_json(self) -> JsonObject:
        return {
            "scenario": self.name,
            "cluster": self.cluster,
            "makespan_s": self.makespan_s,
            "jobs": [
                {
                    "name": job.name, "tenant": job.tenant, "ranks": job.num_ranks, "start_s": job.start_s,
                    "end_s": job.end_s, "took_s": job.took_s, "alone_s": job.alone_s, "slowdown": job.slowdown,
                }
                for job in self.report.jobs
            ],
            "busiest_links": [{"link": link, "mean_utilisation": use} for link, use in self.report.busiest],
            "level": "flow",
            "ignores": list(IGNORES),
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class PacketScenarioReport(Answer):
    """The same, packet by packet, beside the flow level's time."""

    name: str
    report: PacketReport = field(repr=False)
    asked: Mapping[str, Any] = field(default_factory=dict)

    @property
    def makespan_s(self) -> float:
        return self.report.makespan_s

    @property
    def timeline(self) -> Timeline:
        from syncline.sim.packet.chronicle import packet_timeline

        return packet_timeline(self.report.outcome)

    def to_json(self) -> JsonObject:
        report, outcome, options = self.report, self.report.outcome, self.report.outcome.options
        figures = outcome.to_json()
        return {
            "scenario": self.name, "cluster": outcome.network.fabric.name, "level": "packet",
            "transport": options.transport, "routing": options.routing, "seed": options.seed,
            "makespan_s": report.makespan_s, "flow_makespan_s": report.flow.outcome.makespan_s,
            "classes": list(report.classes),
            "jobs": [
                {
                    "name": job.name, "tenant": job.tenant, "ranks": job.num_ranks, "class": job.traffic_class,
                    "start_s": job.start_s, "end_s": job.end_s, "took_s": job.took_s, "alone_s": job.alone_s,
                    "slowdown": job.slowdown, "flow_s": job.flow_s, "completion": job.completion.to_json(),
                    **job.tally,
                }
                for job in report.jobs
            ],
            "others": [
                {"name": other.name, "completion": other.completion.to_json(), **other.tally}
                for other in report.others
            ],
            "counters": figures["counters"], "busiest_link": figures["busiest_link"],
            "busiest_utilisation": figures["busiest_utilisation"], "peak_queue_bytes": figures["peak_queue_bytes"],
            "ignores": figures["ignores"], "asked": dict(self.asked),
        }  # fmt: skip


def scenario(
    source: str | Path | Scenario,
    *,
    cluster: Cluster | None = None,
    level: str = "flow",
    transport: str | None = None,
    routing: str | None = None,
    seed: int | None = None,
    packets: PacketQuestion | None = None,
    record: bool = False,
    shown: ProgressBlock = lambda words: nullcontext(),
) -> ScenarioReport | PacketScenarioReport:
    """Play a scenario and say what each job lost against having the cluster to itself."""
    asked = packets or PacketQuestion()
    if level not in ("flow", "packet"):
        raise UsageError(f'a scenario cannot be played at level "{level}".', hint="One of: flow, packet.")
    described = source if isinstance(source, Scenario) else load_scenario(Path(source))
    name = described.name if isinstance(source, Scenario) else str(source)
    fabric = _fabric(described, name, cluster)
    if level == "packet":
        with blamed_on(name):
            return _packets(described, fabric, asked, (transport, routing, seed), shown)
    asked.refuse(level)
    for option, value in (("transport", transport), ("routing", routing), ("seed", seed)):
        if value is not None:
            hint = f"Write network: {{{option}: ...}} in {name}."
            raise UsageError(f"--{option} needs the packet level.", hint=hint)
    with blamed_on(name):
        return ScenarioReport(described.name, fabric.name, play(described, fabric, record=record))


def _fabric(described: Scenario, source: str, cluster: Cluster | None) -> Fabric:
    if cluster is not None:
        return built(cluster)
    if described.cluster is None:
        raise UsageError(f"{source} names no cluster.", hint="Add `cluster: FILE|PRESET` to it, or give --cluster.")
    beside = Path(source).parent / described.cluster
    return load(beside if beside.is_file() else described.cluster)


def _packets(
    described: Scenario,
    fabric: Fabric,
    asked: PacketQuestion,
    how: tuple[str | None, str | None, int | None],
    shown: ProgressBlock,
) -> PacketScenarioReport:
    from syncline.sim.packet import packet_network
    from syncline.sim.packet.play import play_packets

    network = packet_network(fabric)
    options = _options(described, network, asked, how)
    with shown(described.name) as report:
        found = play_packets(described, network, options, beside=asked.beside(), progress=report)
    return PacketScenarioReport(described.name, found, asked.shown())


def _options(
    described: Scenario, network: PacketNetwork, asked: PacketQuestion, how: tuple[str | None, str | None, int | None]
) -> PacketOptions:
    from syncline.sim.packet.levels import shown_options, with_posting

    transport, routing, seed = how
    own = described.network
    if transport is None and own.transport == "ideal":
        raise UsageError('"ideal" is a transport of the flow level.', hint="Add --transport dctcp, srd ...")
    if routing is None and own.routing == "static":
        raise UsageError('routing "static" exists at the flow level only.', hint="Add --routing ecmp, first ...")
    named = transport or transport_on(own.transport, network.fabric)
    found = asked.options(
        network, named, routing or own.routing, own.seed if seed is None else seed, cross_rail=own.cross_rail
    )
    return with_posting(found, FlowNetwork(network.fabric, shown_options(found, named, found.routing)).carrier)
