"""Heartbeats of thousands of ranks, tick by tick in columns: who hears whom, who is called dead, who hears of it when.

Neighbours, intervals, limits and the rule that news of a loss is passed on at once are those of `runtime.alive`; a
message is lost with a given chance, and takes one tick. A paused process neither sends nor passes on, and its host
answers for none; a dead one's host answers that the process is gone, or, where the host itself is gone, nothing at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.runtime.alive.heartbeat import Beat, neighbours
from syncline.runtime.alive.verdict import REFUSALS, SILENCE_SHARE
from syncline.runtime.alive.watchdog import BEATS, GOODBYES

TICK_S = 0.005


@dataclass(frozen=True)
class SwarmResult:
    """What a rank sends each second, when the first and the last knew of the loss, and who was called silent wrongly.

    The last that runs: one that is paused hears of it when it goes on.
    """

    messages_a_second: float
    bytes_a_second: float
    named_s: float
    last_heard_s: float
    false_alarms: int


def watch(
    num_ranks: int,
    *,
    watch_s: float = 10.0,
    loss: float = 0.01,
    pause_s: float = 5.0,
    num_paused: int = 50,
    host_is_gone: bool = False,
    seed: int = 0,
) -> SwarmResult:
    """Let so many ranks beat for a while, pause some, kill one, and return what the others made of it."""
    draws = np.random.default_rng(seed)
    near = np.array([neighbours(rank, num_ranks) for rank in range(num_ranks)])
    degree = near.shape[1]
    # Where each link comes back: the place of rank r in the list of its k-th neighbour.
    back = np.array([[int(np.flatnonzero(near[peer] == rank)[0]) for peer in near[rank]] for rank in range(num_ranks)])
    interval_s, limit_s = watch_s / BEATS, SILENCE_SHARE * watch_s
    due_s = draws.uniform(0.0, interval_s, num_ranks)
    heard_s, refused = np.zeros((num_ranks, degree)), np.zeros((num_ranks, degree), dtype=int)
    knows_s = np.full(num_ranks, np.inf)
    dead, killed_s = int(draws.integers(num_ranks)), 8.0
    paused = draws.choice(np.delete(np.arange(num_ranks), dead), num_paused, replace=False)
    pause_at_s = draws.uniform(1.0, 10.0, num_paused)
    wakes_s = np.zeros(num_ranks)
    wakes_s[paused] = pause_at_s + pause_s
    end_s, sent, silences = killed_s + 3.0 + (limit_s if host_is_gone else 0.0), 0, set[int]()
    stood = np.zeros(num_ranks, dtype=bool)
    for tick in range(int(end_s / TICK_S)):
        now = tick * TICK_S
        still = np.zeros(num_ranks, dtype=bool)
        still[paused[(pause_at_s <= now) & (now < pause_at_s + pause_s)]] = True
        alive = np.ones(num_ranks, dtype=bool)
        alive[dead] = now < killed_s
        runs = alive & ~still
        # Whoever has just stood still hears again before it judges.
        woke = stood & ~still
        heard_s[woke] = now
        stood = still
        beats = runs & (due_s <= now)
        due_s[beats] = now + interval_s
        tells = runs & (knows_s <= now) & (now < knows_s + GOODBYES * TICK_S)
        for sender in np.flatnonzero(beats | tells):
            peers, places = near[sender], back[sender]
            sent += degree
            came = draws.random(degree) >= loss
            heard_s[peers[came], places[came]] = now
            if np.isfinite(knows_s[sender]):
                first = peers[came & np.isinf(knows_s[peers])]
                knows_s[first] = np.where(still[first], np.maximum(wakes_s[first], now), now) + TICK_S
            if not host_is_gone and not alive[dead]:
                refused[sender, (peers == dead) & came] += 1
        judges = beats & np.isinf(knows_s)
        gone = judges & (refused >= REFUSALS).any(axis=1)
        knows_s[gone] = now
        late = (now - heard_s > limit_s) & judges[:, None]
        for rank, place in zip(*np.nonzero(late), strict=True):
            who = int(near[rank, place])
            if who == dead and now > killed_s:
                knows_s[rank] = min(knows_s[rank], now)
            else:
                silences.add(who)
    others = np.delete(knows_s, [dead, *paused[pause_at_s + pause_s > killed_s]])
    size = len(Beat(num_ranks - 1, 1000, 10**9, ages=dict.fromkeys(near[0].tolist(), 0.123)).to_bytes("0" * 16))
    rate = sent / num_ranks / end_s
    return SwarmResult(
        round(rate, 2), round(rate * size), round(float(others.min()) - killed_s, 3),
        round(float(others.max()) - killed_s, 3), len(silences),
    )  # fmt: skip
