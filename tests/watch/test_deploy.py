"""The shipped alert rules and dashboard speak of metrics that the agent really exports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from fastapi.testclient import TestClient
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.watch.scenes import Job, frame, load, table

from syncline.finding import Severity
from syncline.watch.counter import CounterBank
from syncline.watch.feed import fleet_feed
from syncline.watch.fleet.exporters import EXPORTER_SERIES
from syncline.watch.incident import Incident
from syncline.watch.metric import METRICS, Key
from syncline.watch.prediction import Prediction
from syncline.watch.serve import metrics
from syncline.watch.serve.access import Access
from syncline.watch.serve.hub import Hub
from syncline.watch.serve.metrics import registry
from syncline.watch.serve.otel import OtelExporter, unit_of
from syncline.watch.serve.server import make_app

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
        alert = Incident("link.loss", Severity.CRITICAL, "x", "")
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


def test_nothing_exported_is_called_as_node_exporter_calls_it() -> None:
    assert [name for name in exported(Exported()) if not name.startswith("syncline_")] == []


def test_an_alert_says_rule_severity_and_place() -> None:
    text = generate_latest(registry(Exported())).decode()
    assert 'syncline_alert_active{place="x",rule="link.loss",severity="critical"} 1.0' in text


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here; on Debian: apt install prometheus")
def test_promtool_finds_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=generate_latest(registry(Exported())), capture_output=True, timeout=120
    )
    assert (done.returncode, done.stdout.decode() + done.stderr.decode()) == (0, "")
    joined = subprocess.run(["promtool", "check", "metrics"], input=fleet_text(), capture_output=True, timeout=120)
    assert (joined.returncode, joined.stdout.decode() + joined.stderr.decode()) == (0, "")
    rules = subprocess.run(
        ["promtool", "check", "rules", str(DEPLOY / "prometheus" / "syncline-alerts.yml")],
        capture_output=True,
        timeout=120,
    )
    assert rules.returncode == 0, rules.stdout


def fleet_text() -> bytes:
    agent, hub = Exported(), Hub()
    one = agent.hub.frame
    assert one is not None
    alerts = tuple(replace(one.alerts[0], host=host) for host in ("gpu-07", 'b"\\\n'))
    health = {"num_hosts": 3, "num_silent": 1, "problems": {}}
    hub.publish(type(one)(**{**vars(one), "alerts": alerts, "health": health}))
    return generate_latest(registry(hub))


def test_a_fleet_has_metrics_of_its_own_that_no_agent_has() -> None:
    text = fleet_text().decode()
    families = list(text_string_to_metric_families(text))
    found = {sample.name: sample.value for family in families for sample in family.samples}
    assert found.keys().isdisjoint(exported(Exported()))
    assert all(name.startswith("syncline_fleet_") for name in found)
    assert 'syncline_fleet_hosts{state="live"} 3.0' in text
    assert 'syncline_fleet_hosts{state="silent"} 1.0' in text
    up = next(family for family in families if family.name == "syncline_fleet_alert_active")
    assert {sample.labels["host"] for sample in up.samples} == {"gpu-07", 'b"\\\n'}
    assert len(next(f for f in families if f.name == "syncline_fleet_link_utilisation_ratio").samples) == 3


def test_the_page_of_a_fleet_answers_for_its_metrics() -> None:
    with fleet_feed(["http://127.0.0.1:9"]) as feed:
        with TestClient(make_app(feed, Access()), base_url="http://127.0.0.1:9750") as client:
            before = client.get("/metrics")
            feed.hub.publish(frame(1, LINKS, load(LINKS, 0.5)))
            after = client.get("/metrics")
        assert (before.status_code, after.status_code) == (200, 200)
        assert "syncline_fleet_watch_series_left_out 0.0" in before.text
        assert "syncline_fleet_link_up" in after.text


def test_the_dashboard_of_exporters_asks_only_them() -> None:
    board = json.loads((DEPLOY / "grafana" / "training-exporters.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    names = {name for text in expressions for name in re.findall(r"\b((?:node|DCGM|syncline)_[A-Za-z_]+)\b", text)}
    ours = {name for text in EXPORTER_SERIES.values() for name in re.findall(r"\b((?:node|DCGM)_[A-Za-z_]+)\b", text)}
    assert len(names) > 12
    assert not [name for name in names if name.startswith("syncline")]
    assert {"node_network_speed_bytes", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_XID_ERRORS"} <= names & ours


def test_otlp_has_units() -> None:
    assert unit_of("syncline_link_rate_bytes_per_second") == "By/s"
    assert unit_of("syncline_network_receive_bytes_total") == "By"
    assert unit_of("syncline_collective_seconds") == "s"
    assert unit_of("syncline_link_utilisation_ratio") == "1"


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
    assert found["syncline_infiniband_port_data_received_bytes"].data.is_monotonic
    exporter.close()


def test_opentelemetry_gets_what_appears_after_the_start() -> None:
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader, agent = InMemoryMetricReader(), Exported()
    newest, agent.hub._frame = agent.hub._frame, None  # before the first look
    exporter = OtelExporter(agent, "", reader=reader, every_s=0.02)
    agent.hub._frame = newest
    found: set[str] = set()
    until = time.monotonic() + 120
    while "syncline_link_utilisation_ratio" not in found and time.monotonic() < until:
        time.sleep(0.02)
        data: Any = reader.get_metrics_data()
        found = {m.name for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics} if data else set()
    exporter.close()
    assert "syncline_link_utilisation_ratio" in found
