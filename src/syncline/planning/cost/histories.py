"""Runs lived through: when each of many equal runs ends, failure by failure.

    lived = histories(work_s, found)
    lived.days, lived.interruptions

Failures come at random. One costs what was done since the last checkpoint, the time until somebody notices, and the
restart; one that takes a host away costs a spare until the host is back. Without a spare the job waits, or goes on with
the replicas that are whole and regrows, which is a restart too. All runs advance together, an event at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from syncline.planning.cost.checkpoint import Values
from syncline.planning.cost.recovery import Recovery

DRAWS = 2000
#: A run with more failures is lived through for so many of them, and the rest is like them: what luck then adds is 6 %
#: of what failures cost.
MOST_FAILURES = 300


@dataclass(frozen=True)
class Histories:
    """How runs went, one value a run."""

    days: Values
    interruptions: Values
    waiting_days: Values
    """Of the days: those in which a job waited for a host."""


def histories(
    work_s: float | Values, found: Recovery, *, failures: float | Values = 1.0, restart: float | Values = 1.0,
    repair: float | Values = 1.0, seed: int = 2,
) -> Histories:  # fmt: skip
    """Return how runs of so much undisturbed work go; the factors are on failure rate, restarts and repairs."""
    random = np.random.default_rng(seed)
    whole, rate, begin, slower = (np.broadcast_to(np.asarray(x, np.float64), DRAWS) for x in
                                  (work_s, failures, restart, repair))  # fmt: skip
    mttf = found.mttf_s / rate
    work = np.minimum(whole, MOST_FAILURES * mttf)
    down = found.begin_s * begin + found.restart_s - found.begin_s
    regrow = down - found.detect_s * begin
    cycle = found.interval_s + found.stall_s
    standby, hours = found.standby, np.asarray(found.repair_hours) * 3600
    speeds = standby.speeds if standby.spares is not None else np.ones(1)
    back = np.full((DRAWS, len(speeds) - 1), -math.inf)
    now, left, ahead = np.zeros(DRAWS), work.copy(), np.zeros(DRAWS)
    failed, waited = np.zeros(DRAWS), np.zeros(DRAWS)
    live = np.arange(DRAWS)
    while len(live):
        away = back[live] > now[live, None]
        count = away.sum(axis=1)
        speed = speeds[count]
        first = np.where(away, back[live], math.inf).min(axis=1, initial=math.inf) - now[live]
        stuck, runs = live[speed == 0], speed > 0
        now[stuck] += first[speed == 0]
        waited[stuck] += first[speed == 0]
        live, speed, first = live[runs], speed[runs], np.where(speed < 1, first, math.inf)[runs]
        regrown = np.where(speeds[np.maximum(count[runs] - 1, 0)] > speed, regrow[live], 0.0)
        fails = random.exponential(1.0, len(live)) * mttf[live] / speed
        full = left[live] / speed
        ends = ahead[live] + full + np.ceil(full / found.interval_s - 1e-9) * found.stall_s
        step = np.minimum(np.minimum(fails, first), ends)
        useful = np.maximum(step - ahead[live], 0.0)
        done, grows = step == ends, step == first
        kept = np.where(grows, useful * found.interval_s / cycle, np.floor(useful / cycle) * found.interval_s)
        now[live] += step
        left[live] -= np.where(done, left[live], np.minimum(kept * speed, left[live]))
        lost = live[~done & ~grows]
        failed[lost] += 1
        ahead[live] = np.where(grows, regrown, down[live])
        gone = lost[random.random(len(lost)) < found.rate.host_share] if back.shape[1] else lost[:0]
        slot = np.argmin(back[gone], axis=1) if len(gone) else gone
        back[gone, slot] = now[gone] + random.choice(hours, len(gone)) * slower[gone]
        live = np.concatenate([stuck, live[~done]])
    scale = whole / work
    return Histories(now * scale / 86400, failed * scale, waited * scale / 86400)
