"""What a watch saw last: its frame as a document and as text."""

from __future__ import annotations

import datetime
import math
from statistics import median

from syncline.describe.plain import JsonObject
from syncline.describe.units import show_rate, show_time
from syncline.report.text.account import account_lines, cause_lines
from syncline.timeline.account import subtract
from syncline.watch.frame import Frame
from syncline.watch.prediction import Prediction

MAX_LINKS, MAX_COLLECTIVES, MAX_STEPS = 12, 8, 5
MAX_ALERTS, MAX_EFFECTS = 20, 5
"""Alerts told in full; a broken switch raises hundreds."""


def clock(wall_s: float) -> str:
    """Return a moment as a clock on the wall shows it."""
    return datetime.datetime.fromtimestamp(wall_s).strftime("%H:%M:%S")


def frame_json(frame: Frame | None, prediction: Prediction | None = None) -> JsonObject:
    """Return a frame as `--json` prints it, with what was predicted of the step and of each link beside it."""
    expected = prediction or Prediction()
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
                "predicted_Bps": expected.rate_of(table.names[i]),
                "drops_per_s": float(load.drops_per_s[i]),
                "up": bool(load.up[i]),
            }
            for i in range(len(table))
        ],
        "collectives": [c.to_json() for c in frame.job.collectives],
        "steps": [s.plain for s in frame.job.steps[-MAX_STEPS:]],
        "predicted": {"source": expected.source, "step_s": expected.step_s, "exposed_s": expected.exposed_s},
        "alerts": [alert.to_json() for alert in frame.alerts],
        "health": frame.health_json(),
    }


def frame_lines(frame: Frame | None, prediction: Prediction | None = None) -> list[str]:
    """Return the busiest links, collectives and step beside their prediction, alerts, and what could not be read."""
    if frame is None:
        return ["Nothing was seen."]
    expected = prediction or Prediction()
    return [
        ", ".join(
            f"{count} {noun}{'' if count == 1 else 's'}"
            for count, noun in ((frame.seq, "look"), (len(frame.table), "link"), (len(frame.alerts), "alert"))
        ),
        *_step_lines(frame, expected),
        *_link_lines(frame, expected),
        *_collective_lines(frame),
        *_alert_lines(frame),
        *(f"  not read: {name} ({problem})" for name, problem in frame.health.get("problems", {}).items()),
    ]


def _step_lines(frame: Frame, expected: Prediction) -> list[str]:
    """Return the last steps beside the plan; what is lost is said where its cause is."""
    steps = frame.job.steps[-MAX_STEPS:]
    if not steps:
        return []
    now = median(step.step_s for step in steps)
    live, planned = steps[-1].account, expected.account
    if not expected.step_s:
        return [f"  step {show_time(now)}", *account_lines(live, "    ")]
    said = f"  step {show_time(now)}, predicted {show_time(expected.step_s)} ({now / expected.step_s - 1:+.0%})"
    return [said, *(cause_lines(subtract(planned, live), "predicted", "now") if planned is not None else ())]


def _link_lines(frame: Frame, expected: Prediction) -> list[str]:
    rate, capacity = frame.load.rate_Bps.tolist(), frame.table.capacity_Bps.tolist()
    busiest = sorted(range(len(rate)), key=lambda i: 1.0 if math.isnan(rate[i]) else -rate[i])
    lines = []
    for i in busiest[:MAX_LINKS]:
        use = "" if math.isnan(capacity[i]) else f"{rate[i] / capacity[i]:6.1%} of {show_rate(capacity[i])}"
        shown = "-" if math.isnan(rate[i]) else show_rate(rate[i])
        planned = expected.rate_of(frame.table.names[i])
        beside = "" if planned is None else f", predicted {show_rate(planned)} on average"
        lines.append(f"  {frame.table.names[i]:44} {shown:>12}  {use}{beside}{'' if frame.load.up[i] else '  down'}")
    return lines


def _collective_lines(frame: Frame) -> list[str]:
    lines = []
    for c in frame.job.collectives[:MAX_COLLECTIVES]:
        about = "" if c.is_told else "about "
        planned = f", predicted {about}{show_time(c.predicted_s)}" if c.predicted_s else ""
        lines.append(f"  {c.key:44} p50 {show_time(c.p50_s)}, p99 {show_time(c.p99_s)}{planned}")
    return lines


def _alert_lines(frame: Frame) -> list[str]:
    lines = []
    for a in frame.alerts[:MAX_ALERTS]:
        cost, since_s = a.cost_usd_per_hour, a.since_s or frame.wall_s
        price = "" if cost is None else f", ${cost:.2f} an hour"
        lines.append(f"  {a.severity.name:8} {a.rule} at {a.place} since {clock(since_s)}{price}")
        seen = "; ".join((a.summary, *a.evidence))
        lines.append(f"    {seen}. {a.meaning} {a.fix}")
        lines += [f"    so {effect.rule} at {effect.place}: {effect.summary}" for effect in a.effects[:MAX_EFFECTS]]
    if more := frame.alerts[MAX_ALERTS:]:
        lines.append(f"  ... and {len(more)} more alerts (--json has all)")
    return lines
