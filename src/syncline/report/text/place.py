"""A placement in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncline.describe import units
from syncline.describe.hostlist import compress

MOST_HOSTS = 16


def place_lines(data: Mapping[str, Any]) -> list[str]:
    """Return where ranks go and what that gains."""
    time = units.show_time
    lines = [
        f"{data['job']} on {data['gpus']:,} GPUs of {data['cluster']}, "
        f"{len(data['allocation']['hosts'])} hosts given: {compress(data['allocation']['hosts'])}",
        "",
        f"  step, placed           {time(data['step_time_s'])}  ({_known(data)})",
        f"  step, scheduler order  {time(data['scheduler_s'])}  {_gain(data['gain'])}",
        f"  step, packed order     {time(data['packed_s'])}  {_gain(data['gain_over_packed'])}",
    ]
    if data["remap"]:
        lines += _remap(data["remap"], data["step_time_s"])
    lines += ["", "  communication in the step    scheduler     placed  limited by"]
    for each in data["collectives"]:
        name = each["name"].replace("reduce-scatter + all-gather", "rs+ag").replace("all-gather + reduce-scatter", "tp")
        lines.append(
            f"    {name:24} {time(each['scheduler_s']):>10} {time(each['placed_s']):>10}  {each['limiting_link']}"
        )
    lines += ["", *_hosts(data), f"flow level; ignores {', '.join(data['ignores'])}"]
    return lines


def _known(data: Mapping[str, Any]) -> str:
    tried = data["executed_orders"]
    if data["proved"]:
        return "there is no other arrangement" if tried == 1 else f"best of all {tried} arrangements"
    return "no swap of hosts promises more" if tried == 1 else f"best of {tried} orders executed"


def _gain(gain: float) -> str:
    return "(the same)" if abs(gain) < 5e-4 else f"(placing saves {gain:.1%})"


def _remap(found: Mapping[str, Any], step_s: float) -> list[str]:
    time = units.show_time
    moved = found["moved_units"]
    words = "no other host moves" if moved == 0 else f"{moved} hosts get other ranks"
    return [
        f"  replaced in place      {time(found['in_place_s'])}, all hosts free to move {time(found['best_s'])}; "
        f"here {words} ({time(step_s)})"
    ]


def _hosts(data: Mapping[str, Any]) -> list[str]:
    first: dict[str, list[int]] = {}
    for row in data["ranks"]:
        first.setdefault(row["host"], []).append(row["rank"])
    lines = ["  ranks"]
    for host, ranks in list(first.items())[:MOST_HOSTS]:
        whole = ranks[-1] - ranks[0] + 1 == len(ranks)
        shown = f"{ranks[0]}-{ranks[-1]}" if whole and len(ranks) > 1 else ",".join(map(str, ranks))
        lines.append(f"    {shown:>11}  {host}")
    if len(first) > MOST_HOSTS:
        lines.append(f"    ... {len(first) - MOST_HOSTS} hosts more: --out FOLDER or --json has them all")
    if data["idle_hosts"]:
        lines.append(f"    idle: {compress(data['idle_hosts'])}")
    return lines
