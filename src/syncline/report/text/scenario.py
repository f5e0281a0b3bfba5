"""Scenarios in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.table import Table

from syncline.describe import units
from syncline.questions.scenario import PacketScenarioReport, ScenarioReport
from syncline.report.table import table
from syncline.sim.packet.play import Other, PacketJobReport
from syncline.sim.play import JobReport

COUNTS = ("marks", "drops", "lost", "resent", "pauses")


def text(answer: ScenarioReport | PacketScenarioReport, width: int) -> Iterator[str | Table]:
    """Return what each job lost."""
    return _flow(answer) if isinstance(answer, ScenarioReport) else _packet(answer)


def _flow(answer: ScenarioReport) -> Iterator[str | Table]:
    time = units.show_time
    worst = max(answer.jobs, key=lambda job: job.slowdown)
    yield (
        f"{answer.scenario} on {answer.cluster}: done after {time(answer.makespan_s)}; "
        f"{worst.name} loses most, {worst.slowdown:.2f}x its time alone"
    )
    yield table(
        answer.jobs,
        {
            "job": lambda job: job.name,
            "tenant": lambda job: job.tenant or "-",
            "ranks": lambda job: f"{job.num_ranks:,}",
            "starts": lambda job: time(job.start_s),
            "ends": lambda job: time(job.end_s),
            "took": lambda job: time(job.took_s),
            "alone": lambda job: time(job.alone_s),
            "slowdown": _slowdown,
            **_library_column(answer.jobs),
        },
        words=("job", "tenant"),
    )
    yield ""
    for link in answer.busiest_links[:3]:
        yield f"{link.mean_utilisation:6.1%}  {link.link}"
    yield f"flow level; ignores {', '.join(answer.ignores)}"


def _packet(answer: PacketScenarioReport) -> Iterator[str | Table]:
    time = units.show_time
    worst = max(answer.jobs, key=lambda job: job.slowdown)
    yield (
        f"{answer.scenario} on {answer.cluster} ({answer.transport}, {answer.routing}): done after "
        f"{time(answer.makespan_s)}, at flow level {time(answer.flow_makespan_s)}; {worst.name} loses most, "
        f"{worst.slowdown:.2f}x its time alone"
    )
    yield table(
        answer.jobs,
        {
            "job": lambda job: job.name,
            "class": lambda job: str(job.traffic_class),
            "ends": lambda job: time(job.end_s),
            "took": lambda job: time(job.took_s),
            "flow level": lambda job: time(job.flow_s),
            "alone": lambda job: time(job.alone_s),
            "slowdown": _slowdown,
        },
        words=("job",),
    )
    yield ""
    loads: list[PacketJobReport | Other] = [*answer.jobs, *answer.others]
    yield table(
        loads,
        {
            "messages of": lambda load: load.name,
            "ended": lambda load: f"{load.completion.count:,}",
            "p50": lambda load: time(load.completion.p50_s) if load.completion.count else "-",
            "p99": lambda load: time(load.completion.p99_s) if load.completion.count else "-",
            "p99.9": lambda load: time(load.completion.p999_s) if load.completion.count else "-",
            **{name: lambda load, name=name: f"{load.tally[name]:,}" for name in COUNTS},  # type: ignore[misc]
        },
        words=("messages of",),
    )
    yield ""
    if len(answer.classes) > 1:
        for number, words in enumerate(answer.classes):
            yield f"class {number}: {words}"
    yield f"busiest link: {answer.busiest_link}, sending {answer.busiest_utilisation:.0%} of the time"
    yield f"packet level; ignores {', '.join(answer.ignores)}"


def _library_column(jobs: Sequence[JobReport]) -> dict[str, Callable[[JobReport], str]]:
    if all(job.library_s is None for job in jobs):
        return {}
    return {"NCCL, one alone": lambda job: "-" if job.library_s is None else units.show_time(job.library_s)}


def _slowdown(job: JobReport) -> str:
    return f"{job.slowdown:.2f}x"
