"""Hosts without an agent of ours: links, rails and GPUs out of node_exporter and DCGM exporter, under the same rules.

rail         the place of a NIC among the fastest NICs of its host, where every host has as many
capacity     what the interface negotiated; NVLink's is not in DCGM's counters, so it is not known
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from syncline.errors import WatchError
from syncline.fabric import Fabric
from syncline.finding import Severity
from syncline.watch.fleet.host_frame import HostFrame
from syncline.watch.frame import Frame
from syncline.watch.incident import Incident
from syncline.watch.link_map import map_of_fabric
from syncline.watch.links import KnownLink, LinkLoad, LinkTable
from syncline.watch.rules.engine import RuleEngine

OVER = "[1m]"
_NOT_A_NIC = "lo|docker.*|veth.*|virbr.*|br-.*|ifb.*|dummy.*|tun.*|tap.*|cali.*|cni.*|flannel.*|bond.*|kube.*"
_NET = f'{{device!~"{_NOT_A_NIC}"}}'
EXPORTER_QUERIES: dict[str, str] = {
    "net.tx": f"rate(node_network_transmit_bytes_total{_NET}{OVER})",
    "net.rx": f"rate(node_network_receive_bytes_total{_NET}{OVER})",
    "net.capacity": f"node_network_speed_bytes{_NET}",
    "net.up": f"node_network_up{_NET}",
    "net.tx_drops": f"rate(node_network_transmit_drop_total{_NET}{OVER})",
    "net.rx_drops": f"rate(node_network_receive_drop_total{_NET}{OVER})",
    "net.tx_errors": f"rate(node_network_transmit_errs_total{_NET}{OVER})",
    "net.rx_errors": f"rate(node_network_receive_errs_total{_NET}{OVER})",
    "ib.tx": f"rate(node_infiniband_port_data_transmitted_bytes_total{OVER})",
    "ib.rx": f"rate(node_infiniband_port_data_received_bytes_total{OVER})",
    "ib.capacity": "node_infiniband_rate_bytes_per_second",
    "ib.up": "node_infiniband_state_id == bool 4",
    "ib.tx_drops": f"rate(node_infiniband_port_discards_transmitted_total{OVER})",
    "ib.rx_errors": f"rate(node_infiniband_port_errors_received_total{OVER})",
    "gpu.tx": "DCGM_FI_PROF_NVLINK_TX_BYTES",
    "gpu.rx": "DCGM_FI_PROF_NVLINK_RX_BYTES",
    "gpu.use": "DCGM_FI_DEV_GPU_UTIL",
    "gpu.celsius": "DCGM_FI_DEV_GPU_TEMP",
    "gpu.watts": "DCGM_FI_DEV_POWER_USAGE",
    "gpu.xid": "DCGM_FI_DEV_XID_ERRORS",
}
_LOADS = {"drops_per_s": "drops", "errors_per_s": "errors"}


class ExporterSeries(Protocol):
    """One series with its newest value."""

    value: tuple[float, float | None]

    @property
    def host(self) -> str: ...

    def label(self, name: str) -> str: ...


@dataclass(frozen=True, order=True)
class _Port:
    """One device of one host: `net` or `ib` or `gpu`, and what its exporter calls it."""

    host: str
    kind: str
    device: str

    @property
    def name(self) -> str:
        return f"gpu-{self.device}/nvlink" if self.kind == "gpu" else self.device


Values = Mapping[str, Mapping[_Port, float]]


class ExporterTable:
    """Keeps the links of all hosts and the rules that look at them.

    With a fabric, a host's fastest NICs are its NICs there, in order: links get their names, switches and rates.
    """

    def __init__(self, fabric: Fabric | None = None) -> None:
        self._fabric = fabric
        self._table: LinkTable | None = None
        self._ports: tuple[_Port, ...] = ()
        self._engine = RuleEngine()
        self._seq = 0

    def frames(self, found: Mapping[str, Sequence[ExporterSeries]], wall_s: float, mono_s: float) -> list[HostFrame]:
        """Return one frame for all of these hosts, with the alerts of the rules and of the GPUs."""
        values = _values(found)
        ports = tuple(sorted({port for key in ("net.tx", "ib.tx", "gpu.tx") for port in values[key]}, key=_order))
        gpus = sorted(values["gpu.use"], key=_order)
        if not ports and not gpus:
            return []
        table = self._table_of(ports, values)
        load = _load(ports, values)
        self._seq += 1
        frame = Frame(self._seq, wall_s, mono_s, 1.0, table, load)
        self._engine.update(frame)
        hosts = {port.host for port in (*ports, *gpus)}
        of_links = dict(zip(table.names, (port.host for port in ports for _ in ("tx", "rx")), strict=True))
        alerts = [replace(alert, host=of_links.get(alert.place, "")) for alert in self._engine.alerts()]
        title = f"{len(hosts)} hosts by their exporters"
        return [
            HostFrame(
                title, wall_s, table, load, alerts=(*alerts, *_xids(values["gpu.xid"])),
                gpus=tuple(_gpu(gpu, values) for gpu in gpus), num_hosts=len(hosts),
            )
        ]  # fmt: skip

    def _table_of(self, ports: tuple[_Port, ...], values: Values) -> LinkTable:
        capacity = [values[f"{p.kind}.capacity"].get(p, np.nan) if p.kind != "gpu" else np.nan for p in ports]
        known = np.array([c if c and c > 0 else np.nan for c in capacity for _ in range(2)], np.float64)
        old = self._table
        if old is None or ports != self._ports or not np.array_equal(old.capacity_Bps, known, equal_nan=True):
            rails = rails_of(ports, dict(zip(ports, capacity, strict=True)))
            wires = self._wires(ports, dict(zip(ports, capacity, strict=True)))
            rows = [(port, direction) for port in ports for direction in ("tx", "rx")]
            links = [
                (wires.get(row) or _own_link(*row, rails.get(row[0], -1)))._replace(capacity_Bps=known_Bps)
                for row, known_Bps in zip(rows, known.tolist(), strict=True)
            ]
            self._ports = ports
            devices = [f"{port.host}/{port.name}" for port, _ in rows]
            self._table = LinkTable.of(links, devices, [way for _, way in rows], 1 + (old.version if old else 0))
        assert self._table is not None
        return self._table

    def _wires(self, ports: Sequence[_Port], capacity_Bps: Mapping[_Port, float]) -> dict[tuple[_Port, str], KnownLink]:
        """Return what the NICs of hosts that the fabric knows are called there; others keep their own names."""
        found: dict[tuple[_Port, str], KnownLink] = {}
        if self._fabric is None:
            return found
        for host, own in fastest_nics(ports, capacity_Bps).items():
            by_name = {port.name: port for port in sorted(own, key=_order)}
            try:
                known = map_of_fabric(self._fabric, host, list(by_name))
            except WatchError:
                continue
            found.update({(by_name[device], way): wire for (device, way), wire in known.wires.items()})
        return found


def fastest_nics(ports: Sequence[_Port], capacity_Bps: Mapping[_Port, float]) -> dict[str, list[_Port]]:
    """Return the NICs of each host that have its highest rate."""
    nics: dict[str, list[_Port]] = defaultdict(list)
    for port in ports:
        if port.kind != "gpu" and capacity_Bps.get(port, 0.0) > 0:
            nics[port.host].append(port)
    return {
        host: [p for p in own if capacity_Bps[p] >= 0.99 * max(capacity_Bps[q] for q in own)]
        for host, own in nics.items()
    }


def rails_of(ports: Sequence[_Port], capacity_Bps: Mapping[_Port, float]) -> dict[_Port, int]:
    """Return each NIC's rail: its place among its host's fastest NICs, where all hosts have as many, two or more."""
    fastest = fastest_nics(ports, capacity_Bps)
    counts = Counter(len(own) for own in fastest.values())
    usual, _ = counts.most_common(1)[0] if counts else (0, 0)
    if usual < 2:
        return {}
    return {
        port: rail for own in fastest.values() if len(own) == usual for rail, port in enumerate(sorted(own, key=_order))
    }


def _values(found: Mapping[str, Sequence[ExporterSeries]]) -> dict[str, dict[_Port, float]]:
    values: dict[str, dict[_Port, float]] = {}
    for key, samples in found.items():
        kind = key.partition(".")[0]
        column = values[key] = {}
        for sample in samples:
            device = sample.label("gpu") if kind == "gpu" else sample.label("device")
            part = sample.label("port") if kind == "ib" else ""
            if sample.value[1] is not None and device:
                column[_Port(sample.host, kind, f"{device}:{part}" if part else device)] = sample.value[1]
    return values


def _load(ports: Sequence[_Port], values: Values) -> LinkLoad:
    rows = [(port, direction) for port in ports for direction in ("tx", "rx")]
    empty: dict[_Port, float] = {}
    columns: dict[str, Any] = dict(vars(LinkLoad.empty(len(rows))))
    columns["rate_Bps"] = np.array([values[f"{p.kind}.{d}"].get(p, np.nan) for p, d in rows], np.float64)
    columns["up"] = np.array([values.get(f"{p.kind}.up", empty).get(p, 1.0) for p, _ in rows], np.float64)
    for column, word in _LOADS.items():
        columns[column] = np.array([values.get(f"{p.kind}.{d}_{word}", empty).get(p, 0.0) for p, d in rows])
    return LinkLoad(**columns)


def _own_link(port: _Port, direction: str, rail: int) -> KnownLink:
    """Return a device's link as far as exporters know: to its rail, the NVLink of its host, or the network."""
    here = f"{port.host}/{port.name}"
    away = f"{port.host}/nvswitch" if port.kind == "gpu" else f"rail-{rail}" if rail >= 0 else ""
    src, dst = (here, away) if direction == "tx" else (away, here)
    return KnownLink(f"{here} {direction}", rail=rail, src=src, dst=dst)


def _gpu(port: _Port, values: Values) -> dict[str, float | str | None]:
    return {
        "host": port.host,
        "gpu": port.device,
        "use": values["gpu.use"][port] / 100,
        "celsius": values["gpu.celsius"].get(port),
        "watts": values["gpu.watts"].get(port),
    }


def _xids(xids: Mapping[_Port, float]) -> list[Incident]:
    return [
        Incident(
            "gpu.xid", Severity.CRITICAL, f"{port.host}/gpu-{port.device}", f"XID {code:.0f}", "none",
            ("DCGM_FI_DEV_XID_ERRORS, the last one the driver reported",),
            "The driver reported a GPU error; 48, 63, 64, 79, 94 and 95 are the hardware's.",
            "Look the number up in NVIDIA's XID catalogue; drain the host where it is the hardware's.", host=port.host,
        )
        for port, code in sorted(xids.items())
        if code > 0
    ]  # fmt: skip


def _order(port: _Port) -> tuple[object, ...]:
    numbers = re.split(r"(\d+)", port.device)
    return (port.host, port.kind, tuple((int(p), "") if p.isdigit() else (-1, p) for p in numbers))
