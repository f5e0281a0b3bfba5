"""Many hosts on one page: frames of other agents put side by side, each asked on its own, none of them waited for.

An agent that is slow, gone, newer or hostile costs the others nothing: it has a task and a deadline of its own, what it
says comes through `door`, and what goes wrong with it is a line at the foot of the page.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median_low
from typing import Protocol, TypeVar

import numpy as np

from syncline.watch.fleet.presence import HostFrame, Presence, silent_alerts
from syncline.watch.frame import Frame, Health
from syncline.watch.history import History
from syncline.watch.incident import Incident, IncidentLog, hung
from syncline.watch.job import CollectiveStat, JobState, RankStat, StepStat
from syncline.watch.links import JoinedLinks
from syncline.watch.serve.hub import Hub

DEADLINE_S = 3.0
"""All that one answer may take, from the connection to its last byte."""
SOON_S = 0.1
MAX_ALERTS = 200
MAX_GPUS = 4096
MAX_HOST_GPUS, MOST_USD_PER_GPU_DAY = 72, 24 * 50.0
"""No host has more GPUs (a rack that is one host has 72), and no GPU costs more a day."""


Stat = TypeVar("Stat")


class FrameReader(Protocol):
    """One origin of host frames. It may raise anything: whoever asks it contains that.

    `read` answers at once where something has happened since it was read, else after `wait_s`.
    """

    name: str
    every_s: float
    """How often it is read while nothing happens."""

    async def read(self, wait_s: float = 0.0) -> list[HostFrame]: ...

    async def close(self) -> None: ...


class Fleet:
    """Reads all readers, and shows what answered as one frame: once an interval, and when incidents change."""

    def __init__(
        self,
        readers: Sequence[FrameReader],
        *,
        every_s: float = 1.0,
        history: History | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self.hub = Hub()
        self.history = history
        self.every_s = every_s
        self.deadline_s = deadline_s
        self._readers = list(readers)
        self._presence = Presence([reader.name for reader in self._readers], time.monotonic())
        self._seq = 0
        self._links = JoinedLinks()
        self._log = IncidentLog()
        self._silent: set[str] = set()
        self._has_news = False

    def run(self, stop: threading.Event) -> None:
        """Ask until told to stop."""
        asyncio.run(self._run(stop))

    async def _run(self, stop: threading.Event) -> None:
        asking = [asyncio.create_task(self._follow(reader)) for reader in self._readers]
        try:
            await asyncio.sleep(min(0.2, self.every_s))
            while not stop.is_set():
                self.tell()
                until, self._has_news = time.monotonic() + self.every_s, False
                while not stop.is_set() and (now_s := time.monotonic()) < until and not self._has_news:
                    await asyncio.sleep(min(SOON_S, until - now_s))
                    self._has_news |= self._presence.silent(time.monotonic()).keys() != self._silent
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def _follow(self, reader: FrameReader) -> None:
        try:
            while True:
                begun_s = time.monotonic()
                await self.ask(reader, reader.every_s)
                await asyncio.sleep(max(SOON_S, reader.every_s - (time.monotonic() - begun_s)))
        finally:
            await reader.close()

    async def ask(self, reader: FrameReader, wait_s: float = 0.0) -> None:
        """Ask one reader within its deadline; whatever goes wrong is its problem and nobody else's."""
        try:
            async with asyncio.timeout(self.deadline_s):
                found = await reader.read(wait_s)
        except TimeoutError:
            self._presence.failed(reader.name, f"no whole answer within {self.deadline_s:g} s")
        except Exception as error:  # whatever a stranger can make happen
            self._presence.failed(reader.name, f"{type(error).__name__}: {error}"[:300])
        else:
            self._has_news |= self._presence.answered(reader.name, found, time.monotonic(), time.time())

    def tell(self) -> Frame | None:
        """Put the newest frames of all side by side and publish them; None as long as there is nothing to say."""
        now_s = time.monotonic()
        parts = self._presence.live(now_s)
        if not parts and not self._presence.problems(now_s):
            return None
        frame = self._joined(parts, now_s)
        events = [event.to_json() for event in self._log.update(frame.alerts, frame.wall_s, self._silent)]
        if self.history is not None and parts:
            self.history.add(frame, events)
        self.hub.publish(frame, events)
        return frame

    def _joined(self, parts: list[HostFrame], now_s: float) -> Frame:
        self._seq += 1
        table, load = self._links.join([(part.table, part.load) for part in parts])
        most_usd = most_usd_per_day(parts)
        alerts = [
            _plausible(_at_host(alert, part, name), most_usd)
            for part, name in zip(parts, told_apart(parts), strict=True)
            for alert in part.alerts[:MAX_ALERTS]
        ]
        wall_s, silent, problems = time.time(), self._presence.silent(now_s), self._presence.problems(now_s)
        alerts += silent_alerts(silent, now_s, wall_s)
        self._silent = set(silent)
        gpus = [gpu for part in parts for gpu in part.gpus][:MAX_GPUS]
        num_hosts = sum(part.num_hosts for part in parts)
        health: Health = {
            "host": "", "num_hosts": num_hosts, "num_silent": len(silent), "problems": problems,
        }  # fmt: skip
        if gpus:
            health["gpus"] = gpus
        job = _joined_job([part.job for part in parts])
        rail_of = dict(zip(table.names, table.rail.tolist(), strict=True))
        return Frame(self._seq, wall_s, now_s, self.every_s, table, load, job, hung(alerts, rail_of), health)


def told_apart(parts: Sequence[HostFrame]) -> list[str]:
    """Return what each host is called here: agents that give the same name are told apart by their addresses."""
    names = Counter(part.host for part in parts)
    return [f"{part.host} at {part.agent}" if names[part.host] > 1 and part.agent else part.host for part in parts]


def most_usd_per_day(parts: Sequence[HostFrame]) -> float:
    """Return the most that an incident of these hosts can cost: all of their job, as most agents state its price."""
    stated = [part.usd_per_day for part in parts if part.usd_per_day is not None]
    most_usd = MOST_USD_PER_GPU_DAY * sum(_num_gpus(part) for part in parts)
    return min(most_usd, median_low(stated)) if stated else most_usd


def _num_gpus(part: HostFrame) -> int:
    """Return how many GPUs a host may stand for, whatever its agent says: a host has so many."""
    return min(MAX_HOST_GPUS, max(8, len(part.job.ranks), len(part.gpus))) * max(1, part.num_hosts)


def _plausible(incident: Incident, most_usd_per_day: float) -> Incident:
    """Return an incident without a cost that the hosts of this fleet cannot have; it then ranks by its severity."""
    effects = tuple(_plausible(effect, most_usd_per_day) for effect in incident.effects)
    cost = incident.cost_usd_per_day
    if cost is None or cost <= most_usd_per_day:
        return replace(incident, effects=effects)
    said = f"its agent says that it costs ${cost / 24:.3g} an hour, which these hosts cannot"
    return replace(incident, cost_usd_per_day=None, effects=effects, evidence=(*incident.evidence, said))


def _at_host(incident: Incident, part: HostFrame, name: str) -> Incident:
    """Return an incident under its host's name; hosts that only exporters speak for name themselves."""
    host = incident.host or (name if part.num_hosts <= 1 else "")
    # Ranks, steps and rails are the job's; the host's own incidents carry its name.
    place = f"{host}: {incident.place}" if incident.place == "host" and host else incident.place
    effects = tuple(_at_host(effect, part, name) for effect in incident.effects)
    return replace(incident, host=host, place=place, effects=effects)


def _joined_job(jobs: list[JobState]) -> JobState:
    """Return one job of what the hosts tell, each thing as the middle one of those who tell of it does.

    Ranks wait for each other: hosts differ little in how long a step took, and one that differs much is wrong. A step
    that fewer than half of the hosts know is not the job's yet.
    """
    collectives: dict[str, list[CollectiveStat]] = {}
    steps: dict[int, list[StepStat]] = {}
    ranks: dict[int, list[RankStat]] = {}
    size = max((len(job.pairs_Bps) for job in jobs), default=0)
    pairs = np.zeros((size, size))
    for job in jobs:
        for stat in job.collectives:
            collectives.setdefault(stat.key, []).append(stat)
        for step in job.steps:
            steps.setdefault(step.step, []).append(step)
        for rank in job.ranks:
            ranks.setdefault(rank.rank, []).append(rank)
        pairs[: len(job.pairs_Bps), : len(job.pairs_Bps)] += job.pairs_Bps
    least = sum(bool(job.steps) for job in jobs) / 2
    known = sorted(number for number, stats in steps.items() if len(stats) >= least)[-120:]
    middle = (_middle(stats, lambda c: c.p99_s) for stats in collectives.values())
    return JobState(
        tuple(sorted(middle, key=lambda c: -c.num * c.p50_s)),
        tuple(_middle(steps[k], lambda s: s.step_s) for k in known),
        tuple(_middle(ranks[k], lambda r: r.lateness_s) for k in sorted(ranks)),
        pairs,
        max((job.ranks_per_cell for job in jobs), default=1),
    )


def _middle(stats: list[Stat], by: Callable[[Stat], float]) -> Stat:
    """Return the middle one, the higher of two."""
    return sorted(stats, key=by)[len(stats) // 2]
