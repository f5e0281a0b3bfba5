"""Jobs that share a cluster, in words."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from syncline.describe import units
from syncline.describe.hostlist import compress
from syncline.questions.share import ShareAnswer
from syncline.report.table import table
from syncline.sharing.epochs import Epoch, JobShare
from syncline.sharing.packets import EpochPackets
from syncline.sharing.transition import Transition


def text(answer: ShareAnswer, width: int) -> Iterator[str | Table]:
    """Yield what each job loses, epoch by epoch."""
    played = iter(answer.packets)
    for number, epoch in enumerate(answer.epochs):
        if number:
            yield ""
        yield from _epoch(epoch, len(answer.epochs) > 1, answer.cluster)
        if answer.packets and not epoch.stalled:
            yield from _packets(next(played))
    for change in answer.transitions:
        yield from _transition(change)
    yield f"flow level; ignores {', '.join(answer.ignores)}"


def _epoch(epoch: Epoch, several: bool, cluster: str) -> Iterator[str | Table]:
    time = units.show_time
    begin = time(epoch.begin_s)
    when = f"from {begin} on: " if epoch.end_s is None else f"{begin} to {time(epoch.end_s)}: "
    when = when if several else ""
    failed = f", {', '.join(epoch.failed)} failed" if epoch.failed else ""
    if epoch.stalled:
        yield f"{when}nothing moves{failed}: {epoch.stalled}"
        return
    count = "1 job" if len(epoch.jobs) == 1 else f"{len(epoch.jobs)} jobs"
    yield f"{when}{count} on {cluster}{failed}; {steering_words(epoch)}"
    yield table(
        epoch.jobs,
        {
            "job": lambda job: job.name,
            "tenant": lambda job: job.tenant or "-",
            "hosts": lambda job: compress(job.hosts),
            "GPUs": lambda job: f"{job.num_gpus:,}",
            "alone": lambda job: time(job.alone_s),
            "step": lambda job: time(job.step_s),
            "slowdown": lambda job: f"{job.slowdown:.2f}x",
            "unsteered": lambda job: f"{job.unsteered_slowdown:.2f}x",
            "in phase": lambda job: f"{job.in_phase_slowdown:.2f}x",
            "steer": lambda job: _steer(epoch.how, job),
        },
        words=("job", "tenant", "hosts", "steer"),
    )
    for each in epoch.traffic:
        words = f"{each.figure:.0%} of its rate arrives" if each.steady else f"a burst takes {time(each.figure)}"
        yield f"{each.name}: {words}"
    for link in epoch.busiest_links[:2]:
        yield f"{link.mean_utilisation:6.1%} used  {link.link}"
    yield f"headroom: {epoch.headroom:.0%} of the links between switches may be given away at no job's cost over 1 %"


def _packets(played: EpochPackets) -> Iterator[str]:
    shorter = f", steps at 1/{played.scale:.3g} of their length" if played.scale > 1 else ""
    yield (
        f"packet by packet ({played.transport}{shorter}): {played.marks:,} marks, {played.drops:,} drops, "
        f"{played.pauses:,} pauses"
    )
    for job in played.jobs:
        steered = "" if job.slowdown is None else f", {job.slowdown:.2f}x in its slots"
        yield f"  {job.name}: alone {units.show_time(job.alone_s)}, {job.in_phase_slowdown:.2f}x in phase{steered}"


def _transition(change: Transition) -> Iterator[str]:
    time = units.show_time
    who = [f"{name} arrives" for name in change.arrived] + [f"{name} leaves" for name in change.left]
    yield f"at {time(change.at_s)} {', '.join(who)}:"
    for job in change.jobs:
        settled = "at once" if job.settled_after_s == 0 else f"after {time(job.settled_after_s)}"
        yield (
            f"  {job.name}: {time(job.before_s)} a step before, {time(job.worst_s)} at worst, "
            f"{time(job.after_s)} settled {settled}"
        )


def steering_words(epoch: Epoch) -> str:
    """Return what steering does in an epoch."""
    if len(epoch.jobs) < 2:
        return "nothing to steer"
    if epoch.how == "nothing":
        return "steering would gain less than 1 %"
    how = {"slots": "interleaved in slots", "classes": "one traffic class each"}[epoch.how]
    return f"{how}, the mean slowdown is {epoch.gain:.1%} less than unsteered"


def _steer(how: str, job: JobShare) -> str:
    if how == "slots":
        return f"SYNCLINE_SLOTS={job.slots}"
    return f"class {job.priority}" if how == "classes" else "-"
