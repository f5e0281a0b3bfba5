"""The door for frames of others: what another agent says is read with bounds, and becomes this program's own types.

A field that this version does not know is left out (a newer agent may send it); a field that is missing, too large or
of the wrong kind makes the frame one that is refused, with a sentence that says what was wrong with it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

import numpy as np
from pydantic import BeforeValidator, Field

from syncline.finding import Severity
from syncline.watch.fleet.presence import HostFrame
from syncline.watch.fleet.web import Web
from syncline.watch.foreign import MAX_RANK, Count, Foreign, MAX_RATE_Bps, Moment, Rate, Text, admit, severity_of
from syncline.watch.incident import Incident
from syncline.watch.job import CollectiveStat, JobState, RankStat, StepStat
from syncline.watch.links import LOAD_COLUMNS, Floats, KnownLink, LinkLoad, LinkTable
from syncline.watch.serve.access import read_token

MAX_LINKS = 200_000
MAX_ALERTS = 200

Sparse = Annotated[tuple[tuple[Annotated[int, Field(ge=0, lt=MAX_LINKS)], Moment], ...], Field(max_length=MAX_LINKS)]


class ForeignAlert(Foreign):
    """An alert of another agent; a severity that this version does not know is `unknown`, never shown as sent."""

    rule: Text
    place: Text
    severity: Annotated[Severity, BeforeValidator(severity_of)] = Severity.UNKNOWN
    observed: Text = ""
    expected: Text = ""
    evidence: Annotated[tuple[Text, ...], Field(max_length=50)] = ()
    meaning: Annotated[str, Field(max_length=2000)] = ""
    fix: Annotated[str, Field(max_length=2000)] = ""
    reference: Text = ""
    confidence: Annotated[float, Field(ge=0, le=1)] = 1.0
    cost_usd_per_day: Annotated[float, Field(ge=0)] | None = None
    since_s: Moment | None = None
    last_s: Moment | None = None
    times: Annotated[int, Field(ge=1, le=1 << 20)] = 1

    def incident(self) -> Incident:
        """Return the alert as an incident of our own."""
        return Incident(**{**dict(self), "effects": tuple(each.incident() for each in getattr(self, "effects", ()))})


class ForeignIncident(ForeignAlert):
    """An alert with its effects, which have none of their own."""

    effects: Annotated[tuple[ForeignAlert, ...], Field(max_length=200)] = ()


class ForeignHealth(Foreign):
    """Of an agent's own state only its host's name is used, when it began, and what its job costs."""

    host: Text = ""
    began_s: Moment | None = None
    usd_per_day: Annotated[float, Field(ge=0)] | None = None


class ForeignJob(Foreign):
    """The job as one agent sees it."""

    collectives: Annotated[tuple[CollectiveStat, ...], Field(max_length=512)] = ()
    steps: Annotated[tuple[StepStat, ...], Field(max_length=1000)] = ()
    ranks: Annotated[tuple[RankStat, ...], Field(max_length=8192)] = ()
    pairs_Bps: Annotated[tuple[Annotated[tuple[Rate, ...], Field(max_length=256)], ...], Field(max_length=256)] = ()
    ranks_per_cell: Annotated[int, Field(ge=1, le=MAX_RANK)] = 1

    def state(self) -> JobState:
        """Return it as a state of our own; a matrix that is not square is no matrix."""
        size = len(self.pairs_Bps)
        square = all(len(row) == size for row in self.pairs_Bps)
        return JobState(
            self.collectives,
            self.steps,
            self.ranks,
            np.array(self.pairs_Bps if square else (), np.float64).reshape((size, size) if square else (0, 0)),
            self.ranks_per_cell,
        )


class ForeignFrame(Foreign):
    """The newest frame of another agent, as `/api/frame` gives it."""

    wall_s: Moment
    seq: Count = 0
    num_links: Annotated[int, Field(ge=0, le=MAX_LINKS)]
    layout: int
    rate_Bps: Annotated[str, Field(max_length=8 * MAX_LINKS)]
    peak_Bps: Annotated[str, Field(max_length=8 * MAX_LINKS)]
    saturated: Sparse = ()
    bursts: Sparse = ()
    drops_per_s: Sparse = ()
    errors_per_s: Sparse = ()
    pauses_per_s: Sparse = ()
    backlog_bytes: Sparse = ()
    up: Sparse = ()
    health: ForeignHealth = ForeignHealth()
    job: ForeignJob = ForeignJob()
    alerts: Annotated[tuple[ForeignIncident, ...], Field(max_length=1000)] = ()

    def load(self) -> LinkLoad:
        """Return its columns; a ValueError names the one that does not fit the number of links."""
        return LinkLoad(**{name: self._column(name) for name in LOAD_COLUMNS})

    def _column(self, name: str) -> Floats:
        value = getattr(self, name)
        if isinstance(value, str):
            return _dense(name, value, self.num_links)
        full = np.full(self.num_links, 1.0 if name == "up" else 0.0)
        for index, number in value:
            if index >= self.num_links:
                raise ValueError(f"{name} speaks of link {index} of {self.num_links}")
            full[index] = number
        return full


class ForeignLayout(Foreign):
    """The links of another agent, as `/api/layout` gives them."""

    version: int
    names: Annotated[list[Text], Field(max_length=MAX_LINKS)]
    devices: Annotated[list[Text], Field(max_length=MAX_LINKS)]
    capacity_Bps: Annotated[list[Rate | None], Field(max_length=MAX_LINKS)]
    rail: Annotated[list[Annotated[int, Field(ge=-1, lt=1 << 20)]], Field(max_length=MAX_LINKS)]
    src: Annotated[list[Text], Field(max_length=MAX_LINKS)]
    dst: Annotated[list[Text], Field(max_length=MAX_LINKS)]

    def table(self) -> LinkTable:
        """Return it as a table of our own; a ValueError where its columns differ in length."""
        columns = (self.names, self.devices, self.capacity_Bps, self.rail, self.src, self.dst)
        if len({len(column) for column in columns}) > 1:
            raise ValueError(f"columns of the layout have {sorted({len(c) for c in columns})} rows")
        capacity = [np.nan if rate is None else rate for rate in self.capacity_Bps]
        links = [KnownLink(*row) for row in zip(self.names, capacity, self.rail, self.src, self.dst, strict=True)]
        return LinkTable.of(links, self.devices, ("tx",) * len(links), self.version)


def _dense(name: str, text: str, num_links: int) -> Floats:
    try:
        values = np.frombuffer(base64.b64decode(text, validate=True), "<f4").astype(np.float64)
    except (binascii.Error, ValueError):
        raise ValueError(f"{name} is not a column of numbers") from None
    if len(values) != num_links:
        raise ValueError(f"{name} has {len(values)} numbers for {num_links} links")
    return np.where((values >= 0) & (values <= MAX_RATE_Bps), values, np.nan)


class AgentReader:
    """Reads the newest frame of one agent; its layout only when that changed."""

    every_s = 0.4

    def __init__(self, url: str, token: str = "") -> None:
        self.name = url
        self._web = Web(url, token)
        self._table: LinkTable | None = None
        self._last: HostFrame | None = None

    @classmethod
    def of(cls, text: str) -> AgentReader:
        """Return the reader of `URL` or `URL#TOKENFILE`."""
        url, _, token_file = text.partition("#")
        return cls(url, read_token(token_file) if token_file else "")

    async def read(self, wait_s: float = 0.0) -> list[HostFrame]:
        """Return the agent's frame with its links; nothing while it has none, or while they change.

        The agent answers at once where its incidents are others than in the frame before, else after `wait_s`.
        """
        asked = {"since": str(self._last.seq), "wait_s": f"{wait_s:g}"} if self._last is not None else None
        data = await self._web.get("/api/frame", asked)
        if data.strip() == b"null":
            return []
        frame = admit(ForeignFrame, data)
        began_s, before = frame.health.began_s, self._last
        is_new = before is not None and (before.began_s != began_s or frame.seq < before.seq)
        # An agent that began anew counts its layouts from one again: the same number may mean other links.
        if self._table is None or is_new or self._table.version != frame.layout:
            self._table = admit(ForeignLayout, await self._web.get("/api/layout")).table()
        if self._table.version != frame.layout or len(self._table) != frame.num_links:
            self._table = None
            return []
        alerts = tuple(alert.incident() for alert in frame.alerts)
        self._last = HostFrame(
            frame.health.host, frame.wall_s, self._table, frame.load(), frame.job.state(), alerts,
            seq=frame.seq, began_s=began_s, agent=self.name, usd_per_day=frame.health.usd_per_day,
        )  # fmt: skip
        return [self._last]

    async def close(self) -> None:
        """Let go of the connection."""
        await self._web.close()
