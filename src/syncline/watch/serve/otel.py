"""The same numbers to an OpenTelemetry collector: OTLP over HTTP, read from the Prometheus families on every export."""

from __future__ import annotations

import threading
import urllib.parse
from collections.abc import Iterable
from typing import Any

from syncline.errors import WatchError
from syncline.version import __version__
from syncline.watch.serve.metrics import AgentCollector, MetricsSource

EVERY_S = 10.0
_UNITS = {
    "_bytes_per_second": "By/s",
    "_per_second": "1/s",
    "_bytes": "By",
    "_seconds": "s",
    "_watts": "W",
    "_packets": "{packet}",
    "_segments": "{segment}",
    "_errors": "{error}",
    "_errs": "{error}",
    "_drops": "{packet}",
    "_drop": "{packet}",
    "_frames": "{frame}",
}


def unit_of(name: str) -> str:
    """Return the unit of a metric as UCUM writes it, by the end of its name; "1" for ratios, states and counts."""
    return next((unit for ending, unit in _UNITS.items() if name.removesuffix("_total").endswith(ending)), "1")


class OtelExporter:
    """Sends every family of `AgentCollector` as observable instruments until closed."""

    def __init__(
        self, agent: MetricsSource, endpoint: str, *, every_s: float = EVERY_S, reader: Any | None = None
    ) -> None:
        if reader is None and urllib.parse.urlsplit(endpoint).scheme not in ("http", "https"):
            raise WatchError(f'--otel "{endpoint}" is not an address.', hint="Write http://collector:4318.")
        try:
            from opentelemetry.metrics import Observation
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
            from opentelemetry.sdk.resources import Resource
        except ImportError:
            hint = "pip install 'syncline[otel]'"
            raise WatchError("OpenTelemetry is not installed here.", hint=hint) from None
        self._collector = AgentCollector(agent)
        self._observation = Observation
        if reader is None:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

            exporter = OTLPMetricExporter(endpoint=endpoint.rstrip("/") + "/v1/metrics", timeout=5)
            reader = PeriodicExportingMetricReader(exporter, export_interval_millis=every_s * 1e3)
        host = getattr(getattr(agent, "options", None), "host", "")
        resource = Resource.create(
            {"service.name": "syncline-watch", "service.version": __version__, "host.name": host}
        )
        self._provider = MeterProvider(metric_readers=[reader], resource=resource)
        self._meter = self._provider.get_meter("syncline.watch", __version__)
        self._made: set[str] = set()
        self._every_s = every_s
        self._add_instruments()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="syncline-otel", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        """Make instruments as their families appear; most do so with the first look, some with the first span."""
        while not self._closing.wait(self._every_s / 2):
            self._add_instruments()

    def _add_instruments(self) -> None:
        for family in self._collector.collect():
            if family.name in self._made:
                continue
            self._made.add(family.name)
            make = (
                self._meter.create_observable_counter
                if family.type == "counter"
                else self._meter.create_observable_gauge
            )
            make(
                family.name,
                callbacks=[self._callback(family.name)],
                unit=unit_of(family.name),
                description=family.documentation,
            )

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self._add_instruments()  # so that a short watch tells all it saw
        self._provider.shutdown()

    def _callback(self, name: str) -> Any:
        def observe(_: object) -> Iterable[Any]:
            for family in self._collector.collect():
                if family.name == name:
                    for sample in family.samples:
                        yield self._observation(sample.value, dict(sample.labels))

        return observe
