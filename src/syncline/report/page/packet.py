"""A packet run as one self-contained page: what happened in a sentence, queues, marks, rates and pauses over time."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from syncline.describe import units
from syncline.report.chart.over_time import STYLE, Line, TimeAxis, bars, chart
from syncline.report.page.shell import document
from syncline.sim.packet import Outcome, PacketJob, RunSamples
from syncline.sim.packet.chronicle import queue_rows
from syncline.sim.packet.outcome import IGNORES

MOST_LINES = 6
"""More connections than these are drawn as a band."""
_STYLE = (
    STYLE
    + """
body{font:14px/1.5 system-ui,sans-serif;margin:28px auto;max-width:1000px;padding:0 16px;color:var(--ink);
background:var(--paper)}
h1{font-size:22px;margin:0 0 4px} h2{font-size:16px;margin:30px 0 2px} .lead{font-size:16px;margin:4px 0 16px}
.note{color:var(--soft);margin:0 0 6px} .tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));
gap:10px;margin:0 0 8px} .tile{border:1px solid var(--rule);border-radius:8px;padding:8px 12px}
.tile b{display:block;font-size:19px;font-weight:600} .tile span{color:var(--soft);font-size:12.5px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;width:100%}
td,th{padding:3px 10px;text-align:right;border-bottom:1px solid var(--rule)} td.t,th.t{text-align:left}
"""
)

_PAIR_STYLE = """
body{max-width:1500px} .pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(520px,100%),1fr));gap:28px}
.run{min-width:0;overflow-x:auto}
"""


def packet_page(
    title: str,
    outcome: Outcome,
    mark_bytes: tuple[int, int] | None = None,
    against: Sequence[str] = (),
    more: str = "",
) -> str:
    """Return the page of a run that was watched (`Watching`).

    `mark_bytes` are the depths at which queues mark; `against` says how it compares with the flow level, and why;
    `more` is a further section, as HTML.
    """
    options = outcome.options
    how = (f"{options.transport}, {options.routing} routing, packets of {units.show_size(options.payload_bytes)}, "
           f"base round trip {units.show_time(outcome.rtt_s)}, seed {options.seed}")  # fmt: skip
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="note">{escape(how)}</p>']
    parts += [f'<p class="lead">{escape(in_a_sentence(outcome))}</p>', _tiles(outcome)]
    if against:
        rows = "".join(f"<li>{escape(line)}</li>" for line in against[1:])
        parts.append(f"<h2>Against the flow level</h2><p>{escape(against[0])}</p><ul>{rows}</ul>")
    parts.append(more)
    parts += [*_charts(outcome, mark_bytes), _queues(outcome), _ignored()]
    return document(title, _STYLE, "".join(parts))


def pair_page(title: str, runs: Sequence[tuple[str, Outcome, tuple[int, int] | None]], more: str = "") -> str:
    """Return the page of two runs that were watched, side by side: name, run and depths at which queues mark."""
    columns = []
    for name, outcome, mark_bytes in runs:
        parts = [f"<h2>{escape(name)}</h2>", f"<p>{escape(in_a_sentence(outcome))}</p>", _tiles(outcome)]
        columns.append("".join([*parts, *_charts(outcome, mark_bytes), _queues(outcome)]))
    outcome = runs[0][1]
    how = f"{outcome.options.routing} routing, base round trip {units.show_time(outcome.rtt_s)}, the same flows in both"
    body = "".join(f'<div class="run">{column}</div>' for column in columns)
    return document(
        title, _STYLE + _PAIR_STYLE,
        f'<h1>{escape(title)}</h1><p class="note">{escape(how)}</p>{more}<div class="pair">{body}</div>{_ignored()}',
    )  # fmt: skip


def _charts(outcome: Outcome, mark_bytes: tuple[int, int] | None) -> list[str]:
    parts: list[str] = []
    watched = outcome.sampled
    if watched is not None and len(watched.time_s) > 2:
        clock = TimeAxis.of(float(watched.time_s[-1]))
        if watched.links:
            parts += _link_charts(outcome, watched, clock, mark_bytes)
        if watched.flows:
            parts += _connections(outcome, watched, clock)
    return parts


def _ignored() -> str:
    return f'<p class="note">Simulated packet by packet; ignores {escape(", ".join(IGNORES))}.</p>'


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


def _tiles(outcome: Outcome) -> str:
    count, done, show = outcome.counters, outcome.completion, units.show_time
    sent = max(count["data_packets"] + count["resent_packets"], 1)
    lost = count["drops"] + count["errors"] + count["dead"]
    paused = float(outcome.ports["paused_ps"].sum()) / 1e12
    tiles = (
        (show(done.p50_s), "half the messages done in"),
        (show(done.p99_s), "99 % done in"),
        (f"{100 * count['marks'] / sent:.1f} %", f"packets marked: {count['marks']:,} of {sent:,}"),
        (f"{count['resent_packets']:,}", f"packets sent again ({lost:,} lost, {count['trims']:,} trimmed)"),
        (f"{count['pauses']:,}", f"pauses, {show(paused)} in all ports"),
        (f"{count['timeouts']:,}", "timeouts"),
    )
    body = "".join(f'<div class="tile"><b>{escape(a)}</b><span>{escape(b)}</span></div>' for a, b in tiles)
    return f'<div class="tiles">{body}</div>'


def _link_charts(
    outcome: Outcome, watched: RunSamples, clock: TimeAxis, mark_bytes: tuple[int, int] | None
) -> list[str]:  # fmt: skip
    network, time_s = outcome.network, watched.time_s
    names = _told_apart([network.fabric.link_name(link) for link in watched.links])
    queues = [Line(name, watched.queue_bytes[:, i] / 1e3) for i, name in enumerate(names)]
    if mark_bytes:
        low, high = (round(each / 1e3) for each in mark_bytes)
        words = f"marks from {low:,} KB" + (f", all from {high:,} KB" if high > low else "")
        queues.append(Line(words, np.full(len(time_s), mark_bytes[0] / 1e3), rule=True))
    rate = float(network.rate_Bps[network.port_of_link[watched.links[0]]])
    parts = ["<h2>Queue, KB</h2>", f'<p class="note">{rate / 1e9:,.0f} KB are a wait of 1 us.</p>',
             chart(time_s, queues, clock)]  # fmt: skip
    rows = _coarse_rows(watched, rate, outcome.options.payload_bytes)
    coarse_s, step_s = time_s[rows], np.diff(time_s[rows])[:, None]
    if watched.marks.any():
        marks = np.diff(watched.marks[rows], axis=0) / step_s / 1e6
        parts += ["<h2>Marked packets per us</h2>",
                  chart(coarse_s[1:], [Line(n, marks[:, i]) for i, n in enumerate(names)], clock, 170)]  # fmt: skip
    if watched.paused.any():
        held = [(name, watched.paused[:, i] != 0) for i, name in enumerate(names)]
        parts += ["<h2>Paused</h2>", '<p class="note">While a link may not send.</p>', bars(time_s, held, clock)]
    # No link exceeds its rate; a packet counted in one step or the next may make it look so.
    sending = np.minimum(np.diff(watched.wire_bytes[rows], axis=0) / step_s, rate) / 1e9
    lines = [Line(n, sending[:, i]) for i, n in enumerate(names)]
    lines.append(Line(f"rate of the link, {rate / 1e9:,g} GB/s", np.full(len(rows) - 1, rate / 1e9), rule=True))
    return [*parts, "<h2>Rate of these links, GB/s</h2>", chart(coarse_s[1:], lines, clock, 190)]


def _told_apart(names: list[str]) -> list[str]:
    """Return the names with parallel cables, which share one, numbered."""
    return [f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name for i, name in enumerate(names)]


def _coarse_rows(watched: RunSamples, rate_Bps: float, payload_bytes: int, least: int = 40) -> NDArray[np.int64]:
    """Return rows so far apart that forty packets pass between two (fewer would show as teeth), but `least` rows."""
    step_s = float(watched.time_s[1] - watched.time_s[0])
    apart = int(np.ceil(40 * payload_bytes / max(rate_Bps * step_s, 1e-9)))
    return np.arange(0, len(watched.time_s), max(1, min(apart, len(watched.time_s) // least)))


def _connections(outcome: Outcome, watched: RunSamples, clock: TimeAxis) -> list[str]:
    mean_Bps = float(watched.flow_bytes[-1].mean() / watched.time_s[-1])
    rows = _coarse_rows(watched, mean_Bps, outcome.options.payload_bytes, 25)
    time_s = watched.time_s[rows]
    goodput = np.diff(watched.flow_bytes[rows], axis=0) / np.diff(time_s)[:, None] / 1e9
    if len(watched.flows) <= MOST_LINES:
        lines = [Line(f"connection {flow}", goodput[:, i]) for i, flow in enumerate(watched.flows)]
        note = "What each connection delivered."
    else:
        shown = (
            f"all {outcome.num_flows:,}"
            if len(watched.flows) == outcome.num_flows
            else f"the first {len(watched.flows):,}"
        )
        lines = [
            Line("slowest to fastest", goodput.max(axis=1), low=goodput.min(axis=1)),
            Line("median", np.median(goodput, axis=1)),
        ]
        takes_turns = any(isinstance(job, PacketJob) for job in outcome.jobs)
        meaning = (
            "Those of a collective take turns: at 0 they wait for theirs." if takes_turns else "A wide band is unfair."
        )
        note = f"What {shown} connections delivered. {meaning}"
    return ["<h2>Rate of connections, GB/s</h2>", f'<p class="note">{note}</p>', chart(time_s[1:], lines, clock)]


def _queues(outcome: Outcome) -> str:
    rows = queue_rows(outcome, 12)
    if not rows:
        return ""
    head = "".join(f"<th>{name}</th>" for name in ("at most", "marks", "drops", "trims", "pauses", "paused for"))
    body = "".join(
        f'<tr><td class="t">{escape(row.link)}</td><td>{units.show_size(row.peak_bytes)}</td>'
        f"<td>{row.marks:,}</td>"
        f"<td>{row.drops:,}</td><td>{row.trims:,}</td><td>{row.pauses:,}</td>"
        f"<td>{units.show_time(row.paused_s)}</td></tr>"
        for row in rows
    )
    return f'<h2>Deepest queues</h2><table><tr><th class="t">link</th>{head}</tr>{body}</table>'


def watched_page(title: str, outcome: Outcome, against: Sequence[str] = (), more: str = "") -> str:
    """Run the same again, which takes the same course, while watching the deepest queues, and return the page."""
    return packet_page(title, *_watched(outcome, outcome), against, more)


def watched_pair(title: str, runs: Sequence[tuple[str, Outcome]], more: str = "") -> str:
    """Do so with two runs, watching in both the links that are deepest in the first."""
    return pair_page(title, [(name, *_watched(outcome, runs[0][1])) for name, outcome in runs], more)


def _watched(outcome: Outcome, deepest_in: Outcome) -> tuple[Outcome, tuple[int, int] | None]:
    from syncline.sim.packet import Watching, simulate
    from syncline.sim.packet.run import mark_bytes

    network, options, peaks = outcome.network, outcome.options, deepest_in.ports["peak_bytes"]
    deepest = np.argsort(-peaks, kind="stable")[:4]
    links = tuple(int(network.link[p]) for p in deepest if peaks[p] > 0 and network.link[p] >= 0)
    flows = tuple(range(min(outcome.num_flows, 256)))
    watching = Watching(max(outcome.end_of_run_s / 400, 1e-9), links, flows)
    watched = simulate(
        network, list(outcome.jobs), options, changes=outcome.changes, watching=watching, until_s=outcome.end_of_run_s
    )
    marks = options.marks or options.sets[0].marks
    return watched, None if marks is None else mark_bytes(marks, network.access_Bps, outcome.rtt_s)
