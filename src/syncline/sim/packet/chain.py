"""The chain of messages that decided when a run ended: each began when the one before it was done.

Its messages, one after another, fill the run from beginning to end, so whatever made them slower than each would have
been alone made the run later. Times of messages that are not on it do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from syncline.sim.packet.network import Floats, Longs
from syncline.sim.packet.outcome import Outcome


@dataclass(frozen=True)
class ChainTimes:
    """Seconds of the chain: what its messages take alone, and what they waited, where."""

    messages: int
    alone_s: float
    queued_s: float
    """Behind others in queues: what the last packet of each message needed more than with all links idle."""
    limited_s: float
    """At the sender: for the rate or the window that its transport allowed."""
    held_s: float
    """At the sender, for another reason: its port sent other messages or was paused, or a loss was found late."""


def chain(outcome: Outcome) -> ChainTimes:
    """Return the chain that ends with the last message of the first job."""
    tasks = _tasks(outcome)
    columns = outcome.posted.columns["tasks"]
    over, size = columns["over"][tasks], columns["size_bytes"][tasks]
    took = outcome.end_s[tasks] - outcome.begin_s[tasks]
    delay = columns["delay_ps"][tasks] / 1e12
    alone, limited, held = delay.copy(), np.zeros(len(tasks)), np.zeros(len(tasks))
    headers = outcome.options.header_bytes
    for i in np.flatnonzero((over >= 0) & (size > 0)).tolist():
        sending, slowest, crossing = _alone_s(outcome, int(over[i]), int(size[i]), headers)
        alone[i] += slowest + crossing
        late = outcome.last_sent_s[tasks[i]] - outcome.begin_s[tasks[i]] - delay[i] - sending
        limited[i] = min(outcome.limited_s[tasks[i]], max(late, 0.0))
        held[i] = late - limited[i]
    for i in np.flatnonzero((over <= -2) & (size > 0)).tolist():
        alone[i] += size[i] / bus_Bps(outcome.posted.columns["buses"], -2 - int(over[i]))
    sums = (float(each.sum()) for each in (alone, took - alone - limited - held, limited, held))
    return ChainTimes(int((size > 0).sum()), *(round(each, 12) for each in sums))  # the clock counts picoseconds


def _tasks(outcome: Outcome) -> Longs:
    """Return the tasks of the chain, the last first."""
    columns, end = outcome.posted.columns["tasks"], outcome.end_s
    start, wait_for = columns["wait_start"], columns["wait_for"]
    before = outcome.done_tasks[0]
    found: list[int] = []
    while len(before):
        found.append(int(before[np.argmax(end[before])]))
        before = wait_for[start[found[-1]] : start[found[-1] + 1]]
    return np.array(found, np.int64)


def _alone_s(outcome: Outcome, flow: int, size: int, headers: tuple[int, ...]) -> tuple[float, float, float]:
    """Return how long all but the last packet take, at the sender and at the slowest link, and the last one's way."""
    network, options = outcome.network, outcome.options
    connections = outcome.posted.columns["connections"]
    header = headers[int(connections["profile"][flow])]
    ports = outcome.posted.ways.row(flow)
    rate: Floats = network.rate_Bps[ports]
    cap = float(connections["cap_Bps"][flow]) or np.inf
    packets = -(-size // options.payload_bytes)
    full = options.payload_bytes + header
    before = (packets - 1) * full
    last = size - (packets - 1) * options.payload_bytes + header
    # At every switch the last packet waits for the one before it, which is full.
    ahead = 64 if options.switching == "cut-through" else full if packets > 1 else last
    crossing = last / rate[-1] + float((ahead / rate[:-1]).sum()) + float(network.latency_ps[ports].sum()) / 1e12
    return before / min(float(rate[0]), cap), before / min(float(rate.min()), cap), crossing


def bus_Bps(buses: Any, path: int) -> float:
    """Return the rate of the slowest link of a path inside a host."""
    first, last = buses["path_start"][path : path + 2]
    return float(buses["rate_Bps"][buses["path_bus"][first:last]].min())
