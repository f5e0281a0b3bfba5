"""What the files of an incident hold, by host; and which NIC of the cluster a name in them is."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from syncline.bench.nccl_log import parse
from syncline.bench.nccl_run import NcclTestRun
from syncline.describe.names import natural
from syncline.diagnosis.readings import CounterReading, PortReading, Reading, interface_addresses, nic_addresses, read
from syncline.errors import SynclineError
from syncline.fabric import Fabric
from syncline.fabric.faults import FailedPart, apply_faults
from syncline.logs.context import host_of
from syncline.logs.origin import grouped, host_of_file, is_prefixed, split_prefix

PCI_ADDRESS = re.compile(r"\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d\b")


@dataclass
class IncidentFolder:
    """What stands in the files, by host."""

    readings: list[Reading] = field(default_factory=list)
    addresses: dict[str, list[str]] = field(default_factory=dict)
    interfaces: dict[str, dict[str, str]] = field(default_factory=dict)
    runs: list[tuple[str, NcclTestRun]] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    traces: list[str] = field(default_factory=list)

    def take(self, name: str, text: str) -> None:
        """Take in one file: its lines by host, and a table of nccl-tests if it holds one."""
        named = host_of_file(name)
        lines = text.splitlines()
        by_host: dict[str, list[str]] = {}
        if is_prefixed([line for line in lines[:200] if line.strip()]):
            for line in lines:
                host, rest = split_prefix(line)
                by_host.setdefault(host, []).append(rest)
        elif not (by_host := grouped(lines)):
            named = named or next((host for line in lines[:50] if (host := host_of(line))), "")
            by_host = {named: lines}
        self.files[name] = named if len(by_host) == 1 else ", ".join(sorted(filter(None, by_host)))
        for host, own in by_host.items():
            body = "\n".join(own)
            interface = re.search(r"(?:^|[-_.])((?:en|eth|ib|rdma|roce|mlx5_)\w*\d)(?=[-_.]|$)", Path(name).stem)
            for reading in read(body, host):
                if isinstance(reading, CounterReading) and interface:
                    reading = replace(reading, name=interface[1])
                self.readings.append(reading)
            if addresses := nic_addresses(body):
                self.addresses[host] = sorted({*self.addresses.get(host, ()), *addresses})
                self.interfaces.setdefault(host, {}).update(interface_addresses(body))
        if "busbw" in text or "Avg bus bandwidth" in text or '"bus_bw"' in text:
            try:
                self.runs.append((name, parse(text, name)))
            except SynclineError:
                return


def hosts_of(folder: IncidentFolder) -> list[str]:
    """Return the hosts that the files come from or name."""
    names = {host for text in folder.files.values() for host in text.split(", ")} - {""}
    names |= {device.host for _, run in folder.runs for device in run.devices if device.host}
    return sorted(names, key=natural)


class NicNames:
    """Which NIC of the cluster a tool's name or a PCI address of a host is."""

    def __init__(self, folder: IncidentFolder, fabric: Fabric | None, hosts: Sequence[str]) -> None:
        self._addresses, self._fabric, self._hosts = folder.addresses, fabric, hosts
        self._interfaces = folder.interfaces
        self._known = set(fabric.host_names) if fabric is not None else set()
        self.described = {fault.device for fault in fabric.spec.faults} if fabric is not None else set()
        ports = [one for one in folder.readings if isinstance(one, PortReading)]
        usual = Counter(one.rate_Bps for one in ports if one.rate_Bps).most_common(1)
        fast = {one.name for one in ports if usual and one.rate_Bps == usual[0][0]}
        self._names: dict[str, list[str]] = defaultdict(list)
        for one in ports:
            if one.name in fast and one.name not in self._names[one.host]:
                self._names[one.host].append(one.name)

    def index(self, host: str, name: str) -> int | None:
        """Return the number of a NIC on its host, counted in the order of the bus or of the names."""
        name = self._interfaces.get(host, {}).get(name, name)
        if PCI_ADDRESS.fullmatch(name):
            known = self._addresses.get(host, [])
            return known.index(name) if name in known else None
        names = sorted(self._names.get(host, []), key=natural)
        if name in names:
            return names.index(name)
        number = re.search(r"(\d+)$", name)
        return int(number[1]) if number and not names else None

    def part(self, host: str, name: str) -> str:
        number = self.index(host, name)
        return f"nic-{number}" if number is not None else name

    def failed(self, host: str, part: str, rate_Bps: float | None = None) -> FailedPart | None:
        """Return the fault of the cluster that a slow or dead part of a host is, where the cluster has such a part."""
        if self._fabric is None or not part:
            return None
        name = host if host in self._known else self._like(host)
        try:
            failed = FailedPart(device=f"{name}/{part}", rate=rate_Bps)
            if failed.device in self.described:
                return failed
            apply_faults(self._fabric, (failed,))
        except (SynclineError, ValueError):
            return None
        return failed

    def _like(self, host: str) -> str:
        """Return the host of the cluster in the same place, where the cluster calls its hosts otherwise."""
        assert self._fabric is not None
        at = self._hosts.index(host) if host in self._hosts else 0
        return self._fabric.host_names[min(at, self._fabric.num_hosts - 1)]
