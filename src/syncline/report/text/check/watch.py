"""What a watch saw last: its frame as a document and as text."""

from __future__ import annotations

import datetime
import math

from syncline.describe.plain import JsonObject
from syncline.describe.units import show_rate, show_time
from syncline.watch.frame import Frame

MAX_LINKS, MAX_COLLECTIVES, MAX_STEPS = 12, 8, 5
MAX_ALERTS = 20
"""Alerts told in full; a broken switch raises hundreds."""


def clock(wall_s: float) -> str:
    """Return a moment as a clock on the wall shows it."""
    return datetime.datetime.fromtimestamp(wall_s).strftime("%H:%M:%S")


def frame_json(frame: Frame | None) -> JsonObject:
    """Return a frame as `--json` prints it."""
    if frame is None:
        return {"frames": 0, "links": [], "alerts": [], "health": {}}
    table, load = frame.table, frame.load
    return {
        "frames": frame.seq,
        "wall_s": frame.wall_s,
        "links": [
            {
                "link": table.names[i],
                "rate_Bps": float(load.rate_Bps[i]),
                "capacity_Bps": float(table.capacity_Bps[i]),
                "peak_Bps": float(load.peak_Bps[i]),
                "drops_per_s": float(load.drops_per_s[i]),
                "up": bool(load.up[i]),
            }
            for i in range(len(table))
        ],
        "collectives": [c.to_json() for c in frame.job.collectives],
        "steps": [s.to_json() for s in frame.job.steps[-MAX_STEPS:]],
        "alerts": list(frame.alerts),
        "health": dict(frame.health),
    }


def frame_lines(frame: Frame | None) -> list[str]:
    """Return the busiest links, collectives beside their prediction, alerts, and what could not be read."""
    if frame is None:
        return ["Nothing was seen."]
    return [
        f"{frame.seq} looks, {len(frame.table)} links, {len(frame.alerts)} alerts",
        *_link_lines(frame),
        *_collective_lines(frame),
        *_alert_lines(frame),
        *(f"  not read: {name} ({problem})" for name, problem in frame.health.get("problems", {}).items()),
    ]


def _link_lines(frame: Frame) -> list[str]:
    rate, capacity = frame.load.rate_Bps.tolist(), frame.table.capacity_Bps.tolist()
    busiest = sorted(range(len(rate)), key=lambda i: 1.0 if math.isnan(rate[i]) else -rate[i])
    lines = []
    for i in busiest[:MAX_LINKS]:
        use = "" if math.isnan(capacity[i]) else f"{rate[i] / capacity[i]:6.1%} of {show_rate(capacity[i])}"
        shown = "-" if math.isnan(rate[i]) else show_rate(rate[i])
        lines.append(f"  {frame.table.names[i]:44} {shown:>12}  {use}{'' if frame.load.up[i] else '  down'}")
    return lines


def _collective_lines(frame: Frame) -> list[str]:
    lines = []
    for c in frame.job.collectives[:MAX_COLLECTIVES]:
        planned = f", predicted {show_time(c.predicted_s)}" if c.predicted_s else ""
        lines.append(f"  {c.key:44} p50 {show_time(c.p50_s)}, p99 {show_time(c.p99_s)}{planned}")
    return lines


def _alert_lines(frame: Frame) -> list[str]:
    lines = []
    for a in frame.alerts[:MAX_ALERTS]:
        cost, since_s = a.get("cost_usd_per_hour"), a.get("since_s") or frame.wall_s
        price = "" if cost is None else f", ${cost:.2f} an hour"
        lines.append(f"  {a['severity'].upper():8} {a['rule']} at {a['place']} since {clock(since_s)}{price}")
        seen = "; ".join((f"{a['observed']}, expected {a['expected']}", *a.get("evidence", ())))
        lines.append(f"    {seen}. {a['meaning']} {a['fix']}")
    if more := frame.alerts[MAX_ALERTS:]:
        lines.append(f"  ... and {len(more)} more alerts (--json has all)")
    return lines
