"""The agent of a host: four times a second it reads sources, looks with every rule, keeps history and tells the hub.

agent = Agent(Options(host="host-00"))
agent.tick()                    # one look: a Frame
agent.run(stop)                 # until the event is set
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from syncline.errors import WatchError
from syncline.logs.follow import KernelFollower
from syncline.watch.burst import Burst, BurstFinder, Peaks
from syncline.watch.clock import Clock
from syncline.watch.counter import CounterBank, Growth
from syncline.watch.frame import Frame, Health
from syncline.watch.history import History
from syncline.watch.incident import IncidentEvent
from syncline.watch.job import JobView
from syncline.watch.link_map import LinkMap
from syncline.watch.link_reader import LinkReader
from syncline.watch.links import Floats, LinkLoad
from syncline.watch.metric import METRICS, Key
from syncline.watch.prediction import Prediction
from syncline.watch.rules.engine import RULES, RuleEngine
from syncline.watch.rules.rail_rules import KernelLog
from syncline.watch.rules.thresholds import Thresholds
from syncline.watch.sampler import BurstSampler, InterfacePlace, SamplerPace
from syncline.watch.serve.hub import Hub
from syncline.watch.sources.host_load import HostLoad
from syncline.watch.sources.netdev import NetdevSource
from syncline.watch.sources.source import CounterSource
from syncline.watch.sources.tcp import TcpPathSource
from syncline.watch.spans.event import AHEAD_S, Event, SpanEvent, SpanSource

TICK_S = 0.25
REST_S = 1.0
SWAY, GOLDEN = 0.8, (5**0.5 - 1) / 2
"""Looks sway about their grid, evenly: else a job whose steps take as long as a look is seen in one phase only."""
MAX_FAILURES = 40
"""Looks in a row that may fail before the agent gives up and says so: ten seconds of them."""
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class AgentOptions:
    """How an agent watches; what it reads from is given to it apart."""

    host: str
    tick_s: float = TICK_S
    links: LinkMap = field(default_factory=LinkMap)
    prediction: Prediction = field(default_factory=Prediction)
    thresholds: Thresholds = field(default_factory=Thresholds)


@dataclass
class _Slow:
    """A source read once a second, and its last reading."""

    source: CounterSource
    read_s: float = float("-inf")
    reading: Mapping[Key, float] = field(default_factory=dict)
    grown: Mapping[Key, Growth] = field(default_factory=dict)


class Agent:
    """Watches one host. `tick` is one look; `run` looks at a steady pace, whatever readers and disks do."""

    def __init__(
        self,
        options: AgentOptions,
        interfaces: Sequence[NetdevSource] = (),
        sources: Sequence[CounterSource] = (),
        spans: Sequence[SpanSource] = (),
        *,
        clock: Clock | None = None,
        history: History | None = None,
        hub: Hub | None = None,
        host_load: HostLoad | None = None,
        kernel: KernelFollower | None = None,
    ) -> None:
        self.options = options
        self.hub = hub or Hub()
        self.history = history
        self.clock = clock or Clock()
        self.bank = CounterBank()
        self.job = JobView(options.prediction)
        rules = RULES if kernel is None else (KernelLog(kernel.lines), *RULES)
        self.engine = RuleEngine(options.thresholds, options.prediction, rules)
        self._reading: dict[Key, float] = {}
        self.bursts_total: dict[str, int] = {}
        self._interfaces = list(interfaces)
        self._slow = [_Slow(source) for source in sources]
        self._spans = list(spans)
        self._reader = LinkReader(options.host, options.links)
        self._finder = BurstFinder()
        self._sampler: BurstSampler | None = None
        self._pace = SamplerPace()
        self._seq = 0
        self._before = self.clock.now()
        self._began_s = round(self._before.wall_s, 3)
        self._cpu_s = time.process_time()
        self._problems: dict[str, str] = {}
        self._host_load = host_load
        self._kernel = kernel
        self._crowded = ""
        self._late_s = 0.0

    def tick(self) -> Frame:
        """Look once: read, compare, keep, tell."""
        reading, grown, now_s = self._read()
        self._choose_sampled()
        peaks = self._peaks()
        stamp = self.clock.now()
        load = self._reader.update(reading, grown, peaks, now_s, self._owners())
        busy = self._take_spans(stamp.mono_s)
        job = self.job.state(stamp.mono_s)
        interval_s = max(stamp.mono_s - self._before.mono_s, 1e-9)
        self._seq += 1
        frame = Frame(self._seq, stamp.wall_s, stamp.mono_s, interval_s, self._reader.table, load, job)
        self._crowded = self._host_load.look(stamp.mono_s, interval_s) if self._host_load is not None else ""
        events = self.engine.update(
            frame, reach_Bps=self._reach(peaks, load), bursts=self._named(peaks), busy=busy, tcp=_tcp(grown),
            speed_Bps=self._reader.speed_Bps, is_crowded=bool(self._crowded),
        )  # fmt: skip
        self._before = stamp
        return self._tell(replace(frame, alerts=self.engine.alerts(), health=self._health(interval_s)), events)

    def run(self, stop: threading.Event) -> None:
        """Look every `tick_s` on average until told to stop; a late look moves the next ones, none is made up for."""
        begun_s, num_looks = time.monotonic(), 0
        num_failed = 0
        while not stop.is_set():
            try:
                self.tick()
                num_failed = 0
            except Exception as error:
                # One look that fails must not end the watch; one that always does must not go unseen.
                num_failed += 1
                self._fail("agent", error)
                if num_failed >= MAX_FAILURES:
                    raise
            num_looks += 1
            wait_s = begun_s + self.options.tick_s * look_due(num_looks) - time.monotonic()
            self._late_s = max(0.0, -wait_s)
            begun_s += self._late_s
            stop.wait(max(0.0, wait_s))

    def close(self) -> None:
        """Stop sampling and close what was opened here."""
        if self._sampler is not None:
            self._sampler.close()
            self._sampler = None
        for source in (*self._interfaces, *(slow.source for slow in self._slow)):
            source.close()
        for spans in self._spans:
            spans.close()
        if self._kernel is not None:
            self._kernel.close()
        if self.history is not None:
            self.history.close()

    # Reading

    @property
    def gauges(self) -> dict[Key, float]:
        """What the last look read that is no counter."""
        return {key: value for key, value in self._reading.items() if not METRICS[key.metric].is_counter}

    def _take(self, source: CounterSource | SpanSource, instead: Answer) -> Answer:
        """Return what a source gives; whatever goes wrong in it is shown on the page as its problem."""
        try:
            given: Any = source.read()
            self._problems[source.name] = source.problem
        except Exception as error:
            self._fail(source.name, error)
            return instead
        return cast(Answer, given)

    def _fail(self, name: str, error: Exception) -> None:
        self._problems[name] = f"failed: {type(error).__name__}: {error}"[:300]

    def _read(self) -> tuple[dict[Key, float], dict[Key, Growth], float]:
        reading: dict[Key, float] = {}
        nothing: Mapping[Key, float] = {}
        for source in self._interfaces:
            reading.update(self._take(source, nothing))
        now_s = self.clock.now().mono_s
        grown = self.bank.update(reading, now_s)
        for slow in self._slow:
            if slow.source.is_quick or now_s - slow.read_s >= REST_S - 0.5 * self.options.tick_s:
                slow.reading = self._take(slow.source, nothing)
                slow.read_s = self.clock.now().mono_s
                slow.grown = self.bank.update(slow.reading, slow.read_s)
            reading.update(slow.reading)
            grown.update(slow.grown)
        self._reading = reading
        return reading, grown, now_s

    def _owners(self) -> dict[str, str]:
        """Return the device of every address that sources know."""
        found: dict[str, str] = {}
        for slow in self._slow:
            if isinstance(slow.source, TcpPathSource):
                found.update(slow.source.owners)
        return found

    def _choose_sampled(self) -> None:
        """Follow the interfaces as they come and go, at a period that keeps sampling below a hundredth of a core."""
        places = {
            device: InterfacePlace(source.netns, index)
            for source in self._interfaces
            for device, index in source.indices().items()
        }
        if self._sampler is not None:
            if self._sampler.places == places and self._sampler.period_s == self._pace.period_s:
                return
            if self._sampler.period_s != self._pace.period_s:
                self.engine.forget_reach()
            self._sampler.close()
            self._sampler = None
        if places and not self._problems.get("sampler"):
            try:
                self._sampler = BurstSampler(places, self._pace.period_s)
            except WatchError as error:
                self._problems["sampler"] = error.message

    def _peaks(self) -> dict[tuple[str, str], Peaks]:
        if self._sampler is None:
            return {}
        rows = self._sampler.take()
        self._pace.look(rows)
        return self._finder.update(rows, self._reader.capacities())

    def _reach(self, peaks: Mapping[tuple[str, str], Peaks], load: LinkLoad) -> Floats:
        """Return the highest rate of each link: sampled, not known in this look, or the mean where nobody samples."""
        sampled, table = set(self._sampler.devices) if self._sampler is not None else set(), self._reader.table
        reach_Bps = load.rate_Bps.copy()
        for i, place in enumerate(zip(table.devices, table.directions, strict=True)):
            if place[0] in sampled:
                reach_Bps[i] = peaks[place].reach_Bps if place in peaks else float("nan")
        return reach_Bps

    def _named(self, peaks: Mapping[tuple[str, str], Peaks]) -> dict[str, tuple[Burst, ...]]:
        """Return bursts by link name, and count them."""
        table = self._reader.table
        found = {}
        for name, device, direction in zip(table.names, table.devices, table.directions, strict=True):
            seen = peaks.get((device, direction))
            if seen is not None and seen.bursts:
                found[name] = seen.bursts
                self.bursts_total[name] = self.bursts_total.get(name, 0) + len(seen.bursts)
        return found

    def _take_spans(self, now_s: float) -> list[tuple[float, float]]:
        from syncline.timeline import COMMUNICATION

        busy: list[tuple[float, float]] = []
        for source in self._spans:
            none: Sequence[Event] = ()
            given = self._take(source, none)
            # A span of the future would hide all that really comes after it.
            events = [e for e in given if not isinstance(e, SpanEvent) or e.end_s <= now_s + AHEAD_S]
            source.num_bad += len(given) - len(events)
            try:
                self.job.add(events)
            except Exception as error:
                self._fail(source.name, error)
            busy += [(e.start_s, e.end_s) for e in events if isinstance(e, SpanEvent) and e.kind in COMMUNICATION]
        return busy

    # Telling

    def _health(self, interval_s: float) -> Health:
        cpu_s, self._cpu_s = self._cpu_s, time.process_time()
        problems = {**self._problems, **{f"rule {rule}": text for rule, text in self.engine.problems.items()}}
        health: Health = {
            "host": self.options.host,
            "began_s": self._began_s,
            "cpu_share": round((self._cpu_s - cpu_s) / interval_s, 4),
            "late_s": round(self._late_s, 4),
            "num_counters": len(self.bank),
            "num_resets": self.bank.num_resets,
            "num_clock_steps": self.clock.num_steps,
            "problems": {name: problem for name, problem in problems.items() if problem},
            "num_bad_spans": sum(source.num_bad for source in self._spans),
            "spans_from": [source.name for source in self._spans],
        }
        if self._crowded:
            health["crowded"] = self._crowded
        if self.options.prediction.usd_per_day is not None:
            health["usd_per_day"] = self.options.prediction.usd_per_day
        if self._sampler is not None:
            health["sampled"] = list(self._sampler.devices)
            health["sampler"] = f"every {1e3 * self._sampler.period_s:g} ms"
        if self.history is not None:
            health["history"] = {"problem": self.history.problem, "num_dropped": self.history.num_dropped}
        return health

    def _tell(self, frame: Frame, events: list[IncidentEvent]) -> Frame:
        plain = [event.to_json() for event in events]
        if self.history is not None:
            try:
                self.history.add(frame, plain)
            except Exception as error:
                self._fail("history", error)
        self.hub.publish(frame, plain)
        return frame


def look_due(number: int) -> float:
    """Return when a look is due, counted in looks since the first."""
    return number + SWAY * (number * GOLDEN % 1.0)


def _tcp(grown: Mapping[Key, Growth]) -> tuple[float, float]:
    sent, lost = (grown.get(Key(f"tcp.{name}", "host")) for name in ("out_segments", "lost"))
    return (sent.rate if sent else 0.0, lost.rate if lost else 0.0)
