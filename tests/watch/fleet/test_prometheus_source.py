"""A fleet out of Prometheus: agents of ours with their alerts, and hosts that have only node_exporter and DCGM."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from syncline.fabric import load
from syncline.watch.fleet import prometheus_source
from syncline.watch.fleet.exporters import EXPORTER_SERIES, ExporterTable, Sample
from syncline.watch.fleet.fleet import Fleet
from syncline.watch.fleet.presence import HostFrame
from syncline.watch.fleet.prometheus_source import AGENT_SERIES, NEWEST, SCRAPED, SERIES, PrometheusReader
from syncline.watch.frame import Frame

Row = tuple[dict[str, str], str]
COUNTERS = {query for query in EXPORTER_SERIES.values() if "_total" in query}
NDR_Bps = 50e9


class Site:
    """A Prometheus server that knows what it is told."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {}
        self.scrapes = 0
        site = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)["query"][0]
                rows = [{"metric": labels, "value": [0, value]} for labels, value in site.told(query)]
                body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        class Server(ThreadingHTTPServer):
            request_queue_size = 128

        self.server = Server(("127.0.0.1", 0), Answer)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        self.reader = PrometheusReader(f"http://127.0.0.1:{self.server.server_port}")
        self.fleet = Fleet([self.reader], deadline_s=30.0)

    def told(self, query: str) -> list[Row]:
        """Return the rows of a query; counters have grown by as much in every second of which there was a scrape."""
        at = str(self.scrapes)
        if query in (NEWEST, SCRAPED):
            hosts = {labels["instance"] for rows in self.rows.values() for labels, _ in rows if "instance" in labels}
            return [({"instance": host}, at) for host in sorted(hosts)] if query == SCRAPED else [({}, at)]
        assert query == SERIES
        return [
            ({**labels, "__name__": name}, str(float(value) * self.scrapes) if name in COUNTERS else value)
            for name, rows in self.rows.items() for labels, value in rows
        ]  # fmt: skip

    def frame(self, times: int = 1) -> Frame:
        async def look() -> None:
            for _ in range(times):
                self.scrapes += 1
                await self.fleet.ask(self.reader)
            await self.reader.close()

        asyncio.run(look())
        made = self.fleet.tell()
        assert made is not None
        assert made.health["problems"] == {}
        return made

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


def test_agents_are_shown_with_their_alerts(site: Site) -> None:
    for column, value in {"rate_Bps": "25", "capacity_Bps": "100", "peak": "0.5", "up": "1", "drops": "3"}.items():
        site.rows[AGENT_SERIES[column]] = [
            ({"instance": f"h{k}:9750", "link": f"h{k} -> leaf"}, value) for k in range(3)
        ]
    labels = {"instance": "h1:9750", "rule": "link.loss", "severity": "critical", "place": "h1 -> leaf"}
    site.rows[AGENT_SERIES["alerts"]] = [(labels, "1")]
    joined = site.frame()
    assert joined.table.names == ("h0 -> leaf", "h1 -> leaf", "h2 -> leaf")
    assert joined.load.rate_Bps.tolist() == [25.0] * 3
    assert joined.load.peak_Bps.tolist() == [50.0] * 3
    assert joined.load.drops_per_s.tolist() == [3.0] * 3
    assert [(a.rule, a.place, a.severity.label, a.host) for a in joined.alerts] == [
        ("link.loss", "h1 -> leaf", "critical", "h1")
    ]


def exporters(site: Site, num_hosts: int = 2, down: str = "") -> None:
    """Tell of hosts with two InfiniBand rails, a slow management port and two GPUs, as real exporters name them."""
    net = [({"instance": f"h{h}:9100", "device": "eth0"}, "1000") for h in range(num_hosts)]
    ib = [
        ({"instance": f"h{h}:9100", "device": f"mlx5_{k}", "port": "1"}, "2e10")
        for h in range(num_hosts) for k in range(2)
    ]  # fmt: skip
    gpu = [
        ({"instance": f"h{h}:9400", "Hostname": f"h{h}", "gpu": str(k), "UUID": f"GPU-{h}{k}"}, "87")
        for h in range(num_hosts) for k in range(2)
    ]  # fmt: skip
    state = [(labels, "0" if f"{labels['instance']}/{labels['device']}" == down else "4") for labels, _ in ib]
    links = [(labels, "1e9") for labels, _ in gpu]
    rows = {
        "net.tx_bytes": net, "net.rx_bytes": net, "net.speed_Bps": [(labels, "125000000") for labels, _ in net],
        "ib.port_xmit_data": ib, "ib.port_rcv_data": ib, "ib.state": state,
        "ib.rate_Bps": [(labels, str(NDR_Bps)) for labels, _ in ib],
        "gpu.nvlink_tx_bytes": links, "gpu.nvlink_rx_bytes": links,
        "use": gpu, "celsius": [(labels, "61") for labels, _ in gpu],
        "xid": [(labels, "79" if labels["UUID"] == "GPU-11" else "0") for labels, _ in gpu],
    }  # fmt: skip
    for key, value in rows.items():
        site.rows[EXPORTER_SERIES[key]] = value


def test_exporters_alone_give_links_rails_gpus_and_alerts(site: Site) -> None:
    exporters(site)
    first = site.frame(3)
    table = first.table
    at = table.index["h1/mlx5_1:1 tx"]
    assert (table.rail[at], table.capacity_Bps[at], table.dst[at]) == (1, NDR_Bps, "rail-1")
    assert table.rail[table.index["h0/eth0 tx"]] == -1  # not one of the fastest
    assert first.load.rate_Bps[at] == 2e10
    assert "h0/gpu-1/nvlink tx" in table.names
    assert len(first.health["gpus"]) == 4
    assert first.health["gpus"][0]["use"] == pytest.approx(0.87)
    assert [(a.rule, a.place, a.host) for a in first.alerts] == [("gpu.xid", "h1/gpu-1", "h1")]
    assert first.health["num_hosts"] == 2


def test_exporters_and_a_cluster_give_the_fabrics_picture() -> None:
    host = {"gpu": "H100-SXM", "gpus": 2, "nics": 2}
    fabric = load({"hosts": 2, "host": host, "network": {"topology": "rail-optimized", "link": "NDR400"}})
    found: dict[str, list[Sample]] = {key: [] for key in EXPORTER_SERIES}
    ports = [("eth0", 1.25e8), ("eth1", 5e10), ("eth2", 5e10)]
    for name, (device, capacity) in itertools.product(("host-00", "other"), ports):
        metric = {"instance": f"{name}:9100", "device": device}
        for key, value in (("net.tx_bytes", 1e9), ("net.rx_bytes", 1e9), ("net.speed_Bps", capacity)):
            found[key].append(Sample(metric=metric, value=(0.0, value)))
    (frame,) = ExporterTable(fabric).frames(found, 1.0, 1.0)
    table = frame.table
    at = table.index["host-00/nic-1 -> leaf-01"]
    assert (table.devices[at], table.rail[at], table.capacity_Bps[at]) == ("eth2", 1, 5e10)
    assert (table.src[at], table.dst[at]) == ("host-00/nic-1", "leaf-01")
    assert {"host-00/eth0 tx", "other/eth1 tx"} <= set(table.names)  # not one of the fastest; not a host of the cluster


async def read_once(reader: PrometheusReader) -> HostFrame:
    try:
        (found,) = await reader.read()
        return found
    finally:
        await reader.close()


def test_a_port_that_goes_down_is_an_alert_without_an_agent(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    exporters(site, down="h1:9100/mlx5_0")
    seen = 1000.0

    def later() -> float:
        nonlocal seen
        seen += 1.0
        return seen

    clocks = SimpleNamespace(time=time.time, monotonic=later, monotonic_ns=time.monotonic_ns)
    monkeypatch.setattr(prometheus_source, "time", clocks)  # that module's alone: the event loop keeps its clock
    found = [asyncio.run(read_once(site.reader)) for _ in range(3)][-1]
    down = {(a.place, a.host) for a in found.alerts if a.rule == "link.down"}
    assert down == {("h1/mlx5_0:1 tx", "h1"), ("h1/mlx5_0:1 rx", "h1")}


def test_what_fires_in_prometheus_itself_is_shown(site: Site) -> None:
    labels = {"alertname": "NodeFilesystemFull", "severity": "warning", "instance": "h0:9100", "device": "nvme0"}
    ours = {"alertname": "SynclineAlert", "severity": "critical", "instance": "h0:9750"}
    site.rows[AGENT_SERIES["firing"]] = [(labels, "1"), (ours, "1")]
    found = site.frame()
    assert [(a.rule, a.place) for a in found.alerts] == [("prometheus.NodeFilesystemFull", "h0/nvme0")]
    exporters(site)
    assert site.frame().health["num_hosts"] == 2  # the alert's host is one of them


def test_an_answer_that_is_none_is_a_problem_of_its_own(site: Site) -> None:
    site.rows[AGENT_SERIES["up"]] = [({"link": "x"}, "NaN"), ({"link": "y"}, "1e400"), ({}, "words")]

    async def ask() -> None:
        await site.fleet.ask(site.reader)
        await site.reader.close()

    asyncio.run(ask())
    made = site.fleet.tell()
    assert made is not None
    (problem,) = made.health["problems"].values()
    assert problem.startswith("ValueError: data.result.2.value")


def test_no_question_is_left_behind_by_one_that_failed(site: Site) -> None:
    site.rows[AGENT_SERIES["up"]] = [({}, "words")]

    async def ask() -> int:
        with pytest.raises(ValueError, match=r"data\.result\.0\.value"):
            await site.reader.read()
        left = len(asyncio.all_tasks()) - 1
        await site.reader.close()
        return left

    assert asyncio.run(ask()) == 0
