"""Hosts without an agent of ours: links, rails and GPUs out of node_exporter and DCGM exporter, under the same rules.

Exporters give the readings that an agent's own sources give, and the same reader makes links of them.

rail         the place of a NIC among the fastest NICs of its host, where every host has as many
capacity     what the interface negotiated; NVLink's is not in DCGM's counters, so it is not known
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated

from pydantic import BeforeValidator, Field

from syncline.describe.names import natural
from syncline.errors import WatchError
from syncline.fabric import Fabric
from syncline.finding import Severity
from syncline.watch.counter import CounterBank, Growth
from syncline.watch.fleet.presence import HostFrame
from syncline.watch.foreign import Foreign, Text
from syncline.watch.frame import Frame
from syncline.watch.incident import Incident
from syncline.watch.link_map import LinkMap, map_of_fabric
from syncline.watch.link_reader import LinkReader
from syncline.watch.links import JoinedLinks, KnownLink
from syncline.watch.metric import METRICS, Key, Reading
from syncline.watch.rules.engine import RuleEngine

NOT_A_NIC = "lo|docker.*|veth.*|virbr.*|br-.*|ifb.*|dummy.*|tun.*|tap.*|cali.*|cni.*|flannel.*|bond.*|kube.*"
MAX_COUNTER = 2.0**64
_PORT = re.compile(r":\d+$")
EXPORTER_SERIES = {
    "net.tx_bytes": "node_network_transmit_bytes_total",
    "net.rx_bytes": "node_network_receive_bytes_total",
    "net.speed_Bps": "node_network_speed_bytes",
    "net.up": "node_network_up",
    "net.tx_dropped": "node_network_transmit_drop_total",
    "net.rx_dropped": "node_network_receive_drop_total",
    "net.tx_errors": "node_network_transmit_errs_total",
    "net.rx_errors": "node_network_receive_errs_total",
    "ib.port_xmit_data": "node_infiniband_port_data_transmitted_bytes_total",
    "ib.port_rcv_data": "node_infiniband_port_data_received_bytes_total",
    "ib.rate_Bps": "node_infiniband_rate_bytes_per_second",
    "ib.state": "node_infiniband_state_id",
    "ib.port_xmit_discards": "node_infiniband_port_discards_transmitted_total",
    "ib.port_rcv_errors": "node_infiniband_port_errors_received_total",
    "gpu.nvlink_tx_bytes": "DCGM_FI_PROF_NVLINK_TX_BYTES",
    "gpu.nvlink_rx_bytes": "DCGM_FI_PROF_NVLINK_RX_BYTES",
    "use": "DCGM_FI_DEV_GPU_UTIL",
    "celsius": "DCGM_FI_DEV_GPU_TEMP",
    "watts": "DCGM_FI_DEV_POWER_USAGE",
    "xid": "DCGM_FI_DEV_XID_ERRORS",
}
"""Names of series by metric, as an agent counts it; the last four are of GPUs, beside their links."""


def _number(value: object) -> object:
    """Return a sample's value, which Prometheus sends as text; NaN and infinities are what is not known."""
    try:
        number = float(str(value))
    except ValueError:
        return value
    return number if abs(number) < MAX_COUNTER else None


class Sample(Foreign):
    """One series of an instant query with its newest value."""

    metric: Annotated[dict[str, Text], Field(max_length=100)]
    value: tuple[float, Annotated[float | None, BeforeValidator(_number)]]

    @property
    def host(self) -> str:
        """The host a series is about: what DCGM says, else the scraped instance without its port."""
        return self.metric.get("Hostname") or _PORT.sub("", self.metric.get("instance", ""))

    def label(self, name: str) -> str:
        return self.metric.get(name, "")


Series = Mapping[str, Sequence[Sample]]
GpuColumn = dict[tuple[str, str], float]
"""A figure by host and GPU."""


class ExporterTable:
    """Keeps the links of all hosts and the rules that look at them.

    With a fabric, a host's fastest NICs are its NICs there, in order: links get their names, switches and rates.
    """

    def __init__(self, fabric: Fabric | None = None) -> None:
        self._fabric = fabric
        self._readers: dict[str, tuple[LinkMap, LinkReader]] = {}
        self._banks: dict[str, CounterBank] = defaultdict(CounterBank)
        self._grown: dict[str, dict[Key, Growth]] = {}
        self._looked_s = 0.0
        self._joined = JoinedLinks()
        self._engine = RuleEngine()
        self._seq = 0

    def frames(
        self, found: Series, wall_s: float, mono_s: float, scraped_s: Mapping[str, float] | None = None
    ) -> list[HostFrame]:
        """Return one frame for all of these hosts, with the alerts of the rules and of the GPUs.

        Counters grow from one scrape of a host to the next, which was at `scraped_s`.
        """
        readings = _readings(found)
        gpus = {name: _by_gpu(found[name]) for name in ("use", "celsius", "watts", "xid")}
        hosts = {*readings, *(host for host, _ in gpus["use"])}
        if not hosts:
            return []
        fastest = {host: fastest_nics(reading) for host, reading in readings.items()}
        usual = Counter(len(own) for own in fastest.values()).most_common(1)
        parts, of_links = [], {}
        for host, reading in sorted(readings.items()):
            has_rails = usual[0][0] > 1 and len(fastest[host]) == usual[0][0]
            reader = self._reader(host, reading, fastest[host], has_rails=has_rails)
            load = reader.update(reading, self._growth(host, reading, (scraped_s or {}).get(host, wall_s)), {}, mono_s)
            parts.append((reader.table, load))
            of_links.update(dict.fromkeys(reader.table.names, host))
        table, load = self._joined.join(parts)
        self._seq += 1
        self._engine.update(Frame(self._seq, wall_s, mono_s, mono_s - (self._looked_s or mono_s - 1.0), table, load))
        self._looked_s = mono_s
        alerts = [_at(alert, of_links) for alert in self._engine.alerts()]
        rows = tuple(
            {"host": host, "gpu": gpu, "use": use / 100, **{n: gpus[n].get((host, gpu)) for n in ("celsius", "watts")}}
            for (host, gpu), use in sorted(gpus["use"].items(), key=lambda item: (item[0][0], natural(item[0][1])))
        )
        title, alerts_of_all = f"{len(hosts)} hosts by their exporters", (*alerts, *_xids(gpus["xid"]))
        return [HostFrame(title, wall_s, table, load, alerts=alerts_of_all, gpus=rows, num_hosts=len(hosts))]

    def _growth(self, host: str, reading: Reading, at_s: float) -> dict[Key, Growth]:
        """Return what counters did up to a host's last scrape. DCGM gives rates of NVLink, not counters."""
        counters = {key: value for key, value in reading.items() if METRICS[key.metric].is_counter}
        rates = {key: Growth(counters.pop(key), 1.0) for key in [*counters] if key.metric.startswith("gpu.")}
        grown = self._banks[host].update(counters, at_s)
        self._grown[host] = grown or self._grown.get(host, {})
        return {**self._grown[host], **rates}

    def _reader(self, host: str, reading: Reading, nics: Sequence[str], *, has_rails: bool) -> LinkReader:
        """Return the reader of a host; a new one where its links are called otherwise than before."""
        wires: dict[tuple[str, str], KnownLink] = {}
        for key in reading:
            if key.metric == "gpu.nvlink_tx_bytes":
                wires |= _both_ways(host, f"gpu-{key.device}/nvlink", f"{host}/nvswitch", -1)
        for rail, nic in enumerate(nics if has_rails else ()):
            wires |= _both_ways(host, nic, f"rail-{rail}", rail)
        if self._fabric is not None:
            with suppress(WatchError):  # a host that the fabric does not know keeps its own names
                wires |= map_of_fabric(self._fabric, host, list(nics)).wires
        links = LinkMap(wires)
        if host not in self._readers or self._readers[host][0] != links:
            self._readers[host] = (links, LinkReader(host, links, gone_s=0.0))
        return self._readers[host][1]


def _at(incident: Incident, hosts: Mapping[str, str]) -> Incident:
    """Return an incident and its effects under the hosts of their links."""
    effects = tuple(_at(effect, hosts) for effect in incident.effects)
    return replace(incident, host=hosts.get(incident.place, ""), effects=effects)


def fastest_nics(reading: Reading) -> list[str]:
    """Return the NICs of a host that have its highest rate, in the order of their names."""
    rates = {
        key.device if key.metric == "net.speed_Bps" else f"{key.device}:{key.part}": value
        for key, value in reading.items()
        if key.metric in ("net.speed_Bps", "ib.rate_Bps") and value > 0
    }
    return sorted((nic for nic, rate in rates.items() if rate >= 0.99 * max(rates.values())), key=natural)


def _both_ways(host: str, device: str, away: str, rail: int) -> dict[tuple[str, str], KnownLink]:
    """Return both directions of a device that leads to its rail, or to the NVSwitch of its host."""
    here = f"{host}/{device}"
    return {
        (device, "tx"): KnownLink(f"{here} tx", rail=rail, src=here, dst=away),
        (device, "rx"): KnownLink(f"{here} rx", rail=rail, src=away, dst=here),
    }


def _readings(found: Series) -> dict[str, dict[Key, float]]:
    """Return what exporters read of the links of each host."""
    readings: dict[str, dict[Key, float]] = defaultdict(dict)
    for metric in METRICS.keys() & found.keys():
        kind = metric.partition(".")[0]
        for sample in found[metric]:
            device = sample.label("gpu" if kind == "gpu" else "device")
            if sample.value[1] is not None and device:
                key = Key(metric, device, sample.label("port") if kind == "ib" else "")
                readings[sample.host][key] = sample.value[1]
    return readings


def _by_gpu(samples: Sequence[Sample]) -> GpuColumn:
    return {(s.host, s.label("gpu")): s.value[1] for s in samples if s.value[1] is not None and s.label("gpu")}


def _xids(xids: GpuColumn) -> list[Incident]:
    return [
        Incident(
            "gpu.xid", Severity.CRITICAL, f"{host}/gpu-{gpu}", f"XID {code:.0f}", "none",
            ("DCGM_FI_DEV_XID_ERRORS, the last one the driver reported",),
            "The driver reported a GPU error; 48, 63, 64, 79, 94 and 95 are the hardware's.",
            "Look the number up in NVIDIA's XID catalogue; drain the host where it is the hardware's.", host=host,
        )
        for (host, gpu), code in sorted(xids.items())
        if code > 0
    ]  # fmt: skip
