"""The page's essentials at a terminal: alerts, the busiest links, collectives and the last step. Textual draws it.

WatchScreen(hub, title="host-00").run()
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import DataTable, Footer, Input, Static

from syncline.describe.units import show_rate, show_time
from syncline.finding import Severity
from syncline.watch.frame import Frame
from syncline.watch.incident import Incident
from syncline.watch.serve.hub import Hub

REFRESH_S = 0.5
MAX_ROWS = 200
BAR = 20
NARROW = 110
"""Columns below which the table has the terminal to itself."""
SORTS = ("use", "peak", "drops", "name")
_STYLES = {
    Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.OK: "green", Severity.UNKNOWN: "magenta",
}  # fmt: skip


class WatchScreen(App[None]):
    """Shows the newest frame of a hub, twice a second."""

    TITLE = "syncline watch --terminal"
    CSS = """
    #summary { height: 2; padding: 0 1; }
    #links { height: 1fr; }
    #side { width: 46%; }
    #alerts { height: 1fr; border: round $warning; padding: 0 1; }
    #collectives { height: 40%; border: round $primary; }
    #left { border: round $primary; }
    #filter { display: none; height: 3; }
    #filter.shown { display: block; }
    .narrow #main { layout: vertical; }
    .narrow #side { width: 100%; height: 8; }
    .narrow #left { border: none; height: 1fr; }
    .narrow #collectives { display: none; }
    .alerts #left, .collectives #left, .alerts #collectives, .collectives #alerts { display: none; }
    .alerts #side, .collectives #side { width: 100%; height: 1fr; }
    .collectives #collectives { display: block; height: 1fr; }
    """
    AUTO_FOCUS = "#links"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("space", "pause", "pause"),
        Binding("s", "sort", "sort"),
        Binding("slash", "filter", "filter"),
        Binding("a", "view('alerts')", "alerts"),
        Binding("c", "view('collectives')", "collectives"),
        Binding("escape", "clear", "clear", show=False),
        Binding("d", "toggle_dark", "light"),
    ]

    def __init__(self, hub: Hub, title: str = "") -> None:
        super().__init__()
        self._hub = hub
        self._shown_title = title
        self._sort = 0
        self._words: tuple[str, ...] = ()
        self.is_paused = False
        self.shown: Frame | None = None
        self._name_width: int | None = None

    def compose(self) -> ComposeResult:
        """Lay the screen out."""
        yield Static(id="summary")
        yield Input(placeholder="words of a link's name, then Enter", id="filter")
        with Horizontal(id="main"):
            with Vertical(id="left"):
                yield DataTable(id="links", cursor_type="row", zebra_stripes=True)
            with Vertical(id="side"):
                yield Static(id="alerts")
                yield DataTable(id="collectives", cursor_type="none")
        yield Footer()

    def on_mount(self) -> None:
        """Name the columns and begin to look."""
        self._add_columns()
        self.query_one("#collectives", DataTable).add_columns("collective", "p50", "predicted", "gap", "p99")
        self.query_one("#alerts", Static).border_title = "alerts"
        self.query_one("#left", Vertical).border_title = "links"
        self.query_one("#collectives", DataTable).border_title = "collectives"
        self.set_interval(REFRESH_S, self.refresh_frame)
        self.refresh_frame()

    def _add_columns(self) -> None:
        """Name the columns; a narrow terminal has room for five, the name cut at its front."""
        links = self.query_one("#links", DataTable)
        links.clear(columns=True)
        narrow = self.screen.has_class("narrow")
        name = max(16, min(60, self.size.width - 47)) if narrow else None
        for label, width in (("link", name), ("rate", 10), ("use", 4), ("drops", 6), ("alert", 14)):
            links.add_column(label, width=width)
        if not narrow:
            links.add_column("peak")
            links.add_column("")
        self._name_width = name

    def on_resize(self) -> None:
        """Lay out anew for a narrow terminal (80 columns): one table, the alerts beneath, the rest by key."""
        self.screen.set_class(self.size.width < NARROW, "narrow")
        self._add_columns()
        if self.shown is not None:
            self._show(self.shown)

    def action_view(self, name: str) -> None:
        """Show alerts or collectives alone, or all again."""
        on = not self.screen.has_class(name)
        for other in ("alerts", "collectives"):
            self.screen.set_class(on and other == name, other)

    def refresh_frame(self) -> None:
        """Show the newest frame, unless paused or already shown."""
        frame = self._hub.frame
        if frame is None or self.is_paused or frame is self.shown:
            return
        self.shown = frame
        self._show(frame)

    def action_pause(self) -> None:
        """Stop or go on."""
        self.is_paused = not self.is_paused
        self.refresh_frame()

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._sort = (self._sort + 1) % len(SORTS)
        if self.shown is not None:
            self._show(self.shown)

    def action_filter(self) -> None:
        """Ask for words of a name."""
        box = self.query_one("#filter", Input)
        box.add_class("shown")
        box.focus()

    def action_clear(self) -> None:
        """Take the filter away."""
        self._words = ()
        box = self.query_one("#filter", Input)
        box.value = ""
        self._close_filter(box)

    def action_toggle_dark(self) -> None:
        """Change between dark and light."""
        self.theme = "textual-light" if self.theme == "textual-dark" else "textual-dark"

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the words."""
        self._words = tuple(event.value.lower().split())
        self._close_filter(event.input)

    def _close_filter(self, box: Input) -> None:
        box.remove_class("shown")
        self.query_one("#links", DataTable).focus()
        if self.shown is not None:
            self._show(self.shown)

    def _show(self, frame: Frame) -> None:
        self.query_one("#summary", Static).update(summary(frame, self._shown_title))
        self.query_one("#alerts", Static).update(alert_lines(frame))
        links = self.query_one("#links", DataTable)
        at = links.cursor_row
        links.clear()
        rows = link_rows(frame, SORTS[self._sort], self._words, self._name_width)
        links.add_rows(row[: len(links.columns)] for row in rows)
        links.move_cursor(row=at)
        self.query_one("#left", Vertical).border_title = f"links by {SORTS[self._sort]}"
        collectives = self.query_one("#collectives", DataTable)
        collectives.clear()
        collectives.add_rows(collective_rows(frame))


def summary(frame: Frame, title: str) -> Text:
    """Return the first lines: how many links, how full, the last step, what it costs."""
    use = frame.load.rate_Bps / frame.table.capacity_Bps
    known = use[~np.isnan(use)]
    average = f"{known.mean():.0%}" if len(known) else "-"
    down = int((frame.load.up == 0).sum())
    cost = max((alert.cost_usd_per_hour or 0.0 for alert in frame.alerts), default=0.0)
    alerts = f"{len(frame.alerts)} alert{'' if len(frame.alerts) == 1 else 's'}"
    parts = [f"{title}  {len(frame.table)} links ({down} down), average use {average}, {alerts}"]
    if cost > 0:
        parts[0] += f", ${cost:.2f} lost an hour"
    if frame.job.steps:
        step = frame.job.steps[-1]
        network_s = max(0.0, step.exposed_s - step.late_s)
        late = f", waiting for the last rank {show_time(step.late_s)}" if step.late_s > 0.02 * step.step_s else ""
        exposed = f"exposed network {show_time(network_s)} ({step.network_share:.0%}){late}"
        shares = f"computing {show_time(step.compute_s)}, {exposed}"
        parts.append(f"step {step.step}: {show_time(step.step_s)}, {shares}")
    return Text("\n".join(parts))


def link_rows(frame: Frame, sort: str, words: tuple[str, ...], name_width: int | None = None) -> list[tuple[Any, ...]]:
    """Return the rows of the table of links, at most `MAX_ROWS` of them; those in trouble first."""
    table, load = frame.table, frame.load
    use, peak = load.rate_Bps / table.capacity_Bps, load.peak_Bps / table.capacity_Bps
    alerts = {alert.place: alert for alert in reversed(frame.alerts)}
    chosen = [i for i, name in enumerate(table.names) if all(word in name.lower() for word in words)]
    column = {"use": use, "peak": peak, "drops": load.drops_per_s}.get(sort)
    if column is None:
        chosen.sort(key=lambda i: table.names[i])
    else:
        value = np.nan_to_num(column, nan=-1.0)
        chosen.sort(key=lambda i: (table.names[i] not in alerts and load.up[i] != 0, -value[i], i))
    return [_link_row(frame, i, float(use[i]), float(peak[i]), alerts, name_width) for i in chosen[:MAX_ROWS]]


def _link_row(
    frame: Frame, i: int, use: float, peak: float, alerts: Mapping[str, Incident], name_width: int | None
) -> tuple[Any, ...]:
    down = frame.load.up[i] == 0
    rate, drops, name = frame.load.rate_Bps[i], frame.load.drops_per_s[i], frame.table.names[i]
    alert = alerts.get(name)
    style = "bold red" if down or alert is not None else "yellow" if use > 0.8 else ""
    # What tells links apart stands at the end of their names.
    shown = name if name_width is None or len(name) <= name_width else "…" + name[1 - name_width :]
    return (
        Text(shown, style=style),
        "down" if down else "-" if np.isnan(rate) else show_rate(float(rate)),
        "-" if np.isnan(use) else f"{use:.0%}",
        Text(f"{drops:.1f}" if drops else "", style="bold red"),
        Text(alert.rule.removeprefix("link.") if alert is not None else "", style="bold red"),
        "-" if np.isnan(peak) else f"{peak:.0%}",
        bar(use, peak),  # last: what a narrow terminal can do without
    )


def bar(use: float, peak: float) -> Text:
    """Return a bar of the mean with a mark at the peak; letters differ too, for who cannot tell colours."""
    filled = 0 if np.isnan(use) else round(min(1.0, use) * BAR)
    cells = ["█"] * filled + ["·"] * (BAR - filled)
    if not np.isnan(peak):
        cells[min(BAR - 1, round(min(1.0, peak) * BAR))] = "|"
    return Text("".join(cells), style="yellow" if use > 0.8 else "blue")


def alert_lines(frame: Frame) -> Text:
    """Return every alert in a few lines: what, where, since when, why, what it costs."""
    if not frame.alerts:
        return Text("Nothing to report.", style="green")
    text = Text()
    for alert in frame.alerts[:20]:
        since, cost = max(0.0, frame.wall_s - (alert.since_s or frame.wall_s)), alert.cost_usd_per_hour
        mark = "▲" if alert.severity is Severity.CRITICAL else "△"
        text.append(f"{mark} {alert.rule}", _STYLES[alert.severity])
        text.append(f"  {alert.place}\n")
        price = f", ${cost:.2f} an hour" if cost is not None else ""
        text.append(f"  {alert.summary} ({since:.0f} s{price})\n")
        if alert.evidence:
            text.append(f"  {'; '.join(alert.evidence)}\n")
        for effect in alert.effects[:5]:
            text.append(f"  so {effect.rule} at {effect.place}: {effect.observed}\n")
        if alert.fix:
            text.append(f"  Fix: {alert.fix}\n", "bold")
        text.append(f"  {alert.meaning}\n", "dim")
    return text


def collective_rows(frame: Frame) -> list[tuple[Any, ...]]:
    """Return the collectives with their prediction beside them."""
    rows: list[tuple[Any, ...]] = []
    for c in frame.job.collectives[:20]:
        gap = c.recent_s / c.predicted_s - 1 if c.predicted_s else None
        style = "bold red" if gap is not None and gap > 0.25 else ""
        planned = "-" if c.predicted_s is None else show_time(c.predicted_s)
        rows.append(
            (
                c.key,
                show_time(c.p50_s),
                planned,
                Text("-" if gap is None else f"{gap:+.0%}", style=style),
                show_time(c.p99_s),
            )
        )
    return rows
