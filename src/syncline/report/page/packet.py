"""What is drawn of a packet run, or of two side by side: figures, slowdowns, queues, marks, rates and pauses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from rich.table import Table

from syncline.describe import units
from syncline.report.chart.lanes import ChartLane, lanes
from syncline.report.chart.plot import NUM_COLOURS, WIDTH, Axis, Floats, Line, plot
from syncline.report.chart.svg import element
from syncline.report.page.page import Drawing
from syncline.report.table import columns, table
from syncline.sim.packet import Outcome, PacketJob, RunSamples, Watching, simulate
from syncline.sim.packet.chronicle import QueueRow, queue_rows
from syncline.sim.packet.flow_table import FlowTable
from syncline.sim.packet.run import mark_bytes

MOST_LINES = 6
"""More connections than these are drawn as a band."""
MOST_QUEUES = 12
Chart = tuple[str, str, Markup]
"""Heading, note, drawing."""
Named = tuple[str, Outcome]


def watched(runs: Sequence[Named], flows: Sequence[FlowTable] = ()) -> list[Drawing]:
    """Run the same again, which takes the same course, and watch the links that are deepest in the first run."""
    return packet_drawings([(name, _watched(outcome, runs[0][1])) for name, outcome in runs], flows)


def packet_drawings(runs: Sequence[Named], flows: Sequence[FlowTable] = ()) -> list[Drawing]:
    """Return what is drawn of one run or of two, over time where it was watched; `flows` are the flows of each."""
    options, rtt = runs[0][1].options, units.show_time(runs[0][1].rtt_s)
    packets = f"packets of {units.show_size(options.payload_bytes)}, base round trip {rtt}, seed {options.seed}."
    sentences = (f"{name}: {in_a_sentence(one)}" if name else in_a_sentence(one) for name, one in runs)
    drawings = [Drawing("", _figures(runs), " ".join((f"{options.routing} routing, {packets}", *sentences)))]
    drawings += _flows([(name, table) for (name, _), table in zip(runs, flows, strict=False) if len(table)])
    charts: dict[str, list[tuple[str, str, Markup]]] = {}
    for name, one in runs:
        for heading, note, chart in _charts(one, WIDTH / len(runs)):
            charts.setdefault(heading, []).append((name, note, chart))
    for heading, drawn in charts.items():
        notes = dict.fromkeys(note for _, note, _ in drawn if note)
        drawings.append(Drawing(heading, _next_to([(name, chart) for name, _, chart in drawn]), " ".join(notes)))
    queues = ((name, queue_rows(one, MOST_QUEUES)) for name, one in runs)
    return [*drawings, *(Drawing(f"Deepest queues {name}".strip(), _queues(rows)) for name, rows in queues if rows)]


def _next_to(drawn: Sequence[tuple[str, Markup]]) -> Markup:
    """Return drawings side by side under their names; one without a name as it is."""
    if not drawn[0][0]:
        return drawn[0][1]
    return element("div", *(element("section", element("h3", name), chart) for name, chart in drawn), class_="two")


def _watched(outcome: Outcome, deepest_in: Outcome) -> Outcome:
    network, peaks = outcome.network, deepest_in.ports["peak_bytes"]
    deepest = np.argsort(-peaks, kind="stable")[:4]
    links = tuple(int(network.link[p]) for p in deepest if peaks[p] > 0 and network.link[p] >= 0)
    flows = tuple(range(min(outcome.num_flows, 256)))
    watching = Watching(max(outcome.end_of_run_s / 400, 1e-9), links, flows)
    return simulate(network, list(outcome.jobs), outcome.options, changes=outcome.changes, watching=watching,
                    until_s=outcome.end_of_run_s)  # fmt: skip


def in_a_sentence(outcome: Outcome) -> str:
    """Return when it ended, how busy the busiest link was and what that did to its queue."""
    if outcome.cycle:
        return f"Locked up after {units.show_time(outcome.now_s)}: {len(outcome.cycle)} ports wait for each other."
    show, busiest = units.show_time, outcome.busiest
    busy = 100 * float(outcome.utilisation()[busiest])
    words = (
        f"Messages: {outcome.completion.count:,}; {outcome.state} after {show(outcome.end_of_run_s)}. "
        f"The busiest link, {outcome.network.port_name(busiest)}, was sending {busy:.0f} % of that time."
    )
    deep = int(np.argmax(outcome.ports["peak_bytes"]))
    peak = float(outcome.ports["peak_bytes"][deep])
    if peak <= outcome.options.payload_bytes + 200:  # headers are shorter than that
        return words + " No queue held more than a packet."
    wait_s = peak / float(outcome.network.rate_Bps[deep])
    return words + (
        f" The deepest queue, at {outcome.network.port_name(deep)}, held {units.show_size(peak)}: "
        f"a wait of {show(wait_s)}, {wait_s / outcome.rtt_s:.1f} base round trips."
    )


def _figures(runs: Sequence[Named]) -> Table:
    """Return what befell messages and packets, a row a run."""

    def sent(outcome: Outcome) -> int:
        return max(outcome.counters["data_packets"] + outcome.counters["resent_packets"], 1)

    def paused(outcome: Outcome) -> str:
        return units.show_time(float(outcome.ports["paused_ps"].sum()) / 1e12)

    return table(
        runs,
        {
            "": lambda run: run[0],
            "half done in": lambda run: units.show_time(run[1].completion.p50_s),
            "99 % done in": lambda run: units.show_time(run[1].completion.p99_s),
            "packets": lambda run: f"{sent(run[1]):,}",
            "marked": lambda run: f"{100 * run[1].counters['marks'] / sent(run[1]):.1f} %",
            "sent again": lambda run: f"{run[1].counters['resent_packets']:,}",
            "lost": lambda run: f"{sum(run[1].counters[name] for name in ('drops', 'errors', 'dead')):,}",
            "trimmed": lambda run: f"{run[1].counters['trims']:,}",
            "pauses": lambda run: f"{run[1].counters['pauses']:,}",
            "paused, all ports": lambda run: paused(run[1]),
            "timeouts": lambda run: f"{run[1].counters['timeouts']:,}",
        },
        words=("",),
    )


def _queues(rows: Sequence[QueueRow]) -> Table:
    return table(
        rows,
        {
            "link": lambda row: row.link,
            "at most": lambda row: units.show_size(row.peak_bytes),
            "marks": lambda row: f"{row.marks:,}",
            "drops": lambda row: f"{row.drops:,}",
            "trims": lambda row: f"{row.trims:,}",
            "pauses": lambda row: f"{row.pauses:,}",
            "paused for": lambda row: units.show_time(row.paused_s),
        },
        words=("link",),
    )


def _charts(outcome: Outcome, width: float) -> list[Chart]:
    watched = outcome.sampled
    if watched is None or len(watched.time_s) <= 2:
        return []
    clock = Axis.time(float(watched.time_s[-1]))
    links = _link_charts(outcome, watched, clock, width) if watched.links else []
    return links + ([_connections(outcome, watched, clock, width)] if watched.flows else [])


def _over_time(name: str, lines: Sequence[Line], clock: Axis, width: float, height: float = 220) -> Markup:
    most = max((float(np.nanmax(line.y)) for line in lines if len(np.asarray(line.y))), default=0.0)
    return plot(f"{name} over time", lines, clock, Axis.even(most, count=4), width=width, height=height)


def _link_charts(outcome: Outcome, watched: RunSamples, clock: Axis, width: float) -> list[Chart]:
    network, time_s, options = outcome.network, watched.time_s, outcome.options
    names = _numbered([network.fabric.link_name(link) for link in watched.links])
    rate = float(network.rate_Bps[network.port_of_link[watched.links[0]]])

    def lines(columns: NDArray[np.float64], at_s: Floats) -> list[Line]:
        return [Line(name, at_s, columns[:, i]) for i, name in enumerate(names)]

    queues = lines(watched.queue_bytes / 1e3, time_s)
    if marks := options.marks or options.sets[0].marks:
        low, high = (round(depth / 1e3) for depth in mark_bytes(marks, network.access_Bps, outcome.rtt_s))
        words = f"marks from {low:,} KB" + (f", all from {high:,} KB" if high > low else "")
        queues.append(Line(words, time_s, np.full(len(time_s), float(low)), is_rule=True))
    note = f"{rate / 1e9:,.0f} KB are a wait of 1 us."
    charts = [("Queue, KB", note, _over_time("queues", queues, clock, width))]
    rows = _coarse_rows(watched, rate, options.payload_bytes)
    coarse_s, step_s = time_s[rows][1:], np.diff(time_s[rows])[:, None]
    if watched.marks.any():
        marked = lines(np.diff(watched.marks[rows], axis=0) / step_s / 1e6, coarse_s)
        charts.append(("Marked packets per us", "", _over_time("marks", marked, clock, width, 170)))
    if watched.paused.any():
        held = [_paused(name, time_s, watched.paused[:, i] != 0, i) for i, name in enumerate(names)]
        charts.append(("Paused", "While a link may not send.", lanes("when each link is paused", held, clock)))
    # No link exceeds its rate; a packet counted in one step or the next may make it look so.
    sending = lines(np.minimum(np.diff(watched.wire_bytes[rows], axis=0) / step_s, rate) / 1e9, coarse_s)
    limit = Line(f"rate of the link, {rate / 1e9:,g} GB/s", coarse_s, np.full(len(coarse_s), rate / 1e9), is_rule=True)
    charts.append(("Rate of these links, GB/s", "", _over_time("rates", [*sending, limit], clock, width, 190)))
    return charts


def _paused(name: str, time_s: Floats, on: NDArray[np.bool_], number: int) -> ChartLane:
    """Return the times from each moment at which a link is paused to the next."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], on.astype(np.int8), [0])))).reshape(-1, 2)
    ends = np.append(time_s, time_s[-1])
    spans = [(float(ends[a]), float(ends[b])) for a, b in edges]
    return ChartLane(name[-24:], {(name, f"var(--c{number % NUM_COLOURS})"): spans} if spans else {}, 14, 6)


def _numbered(names: list[str]) -> list[str]:
    """Return the names with parallel cables, which share one, numbered."""
    return [f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name for i, name in enumerate(names)]


def _coarse_rows(watched: RunSamples, rate_Bps: float, payload_bytes: int, least: int = 40) -> NDArray[np.int64]:
    """Return rows so far apart that forty packets pass between two (fewer would show as teeth), but `least` rows."""
    step_s = float(watched.time_s[1] - watched.time_s[0])
    apart = int(np.ceil(40 * payload_bytes / max(rate_Bps * step_s, 1e-9)))
    return np.arange(0, len(watched.time_s), max(1, min(apart, len(watched.time_s) // least)))


def _connections(outcome: Outcome, watched: RunSamples, clock: Axis, width: float) -> Chart:
    mean_Bps = float(watched.flow_bytes[-1].mean() / watched.time_s[-1])
    rows = _coarse_rows(watched, mean_Bps, outcome.options.payload_bytes, 25)
    time_s = watched.time_s[rows]
    goodput = np.diff(watched.flow_bytes[rows], axis=0) / np.diff(time_s)[:, None] / 1e9
    if len(watched.flows) <= MOST_LINES:
        lines = [Line(f"connection {flow}", time_s[1:], goodput[:, i]) for i, flow in enumerate(watched.flows)]
        note = "What each connection delivered."
    else:
        all_of_them = len(watched.flows) == outcome.num_flows
        shown = f"all {outcome.num_flows:,}" if all_of_them else f"the first {len(watched.flows):,}"
        lines = [
            Line("slowest to fastest", time_s[1:], goodput.max(axis=1), low=goodput.min(axis=1)),
            Line("median", time_s[1:], np.median(goodput, axis=1)),
        ]
        takes_turns = any(isinstance(job, PacketJob) for job in outcome.jobs)
        meaning = "Those of a collective take turns: at 0 they wait for theirs." if takes_turns else (
            "A wide band is unfair."
        )  # fmt: skip
        note = f"What {shown} connections delivered. {meaning}"
    return "Rate of connections, GB/s", note, _over_time("rates of connections", lines, clock, width)


def _flows(runs: Sequence[tuple[str, FlowTable]]) -> list[Drawing]:
    """Return slowdowns by size side by side, and the distribution of times; nothing where no flow has arrived."""
    if not runs:
        return []
    tables = [{(i == len(rows) - 1, row.upto_bytes): row for i, row in enumerate(rows)}
              for rows in (found.by_size() for _, found in runs)]  # fmt: skip
    rows = []
    for key in sorted(set().union(*tables)):
        is_all, upto = key
        size = f"up to {upto / 1e6:g} MB" if upto >= 1e6 else f"up to {upto / 1e3:g} kB"
        cells = ["all" if is_all else "larger" if np.isinf(upto) else size,
                 f"{max(each[key].count for each in tables if key in each):,}"]  # fmt: skip
        for each in tables:
            row = each.get(key)
            cells += ["", "", ""] if row is None else [f"{x:.2f}" for x in (row.p50, row.p99, row.p999)]
        rows.append(cells)
    heads = ["size", "flows", *(f"{name} {part}".strip() for name, _ in runs for part in ("p50", "p99", "p99.9"))]
    every = np.concatenate([table.time_s for _, table in runs])
    x = Axis.log(max(float(every.min()), 1e-9), max(float(every.max()), 1e-9), units.show_time)
    lines = [Line(name, np.maximum(at, 1e-9), share, width=2) for name, (at, share) in
             ((name, table.cdf()) for name, table in runs)]  # fmt: skip
    label = "Completion times of " + ", ".join(name for name, _ in runs)
    slowdowns = columns(rows, heads, right=range(1, len(heads)))
    times = plot(label, lines, x, Axis.even(1.0), height=260)
    return [
        Drawing("Slowdown by size", slowdowns, "A flow's time over its time alone on its path."),
        Drawing("Completion times", times, "The share of flows that took no longer."),
    ]
