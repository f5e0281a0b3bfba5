"""Packet runs as timelines: every message as a span at both ends, what every link carried and how its queue was."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from syncline.describe.plain import JsonObject
from syncline.sim.packet.network import Longs
from syncline.sim.packet.outcome import IGNORES, Outcome
from syncline.sim.packet.posting import PacketJob
from syncline.timeline import Timeline, TimelineBuilder
from syncline.timeline.source import Source, SourceKind
from syncline.timeline.spans import SpanKind
from syncline.version import __version__


def packet_timeline(outcome: Outcome) -> Timeline:
    """Return the outcome as a timeline; its metadata holds the counters and what queues did.

    Ranks are those of a job's program, or endpoints of the network for raw traffic.
    """
    source = Source(
        SourceKind.SIMULATED_PACKET, "syncline packet", __version__, IGNORES, outcome.options.seed % (1 << 31)
    )
    builder = TimelineBuilder(source, metadata=_metadata(outcome))
    _add_links(builder, outcome)
    first_rank = 0
    for number, job in enumerate(outcome.jobs):
        _add_spans(builder, outcome, number, first_rank)
        first_rank += job.program.num_ranks if isinstance(job, PacketJob) else len(outcome.network.endpoints)
    return builder.build()


def _metadata(outcome: Outcome) -> JsonObject:
    options, ports = outcome.options, outcome.ports
    return {
        "state": outcome.state,
        "completion": asdict(outcome.completion),
        "counters": dict(outcome.counters),
        "peak_queue_bytes": int(ports["peak_bytes"].max(initial=0)),
        "paused_s": float(ports["paused_ps"].sum() / 1e12),
        "deadlock": list(outcome.cycle),
        "busiest_link": outcome.network.port_name(outcome.busiest),
        "transport": options.transport,
        "routing": options.routing,
        "payload_bytes": options.payload_bytes,
        "queues": [asdict(row) for row in queue_rows(outcome)],
    }


@dataclass(frozen=True)
class QueueRow:
    """What one link's queue did."""

    link: str
    paused_s: float
    peak_bytes: int
    marks: int
    drops: int
    trims: int
    pauses: int


def queue_rows(outcome: Outcome, most: int = 32) -> list[QueueRow]:
    """Return the links with the deepest queues: depth, marks, drops, pauses."""
    ports = outcome.ports
    order = np.argsort(-ports["peak_bytes"], kind="stable")[:most]
    return [
        QueueRow(
            outcome.network.port_name(int(port)),
            float(ports["paused_ps"][port] / 1e12),
            *(int(ports[name][port]) for name in ("peak_bytes", "marks", "drops", "trims", "pauses")),
        )
        for port in order
        if ports["peak_bytes"][port] > 0
    ]


def _add_links(builder: TimelineBuilder, outcome: Outcome) -> None:
    network, carried = outcome.network, outcome.ports["wire_bytes"]
    end = max(outcome.now_s, 1e-12)
    watched = {} if outcome.sampled is None else {link: i for i, link in enumerate(outcome.sampled.links)}
    for port in np.flatnonzero(carried > 0).tolist():
        link = int(network.link[port])
        name = network.port_name(port)
        if name in builder._links:  # parallel cables have one name
            name = f"{name} #{port}"
        index = builder.link(name, float(network.rate_Bps[port]))
        if outcome.sampled is not None and link in watched and len(outcome.sampled.time_s) > 1:
            time = outcome.sampled.time_s
            size = np.diff(outcome.sampled.wire_bytes[:, watched[link]])
            builder.add_samples(link=index, start_s=time[:-1], end_s=time[1:], size_bytes=size.astype(np.float64))
        else:
            builder.add_samples(link=[index], start_s=[0.0], end_s=[end], size_bytes=[float(carried[port])])


def _add_spans(builder: TimelineBuilder, outcome: Outcome, number: int, first_rank: int) -> None:
    job = outcome.jobs[number]
    raw = not isinstance(job, PacketJob)
    name = job.name or (job.program.name if isinstance(job, PacketJob) else "traffic")
    for block in outcome.blocks:
        if block.job != number:
            continue
        rows = block.first + np.arange(block.parts * len(block.src))
        begin, end = (c[rows].reshape(block.parts, -1) for c in (outcome.begin_s, outcome.end_s))
        done = np.flatnonzero((end >= 0).all(axis=0))
        src, dst = (_places(outcome, ends[done]) if raw else ends[done] for ends in (block.src, block.dst))
        for mine, other, kind in ((src, dst, SpanKind.SEND), (dst, src, SpanKind.RECV)):
            builder.add_spans(
                rank=(first_rank + mine).astype(np.int32),
                start_s=begin.min(axis=0)[done],
                end_s=end.max(axis=0)[done],
                kind=kind,
                name=name,
                stream=block.lane,
                step=number,
                round=block.round,
                size_bytes=block.size_bytes[done].astype(np.int64),
                peer=(first_rank + other).astype(np.int32),
            )


def _places(outcome: Outcome, devices: Longs) -> Longs:
    """Return the endpoint of each device; a GPU that is none counts as the first of its host."""
    found = outcome.network.endpoint_of[devices]
    if (found >= 0).all():
        return found
    host = outcome.network.fabric.devices.host
    of_host = {int(host[e]): i for i, e in reversed(list(enumerate(outcome.network.endpoints)))}
    rows = [int(f) if f >= 0 else of_host[int(host[d])] for f, d in zip(found, devices, strict=True)]
    return np.array(rows, np.int64)
