"""Labs for people: what would be built, what a check found, what links carried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from syncline.describe import units
from syncline.lab.blueprint import Blueprint
from syncline.lab.check import LabCheck
from syncline.lab.counters import LinkCounters
from syncline.lab.drafting import IGNORES


def scale_text(scale: float) -> str:
    """Return a factor as people say it: `1/400` or `0.5`."""
    inverse = 1 / scale
    return f"1/{inverse:,.0f}" if scale < 0.5 and abs(inverse - round(inverse)) < 1e-6 * inverse else f"{scale:g}"


def headline(blueprint: Blueprint) -> list[str]:
    """Return what the lab is in three lines: size, scale, and what it leaves out."""
    kinds = [blueprint.boxes[switch].kind for switch in blueprint.switches]
    words = {
        "bridge": ("switch that bridges", "switches that bridge"),
        "router": ("switch that routes", "switches that route"),
    }
    counts = [(kinds.count(kind), one, many) for kind, (one, many) in words.items() if kind in kinds]
    how = " and ".join(f"{count} {one if count == 1 else many}" for count, one, many in counts)
    fastest = max(cable.rate_Bps for cable in blueprint.cables)
    delayed = sum(1 for cable in blueprint.cables if cable.delay_s)
    delays = f"; {delayed} with latency" if delayed else ""
    return [
        f"{blueprint.name}: {len(blueprint.hosts)} hosts, {how or 'no switch'}, {len(blueprint.cables)} cables{delays}",
        f"scale {scale_text(blueprint.scale)}: {units.show_rate(fastest / blueprint.scale)} becomes "
        f"{units.show_rate(fastest)}",
        f"not emulated: {'; '.join(IGNORES)}",
    ]


def cable_table(blueprint: Blueprint) -> Table:
    """Return one line for each cable: its two ends with interface and address, and its rate."""
    table = Table(box=None, pad_edge=False)
    for heading in ("end", "interface", "address", "end", "interface", "address"):
        table.add_column(heading, no_wrap=True)
    for heading in ("described", "in the lab", "latency"):
        table.add_column(heading, justify="right", no_wrap=True)
    for cable in blueprint.cables:
        ends = [
            text
            for end in (cable.a, cable.b)
            for text in (
                blueprint.boxes[end.box].name,
                end.interface,
                f"{end.address}/{end.prefix}" if end.address else "-",
            )
        ]
        rates = _rate(cable.rate_Bps / blueprint.scale, cable.back_Bps / blueprint.scale)
        lab = _rate(cable.rate_Bps, cable.back_Bps) if cable.up else "down"
        table.add_row(*ends, rates, lab, units.show_time(cable.delay_s) if cable.delay_s else "-")
    return table


def check_table(check: LabCheck) -> Table:
    """Return one line for each directed link: described, wanted, measured, gap, verdict."""
    table = Table(box=None, pad_edge=False)
    table.add_column("link", no_wrap=True)
    for heading in ("described", "wanted", "measured", "gap", "latency", "measured"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for link in check.links:
        table.add_row(
            link.name,
            units.show_rate(link.described_Bps),
            units.show_rate(link.wanted_Bps),
            units.show_rate(link.measured_Bps),
            f"{100 * link.gap:+.1f} %",
            units.show_time(link.delay_s) if link.delay_s else "-",
            "lost" if link.measured_delay_s is None else units.show_time(float(f"{link.measured_delay_s:.2g}")),
            ("ok" if link.up else "down, as described") if link.ok else "WRONG",
        )
    return table


def check_lines(check: LabCheck) -> list[str]:
    """Return the verdict in words."""
    wrong = [link for link in check.links if not link.ok]
    worst = max((abs(link.gap) for link in check.links if link.up), default=0.0)
    lines = [
        f"{len(check.links) - len(wrong)} of {len(check.links)} links as described; "
        f"largest gap {100 * worst:.1f} %; {check.num_pairs - len(check.unreachable)} of {check.num_pairs} "
        "pairs of host and address connect"
    ]
    lines += [f"  {a} does not reach {b}" for a, b in check.unreachable[:10]]
    return [*lines, "verdict: " + ("the lab is as described" if check.ok else "the lab is NOT as described")]


def path_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return one line for each pair of host and address: the switches on the way."""
    table = Table(box=None, pad_edge=False)
    for heading in ("from", "to", "interface", "through"):
        table.add_column(heading, no_wrap=True)
    for row in rows:
        through = " - ".join(name.partition(" -> ")[0] for name in row["names"][1:])
        table.add_row(row["from"], row["to"], row["interface"], through or "a cable of their own")
    return table


def link_table(counters: LinkCounters, most: int = 20) -> Table:
    """Return the busiest links: bytes, mean and peak utilisation at 5 ms, 99th percentile, queue, drops."""
    timeline = counters.timeline()
    use, short = timeline.link_use(), timeline.link_use(window_s=0.005)
    drops, backlog = counters.drops(), counters.peak_backlog_bytes()
    table = Table(box=None, pad_edge=False)
    table.add_column("link", no_wrap=True)
    for heading in ("rate", "carried", "mean use", "peak 5 ms", "longest queue", "drops"):
        table.add_column(heading, justify="right", no_wrap=True)
    order = sorted(range(len(timeline.links)), key=lambda link: -float(use.size_bytes[link]))
    for link in [link for link in order if use.size_bytes[link] > 0][:most]:
        name = timeline.links.names[link]
        table.add_row(
            name,
            units.show_rate(float(timeline.links.capacity_Bps[link])),
            units.show_size(float(use.size_bytes[link])),
            f"{100 * use.mean_utilisation[link]:.1f} %",
            f"{100 * short.peak_utilisation[link]:.0f} %",
            units.show_size(backlog.get(name, 0)),
            f"{drops.get(name, 0):,}",
        )
    return table


def _rate(there_Bps: float, back_Bps: float) -> str:
    there, back = units.show_rate(there_Bps), units.show_rate(back_Bps)
    return there if there == back else f"{there} / {back}"
