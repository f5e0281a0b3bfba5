"""Labs for people: what would be built, what a check found, what links carried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table

from syncline.describe import units
from syncline.lab.blueprint import Blueprint
from syncline.lab.check import LabCheck
from syncline.lab.counters import LinkCounters
from syncline.lab.drafting import IGNORES
from syncline.report.table import columns, table


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
    rows = []
    for cable in blueprint.cables:
        ends = [
            (blueprint.boxes[end.box].name, end.interface, f"{end.address}/{end.prefix}" if end.address else "-")
            for end in (cable.a, cable.b)
        ]
        rates = _rate(cable.rate_Bps / blueprint.scale, cable.back_Bps / blueprint.scale)
        lab = _rate(cable.rate_Bps, cable.back_Bps) if cable.up else "down"
        rows.append((*ends[0], *ends[1], rates, lab, units.show_time(cable.delay_s) if cable.delay_s else "-"))
    end = ("end", "interface", "address")
    return columns(rows, (*end, *end, "described", "in the lab", "latency"), right=(6, 7, 8))


def check_table(check: LabCheck) -> Table:
    """Return one line for each directed link: described, wanted, measured, gap, verdict."""
    rows = [
        (
            link.name,
            units.show_rate(link.described_Bps),
            units.show_rate(link.wanted_Bps),
            units.show_rate(link.measured_Bps),
            f"{100 * link.gap:+.1f} %",
            units.show_time(link.delay_s) if link.delay_s else "-",
            "lost" if link.measured_delay_s is None else units.show_time(float(f"{link.measured_delay_s:.2g}")),
            ("ok" if link.up else "down, as described") if link.ok else "WRONG",
        )
        for link in check.links
    ]
    heads = ("link", "described", "wanted", "measured", "gap", "latency", "measured", "verdict")
    return columns(rows, heads, right=range(1, 7))


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
    shown = {
        "from": lambda row: row["from"], "to": lambda row: row["to"], "interface": lambda row: row["interface"],
        "through": lambda row: " - ".join(name.partition(" -> ")[0] for name in row["names"][1:])
        or "a cable of their own",
    }  # fmt: skip
    return table(rows, shown, words=tuple(shown))


def link_table(counters: LinkCounters, most: int = 20) -> Table:
    """Return the busiest links: bytes, mean and peak utilisation at 5 ms, 99th percentile, queue, drops."""
    timeline = counters.timeline()
    use, short = timeline.link_use(), timeline.link_use(window_s=0.005)
    drops, backlog, names = counters.drops(), counters.peak_backlog_bytes(), timeline.links.names
    order = sorted(range(len(timeline.links)), key=lambda link: -float(use.size_bytes[link]))
    shown: dict[str, Callable[[int], str]] = {
        "link": lambda link: names[link],
        "rate": lambda link: units.show_rate(float(timeline.links.capacity_Bps[link])),
        "carried": lambda link: units.show_size(float(use.size_bytes[link])),
        "mean use": lambda link: f"{100 * use.mean_utilisation[link]:.1f} %",
        "peak 5 ms": lambda link: f"{100 * short.peak_utilisation[link]:.0f} %",
        "longest queue": lambda link: units.show_size(backlog.get(names[link], 0)),
        "drops": lambda link: f"{drops.get(names[link], 0):,}",
    }
    return table([link for link in order if use.size_bytes[link] > 0][:most], shown, words=("link",))


def _rate(there_Bps: float, back_Bps: float) -> str:
    there, back = units.show_rate(there_Bps), units.show_rate(back_Bps)
    return there if there == back else f"{there} / {back}"
