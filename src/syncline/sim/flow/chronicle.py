"""Outcomes as timelines: every transfer as a span at both ends, every link's load as samples."""

from __future__ import annotations

import numpy as np

from syncline.program.program import ProgramStep
from syncline.sim.flow.engine import Ints
from syncline.sim.flow.flow import IGNORES, FlowOutcome, JobTasks
from syncline.timeline import Timeline, TimelineBuilder
from syncline.timeline.collective import canonical
from syncline.timeline.source import Source, SourceKind
from syncline.timeline.spans import SpanKind
from syncline.version import __version__


def timeline(outcome: FlowOutcome) -> Timeline:
    """Return the outcome of `simulate(..., record=True)` as a timeline; ranks are those of the job, job by job."""
    seed = outcome.network.options.seed
    source = Source(SourceKind.SIMULATED_FLOW, "syncline flow", __version__, IGNORES, seed)
    builder = TimelineBuilder(source, {"collectives": _collectives(outcome)})
    _add_links(builder, outcome)
    first_rank = 0
    for number, placed in enumerate(outcome.jobs):
        _add_job(builder, outcome, placed, number, first_rank)
        first_rank += placed.wired.num_vertices
    return builder.build()


def _collectives(outcome: FlowOutcome) -> list[dict[str, object]]:
    """Return each job's collective under its one name, with how long it took: a lone collective is no step."""
    found: list[dict[str, object]] = []
    for number, placed in enumerate(outcome.jobs):
        job, collective = placed.job, placed.job.program.collective
        first = job.program.steps[0]
        codec = first.codec.name if isinstance(first, ProgramStep) else ""
        name = canonical(str(collective.kind), round(job.size_bytes), codec=codec)
        took_s = float(outcome.job_end_s[number])
        row = {"name": str(name), "count": 1, "size_bytes": round(job.size_bytes), "ranks": collective.num_ranks}
        found.append({**row, "time_s": took_s})
    return found


def _add_links(builder: TimelineBuilder, outcome: FlowOutcome) -> None:
    course, network = outcome.course, outcome.network
    used = np.flatnonzero(course.link_bytes > 0)
    number = np.full(len(course.link_bytes), -1, dtype=np.int32)
    for link in used:
        name = network.link_name(int(link))
        if name in builder._links:  # parallel cables have one name
            name = f"{name} #{link}"
        number[link] = builder.link(name, float(network.capacity_Bps[link]))
    if len(course.sample_link):
        keep = np.flatnonzero(number[course.sample_link] >= 0)
        builder.add_samples(
            link=number[course.sample_link[keep]],
            start_s=course.sample_begin_s[keep],
            end_s=course.sample_end_s[keep],
            size_bytes=(course.sample_end_s - course.sample_begin_s)[keep] * course.sample_Bps[keep],
            rate_Bps=course.sample_Bps[keep],
        )


def _add_job(builder: TimelineBuilder, outcome: FlowOutcome, placed: JobTasks, number: int, first_rank: int) -> None:
    name = placed.job.name or placed.job.program.name
    begin, end = outcome.course.begin_s, outcome.course.end_s
    spans = np.flatnonzero(end[placed.start] > begin[placed.start])
    if len(spans):
        rows = placed.start[spans]
        builder.add_spans(
            rank=(first_rank + spans).astype(np.int32),
            start_s=begin[rows],
            end_s=end[rows],
            kind=SpanKind.COMPUTE,
            name="compute",
        )
    for block in placed.blocks:
        phase = placed.wired.lanes[block.lane].phases[block.phase]
        rows = block.first + np.arange(len(phase))
        size = placed.wired.flow_bytes(block.lane, block.phase, placed.job.size_bytes).astype(np.int64)
        for mine, other, kind in ((phase.src, phase.dst, SpanKind.SEND), (phase.dst, phase.src, SpanKind.RECV)):
            builder.add_spans(
                rank=_ranks(mine, first_rank),
                start_s=begin[rows],
                end_s=end[rows],
                kind=kind,
                name=name,
                stream=block.lane,
                step=number,
                round=block.round,
                size_bytes=size,
                peer=_ranks(other, first_rank),
            )


def _ranks(vertices: np.ndarray[tuple[int], np.dtype[np.int64]], first: int) -> Ints:
    return (vertices + first).astype(np.int32)
