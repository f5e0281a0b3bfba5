"""Simulated hosts under the real rules: kinds of traffic, of links and of sources, with and without a fault.

    python -m tests.watch.matrix 600        # every clean cell for ten simulated minutes, then every fault

Traffic moves in steps of 10 ms over a cable that carries what its rate allows and queues the rest. A look is 250 ms of
it, as the agent measures it: the mean, the highest rate over 60 ms, bytes that wait, packets lost.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from syncline.finding import Severity
from syncline.watch.frame import Frame
from syncline.watch.links import KnownLink, LinkLoad, LinkTable
from syncline.watch.rules.engine import RuleEngine

RATE_Bps = 25e6
STEP_S, LOOK_S, WINDOW = 0.01, 0.25, 6
STEPS = round(LOOK_S / STEP_S)
QUEUE_BYTES = 1e6
WARM_S, FAULT_S = 40.0, 6.0
PACKET = 1500.0
Demand = Callable[["Host"], tuple[float, float]]


@dataclass
class Way:
    """One direction: what waits for it, and what it moved in the last steps."""

    share: float = 1.0
    waits_bytes: float = 0.0
    moved: deque[float] = field(default_factory=lambda: deque([0.0] * STEPS, maxlen=STEPS + WINDOW))

    def step(self, wanted_bytes: float, noise: float) -> None:
        self.waits_bytes += wanted_bytes
        sent = min(self.waits_bytes, RATE_Bps * self.share * STEP_S * noise)
        self.waits_bytes -= sent
        self.moved.append(sent)

    def look(self) -> tuple[float, float]:
        """Return the mean of the look and the highest rate over a window."""
        steps = list(self.moved)
        sums = [sum(steps[k : k + WINDOW]) for k in range(len(steps) - WINDOW + 1)]
        return sum(steps[-STEPS:]) / LOOK_S, max(sums) / (WINDOW * STEP_S)


@dataclass
class Host:
    """A host with one cable: `out` and `back`."""

    demand: Demand
    random: random.Random
    out: Way = field(default_factory=Way)
    back: Way = field(default_factory=Way)
    now_s: float = 0.0
    until_s: float = 0.0
    is_crowded: bool = False

    def step(self) -> None:
        noise = self.random.uniform(0.2, 1.0) if self.is_crowded else self.random.uniform(0.985, 1.0)
        out, back = self.demand(self)
        self.out.step(out, noise)
        self.back.step(back, self.random.uniform(0.2, 1.0) if self.is_crowded else noise)
        self.now_s += STEP_S


def two_way(host: Host, size: float = 2e6, compute_s: float = 0.1) -> tuple[float, float]:
    """Compute, then exchange; the next step begins when both ways are done."""
    if host.out.waits_bytes > 1 or host.back.waits_bytes > 1:
        host.until_s = host.now_s + compute_s * host.random.uniform(0.95, 1.05)
        return 0.0, 0.0
    return (size, size) if host.now_s >= host.until_s else (0.0, 0.0)


def one_way(host: Host) -> tuple[float, float]:
    """Send without end; acknowledgements come back."""
    return max(0.0, 1e6 - host.out.waits_bytes), 0.02 * host.out.moved[-1]


def bursty(host: Host) -> tuple[float, float]:
    if host.now_s < host.until_s:
        return 0.0, 0.0
    host.until_s = host.now_s + host.random.expovariate(4)
    return host.random.uniform(1e5, 2e6), host.random.uniform(1e3, 2e4)


def idle(host: Host) -> tuple[float, float]:
    return (200.0, 200.0) if round(host.now_s / STEP_S) % 50 == 0 else (0.0, 0.0)


def checkpointing(host: Host) -> tuple[float, float]:
    """Train, and every 30 s write for 8 s at what the storage takes."""
    if host.now_s % 30 < 8:
        return (0.6 * RATE_Bps * STEP_S, 0.01 * RATE_Bps * STEP_S) if host.out.waits_bytes < 1e5 else (0.0, 0.0)
    return two_way(host)


def evaluating(host: Host) -> tuple[float, float]:
    """Train, and every 40 s evaluate for 12 s with little to say."""
    return idle(host) if (host.now_s + 20) % 40 < 12 else two_way(host)


def slow_steps(host: Host) -> tuple[float, float]:
    """Steps of three seconds."""
    return two_way(host, 8e6, 2.5)


TRAFFIC: dict[str, Demand] = {
    "two-way": two_way, "one-way": one_way, "bursty": bursty, "idle": idle, "checkpointing": checkpointing,
    "evaluation": evaluating, "slow steps": slow_steps,
}  # fmt: skip
SOURCES = ("sampled", "rates", "prometheus")
"""The agent as shipped, also in a container; a captured tree, which nobody samples; means of a minute."""
LINKS = {"shaped": 1.25e9, "unknown": float("nan"), "real": RATE_Bps}
"""What the interface reports: 10 Gb/s of a veth or a shaped NIC, nothing (a bond, a VF), or what it is."""


@dataclass(frozen=True)
class Fault:
    """What happens to which way: a share of its rate, packets lost of those sent."""

    way: str = "out"
    share: float = 1.0
    loss: float = 0.0


def looks(
    traffic: str, *, source: str = "sampled", link: str = "shaped", fault: Fault | None = None, seconds: float = 120.0,
    is_crowded: bool = False, seed: int = 1,
) -> Iterator[tuple[Frame, np.ndarray]]:  # fmt: skip
    """Give frames with what links reached; the fault, where there is one, is there for six seconds after forty."""
    host = Host(TRAFFIC[traffic], random.Random(seed), is_crowded=is_crowded)
    name, capacity = "host/eth0", LINKS[link]
    ends = (KnownLink(f"{name} tx", capacity, src=name), KnownLink(f"{name} rx", capacity, dst=name))
    table = LinkTable.of(ends, ["eth0", "eth0"], ["tx", "rx"], 1)
    minute: deque[np.ndarray] = deque(maxlen=240)
    for number in range(round(seconds / LOOK_S)):
        is_faulty = fault is not None and WARM_S <= host.now_s < WARM_S + FAULT_S
        way = host.out if fault is None or fault.way == "out" else host.back
        way.share = fault.share if fault is not None and is_faulty else 1.0
        for _ in range(STEPS):
            host.step()
        seen = np.array([host.out.look(), host.back.look()])
        rate, reach = seen[:, 0], seen[:, 1]
        minute.append(rate)
        drops = np.zeros(2)
        if fault is not None and is_faulty and fault.loss:
            drops[0] = host.random.gauss(1, 0.2) * fault.loss * rate[0] / PACKET
        load = replace(LinkLoad.empty(2), rate_Bps=rate, drops_per_s=np.maximum(drops, 0),
                       backlog_bytes=np.array([host.out.waits_bytes, 0.0]))  # fmt: skip
        if source == "rates":
            load, reach = replace(load, backlog_bytes=np.zeros(2)), rate
        elif source == "prometheus":
            mean = np.mean(list(minute), axis=0)
            load, reach = replace(load, rate_Bps=mean, backlog_bytes=np.zeros(2)), mean
            if number % 4:
                continue
        interval_s = 1.0 if source == "prometheus" else LOOK_S
        yield Frame(number, 1.7e9 + host.now_s, host.now_s, interval_s, table, load), reach


@dataclass
class Verdict:
    """What the rules said of one cell: when the place was first named, when all was closed, and what else was named."""

    named_s: float | None = None
    closed_s: float | None = None
    critical: set[tuple[str, str]] = field(default_factory=set)
    warning: set[tuple[str, str]] = field(default_factory=set)


def judge(traffic: str, *, fault: Fault | None = None, **options: object) -> Verdict:
    """Return what became of one cell; times are counted from the fault's beginning and from its end."""
    engine, found = RuleEngine(), Verdict()
    speed = {"eth0": LINKS[str(options.get("link", "shaped"))]}
    place = f"host/eth0 {'tx' if fault is None or fault.way == 'out' else 'rx'}"
    rule = "link.loss" if fault is not None and fault.loss else "link.degraded"
    crowded = bool(options.get("is_crowded"))
    for frame, reach in looks(traffic, fault=fault, **options):  # type: ignore[arg-type]
        engine.update(frame, reach_Bps=reach, speed_Bps=speed, is_crowded=crowded)
        up = {(i.rule, i.place): i.severity for i in engine.alerts()}
        for key, severity in up.items():
            (found.critical if severity is Severity.CRITICAL else found.warning).add(key)
        if fault is not None and frame.mono_s > WARM_S:
            if found.named_s is None and (rule, place) in up:
                found.named_s = frame.mono_s - WARM_S
            if found.named_s is not None and found.closed_s is None and frame.mono_s > WARM_S + FAULT_S and not up:
                found.closed_s = frame.mono_s - WARM_S - FAULT_S
    return found


def main(seconds: float) -> None:
    """Print every cell."""
    for source in SOURCES:
        for traffic in TRAFFIC:
            for link in LINKS if source == "sampled" else ("shaped",):
                for crowded in (False, True) if source == "sampled" and link == "shaped" else (False,):
                    clean = judge(traffic, source=source, link=link, is_crowded=crowded, seconds=seconds)
                    crowd = ", crowded" if crowded else ""
                    said = f"critical {sorted(clean.critical)}, warning {sorted(clean.warning)}"
                    print(f"clean {seconds:.0f} s  {source:10} {traffic:14} {link:8}{crowd}: {said}", flush=True)
    for traffic in ("two-way", "one-way", "checkpointing", "evaluation", "slow steps"):
        for way in ("out", "back"):
            for share in (0.9, 0.7, 0.5, 0.2, 0.1, 0.02, 0.01):
                if traffic == "one-way" and way == "back":
                    continue
                v = judge(traffic, fault=Fault(way, share), seconds=WARM_S + FAULT_S + 15)
                print(f"{traffic:14} {way:5} to {share:4.0%}: named {v.named_s}, closed {v.closed_s}, "
                      f"critical {sorted(v.critical)}, warning {sorted(v.warning)}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 120.0)
