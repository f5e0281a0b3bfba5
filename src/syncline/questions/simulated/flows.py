"""What do flows from a file, or drawn by distribution and load, take, packet by packet?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isinf
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from syncline.describe import units
from syncline.describe.files import check_writable
from syncline.describe.model import Handle, handle
from syncline.describe.progress import Progress
from syncline.errors import UsageError
from syncline.fabric import Fabric
from syncline.questions.answer import Answer, OptionGroup, Output, Parameter, page_output, question
from syncline.questions.inputs import ClusterOption, built
from syncline.questions.simulated.packets import PacketQuestion, RoutingArgument, TransportArgument, run_progress
from syncline.sim.packet import Completion, Outcome, Traffic, Watching, packet_network, simulate, transport_set
from syncline.sim.packet.flow_file import read_flows
from syncline.sim.packet.flow_table import FlowTable, SlowdownRow, flow_table
from syncline.sim.packet.law import load_law
from syncline.sim.packet.options import with_classes, with_law
from syncline.sim.packet.outcome import IGNORES
from syncline.sim.packet.pcap import write_pcap
from syncline.sim.packet.traffic import SIZES, background

CDF_POINTS = 100
FLOW_OPTIONS = ("loss", "buffer", "payload", "mtu", "recovery", "pfc", "ecn", "fail", "reroute")


@dataclass(frozen=True)
class Distribution:
    """Completion times, and the share of flows that took no longer."""

    time_s: tuple[float, ...]
    share: tuple[float, ...]


@dataclass(frozen=True)
class Slowdowns:
    """Flows of one range of sizes: how many times longer they took than alone on an empty path."""

    upto_bytes: int | None
    """The last range, and the row of all flows, have no upper end."""
    count: int
    mean: float
    p50: float
    p95: float
    p99: float
    p999: float

    @classmethod
    def of(cls, row: SlowdownRow) -> Slowdowns:
        """Return a row of the table."""
        upto = None if isinf(row.upto_bytes) else int(row.upto_bytes)
        return cls(upto, row.count, row.mean, row.p50, row.p95, row.p99, row.p999)


@dataclass(frozen=True)
class FlowRun:
    """The flows under one transport."""

    transport: str
    state: str
    time_s: float
    missing: int
    inside_hosts: int
    completion: Completion
    slowdown: tuple[Slowdowns, ...]
    cdf: Distribution | None
    resent_packets: int
    counters: dict[str, int]
    peak_queue_bytes: int


@dataclass(frozen=True)
class FlowsAnswer(Answer):
    """Flows packet by packet: completion times and slowdowns by size, under one transport or two."""

    schema_name: ClassVar[str] = "simulate-flows"
    outputs: ClassVar[Mapping[str, Output]] = {
        "out": Output(
            "Write a row a flow (.csv or .parquet).",
            lambda answer, path: answer.results[0][1].write(path),
            check=lambda path: _check_table(path),
        ),
        **page_output("Write a page: queues, marks and rates over time."),
    }

    cluster: str
    flows: int
    source: str
    size_bytes: int
    connections: str
    routing: str
    seed: int
    packets: PacketQuestion
    runs: tuple[FlowRun, ...]
    pcap: dict[str, int]
    """Files of captured packets, and how many each holds."""
    ignores: tuple[str, ...] = IGNORES
    results: Handle[tuple[tuple[Outcome, FlowTable], ...]] = handle()


@question(
    "syncline simulate flows flows.csv --cluster fat-tree-1024 --transport dctcp --out done.csv",
    "syncline simulate flows --cluster fat-tree-1024 --load 0.3 --sizes websearch --duration 200us --against hpcc",
    "syncline simulate flows perm.cm --cluster fat-tree-1024 --transport dctcp --law examples/laws/aimd.cpp --json",
)
def flows(
    cluster: ClusterOption,
    file: Annotated[str | Path | None, Parameter("CSV, htsim's .cm, or flow.txt of HPCC and SimAI.")] = None,
    *,
    load: Annotated[float | None, Parameter("Instead of a file: the share of access links to fill.")] = None,
    sizes: Annotated[str, Parameter("With `load`: websearch, hadoop, storage or collectives.")] = "websearch",
    duration: Annotated[str, Parameter("With `load`: for how long flows start.")] = "1ms",
    connections: Annotated[str, Parameter("own (one a flow) or shared (one a pair of hosts).", rare=True)] = "own",
    transport: TransportArgument = "dcqcn",
    against: Annotated[str | None, Parameter("Run the same under this transport, side by side.")] = None,
    law: Annotated[str | Path | None, Parameter("Your own congestion control: a .cpp or .py file.")] = None,
    routing: RoutingArgument = "auto",
    seed: Annotated[int, Parameter("Seed of hashes, marks, losses and drawn flows.", rare=True)] = 0,
    pcap: Annotated[
        Sequence[str],
        Parameter(
            "Capture what a link sends, for Wireshark: leaf-00->host-01/nic-0=a.pcap.", metavar="A->B=FILE", rare=True
        ),
    ] = (),
    packets: Annotated[PacketQuestion | None, OptionGroup(PacketQuestion, only=FLOW_OPTIONS)] = None,
    progress: Progress | None = None,
) -> FlowsAnswer:
    """Simulate flows packet by packet: from a file, or drawn from a size distribution at a load."""
    fabric = built(cluster)
    network = packet_network(fabric)
    traffic = _traffic(fabric, file, load, sizes, duration, connections, seed)
    asked = packets or PacketQuestion()
    captures = [_capture(fabric, text) for text in pcap]
    own_law = None if law is None else load_law(Path(law))
    runs: list[FlowRun] = []
    results: list[tuple[Outcome, FlowTable]] = []
    for name in filter(None, (transport, against)):
        transport_set(name)
        options = with_classes(asked.options(network, name, routing, seed), int(np.max(traffic.traffic_class)))
        shown = name
        if own_law is not None and not runs:
            options = with_law(options, own_law)
            shown = f"{own_law.name} ({own_law.language}) on {options.transport}"
        links = () if runs else tuple(link for link, _ in captures)
        outcome = simulate(
            network, [traffic], options, changes=asked.changes(network),
            watching=Watching(1.0, capture=links) if links else None, progress=run_progress(progress),
        )  # fmt: skip
        results.append((outcome, flow_table(outcome)))
        runs.append(_run(shown, *results[-1]))
    return FlowsAnswer(
        fabric.name, len(traffic), str(file) if file else f"{sizes} at load {load}", int(traffic.size_bytes.sum()),
        connections, options.routing, seed, asked, tuple(runs),
        {str(path): write_pcap(path, results[0][0], link) for link, path in captures}, results=tuple(results),
    )  # fmt: skip


def _run(name: str, outcome: Outcome, table: FlowTable) -> FlowRun:
    times, share = table.cdf(CDF_POINTS)
    return FlowRun(
        name, outcome.state, outcome.end_of_run_s, table.num_missing, table.num_inside, outcome.completion,
        tuple(map(Slowdowns.of, table.by_size())),
        Distribution(tuple(times.tolist()), tuple(share.tolist())) if len(table) else None,
        int(table.resent_packets.sum()), {key: int(count) for key, count in outcome.counters.items()},
        int(outcome.ports["peak_bytes"].max(initial=0)),
    )  # fmt: skip


def _traffic(
    fabric: Fabric,
    file: str | Path | None,
    load: float | None,
    sizes: str,
    duration: str,
    connections: Any,
    seed: int,
) -> Traffic:
    if connections not in ("own", "shared"):
        raise UsageError(f'`connections` is "{connections}".', hint="One of: own, shared.")
    if (file is None) == (load is None):
        raise UsageError(
            "flows come from a file or from `load`, one of the two.", hint="Give a file, or a load of 0.3."
        )
    if file is not None:
        return read_flows(file, fabric, connections=connections)
    if sizes not in SIZES:
        raise UsageError(f'no distribution of sizes is called "{sizes}".', hint=f"One of: {', '.join(SIZES)}.")
    assert load is not None
    found = background(fabric, load, units.time(duration), sizes=SIZES[sizes], seed=seed)
    if len(found) == 0:
        raise UsageError(f"no flow starts within {duration} at load {load}.", hint="Give a longer `duration`.")
    return replace(found, connections=connections)


def _capture(fabric: Fabric, text: str) -> tuple[int, Path]:
    """Read "leaf-00->host-01/nic-0=a.pcap" as a link, in that direction, and a file."""
    place, equals, path = text.rpartition("=")
    source, arrow, target = (part.strip() for part in place.partition("->"))
    links, name = fabric.links, fabric.device_name
    if not equals or not arrow:
        raise UsageError(f'`pcap` "{text}" names no link and file.', hint="Write leaf-00->host-01/nic-0=a.pcap.")
    for link in range(len(links)):
        if name(int(links.src[link])) == source and name(int(links.dst[link])) == target:
            check_writable(Path(path))
            return link, Path(path)
    raise UsageError(f"there is no link from {source} to {target}.", hint="`syncline fabric links CLUSTER` lists them.")


def _check_table(path: Path) -> None:
    if path.suffix not in (".csv", ".parquet"):
        raise UsageError(f'"{path}" is neither .csv nor .parquet.', hint="Name a file that ends in one of them.")
