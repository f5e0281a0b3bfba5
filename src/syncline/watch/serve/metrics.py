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
    gauges: dict[Key, float]
    bursts_total: dict[str, int]
    hub: Hub


def registry(agent: MetricsSource) -> CollectorRegistry:
    """Return a registry that gives the agent's numbers as they are when asked."""
    made = CollectorRegistry(auto_describe=False)
    made.register(AgentCollector(agent))
    return made


def fleet_registry(hub: Hub) -> CollectorRegistry:
    """Return a registry that gives what a fleet's page shows, as it is when asked."""
    made = CollectorRegistry(auto_describe=False)
    made.register(FleetCollector(hub))
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
            yield from self._alerts(frame)
            yield from self._own(frame)
        left = GaugeMetricFamily(
            f"{self.prefix}_watch_series_left_out", "Series not exported because their family is full."
        )
        left.add_metric([], self._num_left_out)
        yield left

    def _before(self) -> Iterator[Metric]:
        """Give what is known without a frame."""
        yield from ()

    @abstractmethod
    def _own(self, frame: Frame) -> Iterator[Metric]:
        """Give what only this collector knows of a frame."""

    def _links(self, frame: Frame) -> Iterator[Metric]:
        table, load = frame.table, frame.load
        use = load.rate_Bps / table.capacity_Bps
        columns = {
            f"{self.prefix}_link_rate_bytes_per_second": ("Mean rate since the last look.", load.rate_Bps),
            f"{self.prefix}_link_capacity_bytes_per_second": ("Rate the link should reach.", table.capacity_Bps),
            f"{self.prefix}_link_utilisation_ratio": ("Mean rate over capacity.", use),
            f"{self.prefix}_link_peak_ratio": (
                "Highest short-window rate over capacity.",
                load.peak_Bps / table.capacity_Bps,
            ),
            f"{self.prefix}_link_saturated_ratio": ("Share of time above 95 % of capacity.", load.saturated),
            f"{self.prefix}_link_drops_per_second": ("Packets dropped.", load.drops_per_s),
            f"{self.prefix}_link_up": ("Whether the link can carry traffic.", load.up),
            f"{self.prefix}_link_rail": ("The rail of the link.", np.where(table.rail >= 0, table.rail, np.nan)),
        }
        for name, (text, column) in columns.items():
            family = GaugeMetricFamily(name, text, labels=("link",))
            for link, value in zip(table.names, column.tolist(), strict=True):
                if not np.isnan(value):
                    self._add(family, (link,), value)
            yield family

    def _job(self, frame: Frame) -> Iterator[Metric]:
        took = GaugeMetricFamily(
            f"{self.prefix}_collective_seconds",
            "Time of a collective over the last ten seconds.",
            labels=("collective", "percentile"),
        )
        planned = GaugeMetricFamily(
            f"{self.prefix}_collective_expected_seconds", "Predicted time.", labels=("collective",)
        )
        for c in frame.job.collectives:
            for percentile, value in (("50", c.p50_s), ("99", c.p99_s)):
                self._add(took, (c.key, percentile), value)
            if c.predicted_s is not None:
                self._add(planned, (c.key,), c.predicted_s)
        yield took
        yield planned
        for step in frame.job.steps[-1:]:
            parts = GaugeMetricFamily(f"{self.prefix}_step_seconds", "The last step, by part.", labels=("part",))
            for part in ("step", "compute", "exposed", "other"):
                self._add(parts, (part,), getattr(step, f"{part}_s"))
            yield parts

    def _alerts(self, frame: Frame) -> Iterator[Metric]:
        labels = self.alert_labels
        active = GaugeMetricFamily(f"{self.prefix}_alert_active", "An alert that is up: 1.", labels=labels)
        for place in {tuple(_label(alert, label) for label in labels) for alert in frame.alerts}:
            self._add(active, place, 1.0)
        yield active

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
        bursts = CounterMetricFamily("syncline_link_microbursts", "Bursts above 95 % of capacity.", labels=("link",))
        for link, count in list(self._agent.bursts_total.items()):
            self._add(bursts, (link,), count)
        yield bursts
        cpu = GaugeMetricFamily("syncline_watch_cpu_ratio", "Share of a core the agent used since the last look.")
        cpu.add_metric([], float(frame.health.get("cpu_share", 0.0)))
        yield cpu
        seen = CounterMetricFamily("syncline_watch_frames", "Looks taken since the agent started.")
        seen.add_metric([], frame.seq)
        yield seen


class FleetCollector(FrameCollector):
    """A fleet: the joined frame of its agents, and how many of them are there."""

    prefix = "syncline_fleet"
    alert_labels = ("rule", "severity", "place", "host")

    def _own(self, frame: Frame) -> Iterator[Metric]:
        hosts = GaugeMetricFamily(
            "syncline_fleet_hosts", "Hosts of the fleet, by whether they speak.", labels=("state",)
        )
        for state, key in (("live", "num_hosts"), ("silent", "num_silent")):
            hosts.add_metric((state,), float(frame.health.get(key, 0)))
        yield hosts
        seen = CounterMetricFamily("syncline_fleet_watch_frames", "Frames joined since the fleet's page started.")
        seen.add_metric([], frame.seq)
        yield seen
