"""Jobs that share a cluster, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table

from syncline.describe import units
from syncline.describe.hostlist import compress

if TYPE_CHECKING:
    from rich.console import Console


def show_share(console: Console, data: Mapping[str, Any]) -> None:
    """Print what each job loses, epoch by epoch."""
    for number, epoch in enumerate(data["epochs"]):
        if number:
            console.print()
        _epoch(console, epoch, several=len(data["epochs"]) > 1, cluster=data["cluster"])
        if "packets" in epoch:
            _packets(console, epoch["packets"])
    for change in data["transitions"]:
        _transition(console, change)
    console.print(f"flow level; ignores {', '.join(data['ignores'])}", soft_wrap=True)


def _epoch(console: Console, epoch: Mapping[str, Any], several: bool, cluster: str) -> None:
    time = units.show_time
    end = time(epoch["end_s"]) if epoch["end_s"] is not None else "on"
    when = f"{time(epoch['begin_s'])} to {end}: " if several and end != "on" else ""
    when = f"from {time(epoch['begin_s'])} on: " if several and end == "on" else when
    failed = f", {', '.join(epoch['failed'])} failed" if epoch["failed"] else ""
    if epoch["stalled"]:
        console.print(f"{when}nothing moves{failed}: {epoch['stalled']}", soft_wrap=True)
        return
    count = "1 job" if len(epoch["jobs"]) == 1 else f"{len(epoch['jobs'])} jobs"
    console.print(f"{when}{count} on {cluster}{failed}; {steering_words(epoch)}", soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for heading in ("job", "tenant", "hosts", "GPUs", "alone", "step", "slowdown", "unsteered", "in phase", "steer"):
        table.add_column(heading, justify="left" if heading in ("job", "tenant", "hosts", "steer") else "right")
    for job in epoch["jobs"]:
        table.add_row(
            job["name"], job["tenant"] or "-", compress(job["hosts"]), f"{job['gpus']:,}", time(job["alone_s"]),
            time(job["step_s"]), f"{job['slowdown']:.2f}x", f"{job['unsteered_slowdown']:.2f}x",
            f"{job['in_phase_slowdown']:.2f}x", _steer(epoch["steering"], job),
        )  # fmt: skip
    console.print(table)
    for each in epoch["traffic"]:
        steady = each["steady"]
        words = f"{each['figure']:.0%} of its rate arrives" if steady else f"a burst takes {time(each['figure'])}"
        console.print(f"{each['name']}: {words}")
    for link in epoch["busiest_links"][:2]:
        console.print(f"{link['mean_utilisation']:6.1%} used  {link['link']}")
    console.print(
        f"headroom: {epoch['headroom']:.0%} of the links between switches may be given away at no job's cost over 1 %"
    )


def _packets(console: Console, played: Mapping[str, Any]) -> None:
    shorter = f", steps at 1/{played['scale']:.3g} of their length" if played["scale"] > 1 else ""
    console.print(
        f"packet by packet ({played['transport']}{shorter}): {played['marks']:,} marks, {played['drops']:,} drops, "
        f"{played['pauses']:,} pauses", soft_wrap=True,
    )  # fmt: skip
    for job in played["jobs"]:
        steered = "" if job["slowdown"] is None else f", {job['slowdown']:.2f}x in its slots"
        alone = units.show_time(job["alone_s"])
        console.print(f"  {job['name']}: alone {alone}, {job['in_phase_slowdown']:.2f}x in phase{steered}")


def _transition(console: Console, change: Mapping[str, Any]) -> None:
    time = units.show_time
    who = [f"{name} arrives" for name in change["arrived"]] + [f"{name} leaves" for name in change["left"]]
    console.print(f"at {time(change['at_s'])} {', '.join(who)}:", soft_wrap=True)
    for job in change["jobs"]:
        settled = "at once" if job["settled_after_s"] == 0 else f"after {time(job['settled_after_s'])}"
        console.print(
            f"  {job['name']}: {time(job['before_s'])} a step before, {time(job['worst_s'])} at worst, "
            f"{time(job['after_s'])} settled {settled}", soft_wrap=True,
        )  # fmt: skip


def steering_words(epoch: Mapping[str, Any]) -> str:
    """Return what steering does in an epoch."""
    if len(epoch["jobs"]) < 2:
        return "nothing to steer"
    if epoch["steering"] == "nothing":
        return "steering would gain less than 1 %"
    how = {"slots": "interleaved in slots", "classes": "one traffic class each"}[epoch["steering"]]
    return f"{how}, the mean slowdown is {epoch['gain']:.1%} less than unsteered"


def _steer(how: str, job: Mapping[str, Any]) -> str:
    if how == "slots":
        return f"SYNCLINE_SLOTS={job['slots']}"
    return f"class {job['class']}" if how == "classes" else "-"
