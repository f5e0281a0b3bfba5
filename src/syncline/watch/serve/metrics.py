"""An agent, or a fleet, as Prometheus sees it: official client, base units, every name with a prefix of its own.

A host may run node_exporter too, and a server may ask a fleet's page and its agents: the same name twice, with other
labels, would make sums count everything double.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from syncline.watch.counter import CounterBank
from syncline.watch.frame import Frame
from syncline.watch.incident import Incident
from syncline.watch.metric import METRICS, Key
from syncline.watch.serve.hub import Hub

MAX_SERIES = 20_000
"""Series of one family: a host that grows interfaces without end must not take Prometheus down."""


class MetricsSource(Protocol):
    """What is exported: an agent, or something that answers like one."""

    bank: CounterBank
    bursts_total: dict[str, int]
    hub: Hub

    @property
    def gauges(self) -> dict[Key, float]: ...


def registry(source: MetricsSource | Hub) -> CollectorRegistry:
    """Return a registry that gives the numbers of an agent, or what a fleet's page shows, as they are when asked."""
    made = CollectorRegistry(auto_describe=False)
    made.register(FleetCollector(source) if isinstance(source, Hub) else AgentCollector(source))
    return made


class FrameCollector(Collector):
    """Makes families of samples out of a frame: links, job and alerts, all below one prefix."""

    prefix: str
    alert_labels: tuple[str, ...]

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._num_left_out = 0

    def collect(self) -> Iterable[Metric]:
        """Give every family."""
        self._num_left_out = 0
        yield from self._before()
        frame = self._hub.frame
        if frame is not None:
            yield from self._links(frame)
            yield from self._job(frame)
            yield self._family("alert_active", "An alert that is up: 1.", self.alert_labels, self._alerts(frame))
            yield from self._own(frame)
        text = "Series not exported because their family is full."
        yield self._family("watch_series_left_out", text, (), [((), self._num_left_out)])

    def _before(self) -> Iterator[Metric]:
        """Give what is known without a frame."""
        yield from ()

    @abstractmethod
    def _own(self, frame: Frame) -> Iterator[Metric]:
        """Give what only this collector knows of a frame."""

    def _family(
        self, name: str, text: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], float]],
        make: type[CounterMetricFamily | GaugeMetricFamily] = GaugeMetricFamily,
    ) -> Metric:  # fmt: skip
        family = make(f"{self.prefix}_{name}", text, labels=labels)
        for values, number in rows:
            self._add(family, values, number)
        return family

    def _links(self, frame: Frame) -> Iterator[Metric]:
        table, load = frame.table, frame.load
        columns = {
            "rate_bytes_per_second": ("Mean rate since the last look.", load.rate_Bps),
            "capacity_bytes_per_second": ("Rate the link should reach.", table.capacity_Bps),
            "utilisation_ratio": ("Mean rate over capacity.", load.rate_Bps / table.capacity_Bps),
            "peak_ratio": ("Highest short-window rate over capacity.", load.peak_Bps / table.capacity_Bps),
            "saturated_ratio": ("Share of time above 95 % of capacity.", load.saturated),
            "drops_per_second": ("Packets dropped.", load.drops_per_s),
            "up": ("Whether the link can carry traffic.", load.up),
            "rail": ("The rail of the link.", np.where(table.rail >= 0, table.rail, np.nan)),
        }
        for name, (text, column) in columns.items():
            known = np.flatnonzero(~np.isnan(column)).tolist()
            rows = (((table.names[i],), float(column[i])) for i in known)
            yield self._family(f"link_{name}", text, ("link",), rows)

    def _job(self, frame: Frame) -> Iterator[Metric]:
        kinds = frame.job.collectives
        took = [((c.key, percentile), value) for c in kinds for percentile, value in (("50", c.p50_s), ("99", c.p99_s))]
        text = "Time of a collective over the last ten seconds."
        yield self._family("collective_seconds", text, ("collective", "percentile"), took)
        planned = [((c.key,), c.predicted_s) for c in kinds if c.predicted_s is not None]
        yield self._family("collective_expected_seconds", "Predicted time.", ("collective",), planned)
        for step in frame.job.steps[-1:]:
            parts = [((part,), getattr(step, f"{part}_s")) for part in ("step", "compute", "exposed", "late", "other")]
            yield self._family("step_seconds", "The last step, by part.", ("part",), parts)

    def _alerts(self, frame: Frame) -> Iterable[tuple[tuple[str, ...], float]]:
        return ((row, 1.0) for row in {tuple(_label(a, label) for label in self.alert_labels) for a in frame.alerts})

    def _add(self, family: CounterMetricFamily | GaugeMetricFamily, labels: tuple[str, ...], value: float) -> None:
        if len(family.samples) >= MAX_SERIES:
            self._num_left_out += 1
            return
        family.add_metric(labels, value)


def _label(alert: Incident, label: str) -> str:
    return alert.severity.label if label == "severity" else str(getattr(alert, label))


class AgentCollector(FrameCollector):
    """An agent: its raw counters and gauges, and its newest frame."""

    prefix = "syncline"
    alert_labels = ("rule", "severity", "place")

    def __init__(self, agent: MetricsSource) -> None:
        super().__init__(agent.hub)
        self._agent = agent

    def _before(self) -> Iterator[Metric]:
        yield from self._raw(dict(self._agent.bank.totals()), CounterMetricFamily)
        yield from self._raw(dict(self._agent.gauges), GaugeMetricFamily)

    def _raw(
        self, values: dict[Key, int] | dict[Key, float], make: type[CounterMetricFamily | GaugeMetricFamily]
    ) -> Iterator[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for key, value in values.items():
            metric = METRICS[key.metric]
            if metric.is_counter != (make is CounterMetricFamily):
                continue
            labels = () if key.device == "host" else metric.labels
            family = families.get(metric.name)
            if family is None:
                family = families[metric.name] = make(metric.exported, metric.help, labels=labels)
            self._add(family, (key.device, key.part)[: len(labels)], float(value))
        yield from families.values()

    def _own(self, frame: Frame) -> Iterator[Metric]:
        bursts = [((link,), float(count)) for link, count in list(self._agent.bursts_total.items())]
        text = "Bursts above 95 % of capacity."
        yield self._family("link_microbursts", text, ("link",), bursts, CounterMetricFamily)
        cpu = float(frame.health.get("cpu_share", 0.0))
        yield self._family("watch_cpu_ratio", "Share of a core the agent used since the last look.", (), [((), cpu)])
        looks = [((), frame.seq)]
        yield self._family("watch_frames", "Looks taken since the agent started.", (), looks, CounterMetricFamily)


class FleetCollector(FrameCollector):
    """A fleet: the joined frame of its agents, and how many of them are there."""

    prefix = "syncline_fleet"
    alert_labels = ("rule", "severity", "place", "host")

    def _own(self, frame: Frame) -> Iterator[Metric]:
        live, silent = frame.health.get("num_hosts", 0), frame.health.get("num_silent", 0)
        hosts = [(("live",), float(live)), (("silent",), float(silent))]
        yield self._family("hosts", "Hosts of the fleet, by whether they speak.", ("state",), hosts)
        text = "Frames joined since the fleet's page started."
        yield self._family("watch_frames", text, (), [((), frame.seq)], CounterMetricFamily)
