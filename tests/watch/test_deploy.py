"""The shipped alert rules and dashboard speak of metrics that the agent really exports."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.watch.scenes import Job, frame, load, table

from syncline.watch import metrics
from syncline.watch.counter import CounterBank
from syncline.watch.hub import Hub
from syncline.watch.metric import METRICS, Key
from syncline.watch.metrics import registry
from syncline.watch.otel import OtelExporter
from syncline.watch.prediction import Prediction

DEPLOY = Path(__file__).parents[2] / "deploy"
LINKS = table(4)
NAME = re.compile(r"\b((?:syncline|node)_[a-z_A-Z]+)\b")


class Exported:
    """Something that has every metric once."""

    def __init__(self, num_devices: int = 1) -> None:
        self.bank, self.hub, self.gauges, self.bursts_total = CounterBank(), Hub(), {}, {LINKS.names[0]: 3}
        reading = {
            Key(m.name, "host" if m.name.startswith("tcp.") and "path" not in m.name else f"d{i}", "1"): 5.0
            for m in METRICS.values() for i in range(num_devices)
        }  # fmt: skip
        self.bank.update(reading, 0.0)
        self.gauges = {key: value for key, value in reading.items() if not METRICS[key.metric].is_counter}
        job = Job(Prediction("p", collectives_s={"all_reduce": 0.1}))
        for k in range(4):
            job.run_step(1000 + k)
        one = frame(9, LINKS, load(LINKS, np.array([0.1, 0.2, np.nan, 0.4])), job.view.state(1003.0))
        alert = {"rule": "link.loss", "severity": "critical", "place": "x"}
        self.hub.publish(type(one)(**{**vars(one), "alerts": (alert,), "health": {"cpu_share": 0.02}}))


def exported(agent: Exported) -> dict[str, int]:
    families = text_string_to_metric_families(generate_latest(registry(agent)).decode())
    return {sample.name: len(family.samples) for family in families for sample in family.samples}


def test_every_metric_is_exported_and_parses() -> None:
    names = exported(Exported())
    for metric in METRICS.values():
        assert (metric.exported + "_total" if metric.is_counter else metric.exported) in names
    assert names["syncline_link_utilisation_ratio"] == 3  # the one that is not known is left out, not zero
    assert names["syncline_collective_seconds"] == 2
    assert names["syncline_alert_active"] == 1


def test_what_is_shipped_asks_only_for_what_is_exported() -> None:
    known = set(exported(Exported()))
    rules = yaml.safe_load((DEPLOY / "prometheus" / "syncline-alerts.yml").read_text())
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    dashboard = json.loads((DEPLOY / "grafana" / "syncline-watch.json").read_text())
    expressions += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(expressions) > 20
    asked = {name for expression in expressions for name in NAME.findall(expression)}
    assert asked - known == set()


def test_the_number_of_series_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(metrics, "MAX_SERIES", 50)
    agent = Exported(num_devices=80)
    names = exported(agent)
    assert max(names.values()) == 50
    text = generate_latest(registry(agent)).decode()
    left_out = int(float(re.search(r"^syncline_watch_series_left_out (\S+)", text, re.MULTILINE)[1]))  # type: ignore[index]
    assert left_out > 30


def test_the_same_numbers_through_opentelemetry() -> None:
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    exporter = OtelExporter(Exported(), "", reader=reader)
    data: Any = reader.get_metrics_data()
    found: dict[str, Any] = {m.name: m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}
    assert "syncline_link_utilisation_ratio" in found
    points = {p.attributes["link"]: p.value for p in found["syncline_link_utilisation_ratio"].data.data_points}
    assert points[LINKS.names[1]] == 0.2
    assert found["node_infiniband_port_data_received_bytes"].data.is_monotonic
    exporter.close()


def test_opentelemetry_gets_what_appears_after_the_start() -> None:
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader, agent = InMemoryMetricReader(), Exported()
    newest, agent.hub._frame = agent.hub._frame, None  # before the first look
    exporter = OtelExporter(agent, "", reader=reader, every_s=0.02)
    agent.hub._frame = newest
    found: set[str] = set()
    until = time.monotonic() + 30
    while "syncline_link_utilisation_ratio" not in found and time.monotonic() < until:
        time.sleep(0.02)
        data: Any = reader.get_metrics_data()
        found = {m.name for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics} if data else set()
    exporter.close()
    assert "syncline_link_utilisation_ratio" in found
