"""What a Prometheus server has collected, as host frames: from agents of ours, or from node_exporter and DCGM alone."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from syncline.fabric import Fabric
from syncline.watch.fleet.exporters import EXPORTER_SERIES, NOT_A_NIC, ExporterTable, Sample
from syncline.watch.fleet.presence import HostFrame
from syncline.watch.fleet.web import Web
from syncline.watch.foreign import Foreign, MAX_RATE_Bps, admit, severity_of
from syncline.watch.incident import Incident
from syncline.watch.links import LinkLoad, LinkTable

MAX_SAMPLES = 400_000


class _Data(Foreign):
    result: Annotated[list[Sample], Field(max_length=MAX_SAMPLES)]


class QueryReply(Foreign):
    """What `/api/v1/query` answers."""

    status: Literal["success"]
    data: _Data


AGENT_SERIES = {
    "rate_Bps": "syncline_link_rate_bytes_per_second",
    "capacity_Bps": "syncline_link_capacity_bytes_per_second",
    "peak": "syncline_link_peak_ratio",
    "up": "syncline_link_up",
    "rail": "syncline_link_rail",
    "drops": "syncline_link_drops_per_second",
    "alerts": "syncline_alert_active",
    "firing": "ALERTS",
}
_KEYS = {name: key for key, name in (*AGENT_SERIES.items(), *EXPORTER_SERIES.items())}
_NAMES = "|".join(sorted(_KEYS.keys() - {AGENT_SERIES["firing"]}))
SERIES = f'{{__name__=~"{_NAMES}", device!~"{NOT_A_NIC}"}} or ALERTS{{alertstate="firing"}}'
"""All that is read, in one question: the server answers it as fast as one of them."""
SCRAPED = "timestamp(up)"
NEWEST = f"max({SCRAPED})"
POLL_S = 0.15


class PrometheusReader:
    """Reads links and alerts of every host that a Prometheus server scrapes; collectives and ranks are not in it.

    Hosts with an agent of ours are shown as it sees them. All others are read from node_exporter and the DCGM exporter,
    under the same rules. Alerts that Prometheus itself holds as firing are shown beside.
    """

    every_s = 1.0

    def __init__(self, url: str, fabric: Fabric | None = None) -> None:
        self.name = url
        self._web = Web(url)
        self._tables: dict[str, LinkTable] = {}
        self._exporters = ExporterTable(fabric)
        self._newest_s: float | None = None

    async def read(self, wait_s: float = 0.0) -> list[HostFrame]:
        """Return a frame for each host that Prometheus knows, when it has scraped again or after `wait_s`."""
        at_s = await self._scraped(wait_s)
        found: dict[str, list[Sample]] = {key: [] for key in _KEYS.values()}
        for sample in await self._query(SERIES, at_s):
            found[_KEYS[sample.label("__name__")]].append(sample)
        frames = self._of_agents(found)
        known = {frame.host for frame in frames}
        others = {key: [s for s in found[key] if s.host not in known] for key in EXPORTER_SERIES}
        scraped_s = {s.host: s.value[1] for s in await self._query(SCRAPED, at_s) if s.value[1] is not None}
        frames += self._exporters.frames(others, time.time(), time.monotonic(), scraped_s)
        return frames + _of_prometheus(found["firing"])

    async def close(self) -> None:
        """Let go of the connection."""
        await self._web.close()

    async def _scraped(self, wait_s: float) -> float | None:
        """Wait for a scrape; return the moment of the newest, for which all questions are asked."""
        until_s = time.monotonic() + wait_s
        while True:
            newest = next((sample.value[1] for sample in await self._query(NEWEST)), None)
            if newest != self._newest_s or time.monotonic() + POLL_S > until_s:
                self._newest_s = newest
                return newest
            await asyncio.sleep(POLL_S)

    async def _query(self, query: str, at_s: float | None = None) -> list[Sample]:
        asked = {"query": query} if at_s is None else {"query": query, "time": f"{at_s:.3f}"}
        return admit(QueryReply, await self._web.get("/api/v1/query", asked)).data.result

    def _of_agents(self, found: Mapping[str, list[Sample]]) -> list[HostFrame]:
        links: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
        for column in ("rate_Bps", "capacity_Bps", "peak", "up", "rail", "drops"):
            for sample in found[column]:
                value = sample.value[1]
                if sample.label("link") and value is not None and abs(value) <= MAX_RATE_Bps:
                    links[sample.host][sample.label("link")][column] = value
        alerts: dict[str, list[Incident]] = defaultdict(list)
        for sample in (sample for sample in found["alerts"] if sample.value[1]):
            alerts[sample.host].append(_alert(sample))
            _ = links[sample.host]
        return [self._frame(host, rows, tuple(alerts[host])) for host, rows in sorted(links.items())]

    def _frame(self, host: str, links: dict[str, dict[str, float]], alerts: tuple[Incident, ...]) -> HostFrame:
        names = tuple(sorted(links))
        capacity = _column(links, names, "capacity_Bps", np.nan)
        table = self._tables.get(host)
        if table is None or table.names != names or not np.array_equal(table.capacity_Bps, capacity, equal_nan=True):
            rail = _column(links, names, "rail", -1.0).astype(np.int64).tolist()
            table = LinkTable.named(names, capacity, time.monotonic_ns(), rail)
            self._tables[host] = table
        columns = vars(LinkLoad.empty(len(names))) | {
            "rate_Bps": _column(links, names, "rate_Bps", np.nan),
            "peak_Bps": _column(links, names, "peak", np.nan) * capacity,
            "up": _column(links, names, "up", 1.0),
            "drops_per_s": _column(links, names, "drops", 0.0),
        }
        return HostFrame(host, time.time(), table, LinkLoad(**columns), alerts=alerts)


def _column(links: Mapping[str, Mapping[str, float]], names: tuple[str, ...], column: str, missing: float) -> Any:
    return np.array([links[name].get(column, missing) for name in names], np.float64)


def _alert(sample: Sample) -> Incident:
    return Incident(
        sample.label("rule") or "unknown", severity_of(sample.label("severity")), sample.label("place") or sample.host,
        "raised by the agent of this host", "", ("syncline_alert_active in Prometheus",),
        "Prometheus keeps that an alert is up, not what it found.",
        f"Open the page of {sample.host} for evidence and fix, or show the agent itself with --agent.",
    )  # fmt: skip


def _of_prometheus(firing: list[Sample]) -> list[HostFrame]:
    """Return the alerts that Prometheus holds as firing, without those that only repeat ours."""
    alerts: dict[str, list[Incident]] = defaultdict(list)
    for sample in firing:
        if sample.label("alertname").startswith("Syncline"):
            continue
        place = sample.label("device") or sample.label("gpu") or sample.label("link")
        labels = tuple(f"{k}={v}" for k, v in sorted(sample.metric.items()) if not k.startswith("__"))
        alerts[sample.host].append(Incident(
            f"prometheus.{sample.label('alertname')}", severity_of(sample.label("severity")),
            f"{sample.host}/{place}" if place else sample.host or "Prometheus", "firing in Prometheus", "not firing",
            labels[:8], "A rule of this site's Prometheus says so.",
            "Its annotations in Prometheus or Alertmanager say what to do.",
        ))  # fmt: skip
    empty = LinkTable.of((), (), (), 0)
    return [
        HostFrame(host, time.time(), empty, LinkLoad.empty(0), alerts=tuple(rows), num_hosts=0)  # its links are known
        for host, rows in sorted(alerts.items())
    ]
