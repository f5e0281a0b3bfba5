"""One answer from whatever an incident left behind: logs, tools' output, nccl-tests tables, flight-recorder dumps.

    found = examine(["incident/"], load("cluster.yaml"))
    found.suspects[0].place, found.suspects[0].probability, found.suspects[0].next

Every suspect that slows a link becomes a fault of the cluster description, is priced, and is compared with what was
measured: of two suspects with the same evidence the one whose price is the measurement is the likelier.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

from syncline.auditing.audit import audit
from syncline.bench.nccl_log import parse
from syncline.bench.nccl_run import NcclTestRun
from syncline.describe.names import natural
from syncline.diagnosis.diagnose import Diagnosis, diagnose
from syncline.diagnosis.following import next_command
from syncline.diagnosis.readings import (
    MAX_BYTES,
    CounterReading,
    GpuReading,
    PcieReading,
    PortReading,
    Reading,
    interface_addresses,
    nic_addresses,
    read,
)
from syncline.diagnosis.suspect import IncidentSuspect, fault_line
from syncline.errors import SynclineError
from syncline.explaining.explain import explain_recordings
from syncline.explaining.reading import read_recordings
from syncline.fabric import Fabric
from syncline.fabric.faults import FailedPart, apply_faults
from syncline.finding import Finding, Severity
from syncline.host.root import Root
from syncline.logs.context import host_of
from syncline.logs.origin import host_of_file, is_prefixed, split_prefix
from syncline.logs.read_rules import shipped_rules
from syncline.logs.source import Sources, Unread
from syncline.logs.unexplained import OpenLine
from syncline.program import place
from syncline.schedule import Kind
from syncline.sim.collective.price import LibraryTime, price
from syncline.workload.trace import is_profiler, start_of

MOST = 6
"""Suspects that are priced together, two at a time."""
FEWEST_SIGMA = 0.08
"""A prediction is never held to be surer than this, in the logarithm."""
NOTHING = 0.2
"""The odds that nothing is wrong, before anything was seen."""
_PCI = re.compile(r"\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d\b")
_STOPS = (
    "kernel.xid",
    "kernel.sxid",
    "nvlink.",
    "kernel.gpu",
    "kernel.oom",
    "kernel.panic",
    "kernel.lockup",
    "torch.",
    "nccl.",
    "rdma.",
    "job.",
)
_BY_READING = frozenset({"kernel.pcie.limited", "rdma.port.down", "bench.two-hosts"})
"""What tools' output says more exactly than the line does."""


@dataclass(frozen=True)
class Measured:
    """The collective that was measured, and what the healthy cluster would give."""

    path: str
    collective: str
    size_bytes: int
    num_ranks: int
    busbw_GBps: float
    hosts: tuple[str, ...]
    healthy_GBps: float | None = None
    low_GBps: float | None = None
    high_GBps: float | None = None

    @property
    def is_slow(self) -> bool:
        """Say whether it lies below what the healthy cluster gives."""
        return self.low_GBps is not None and self.busbw_GBps < self.low_GBps


@dataclass(frozen=True)
class Examination:
    """Suspects, the likeliest first, what was measured, and what was not understood."""

    suspects: tuple[IncidentSuspect, ...]
    measured: Measured | None
    unexplained: tuple[OpenLine, ...]
    unread: tuple[Unread, ...]
    hosts: tuple[str, ...]
    files: Mapping[str, str]
    """By file: the host that it comes from."""


@dataclass
class _Folder:
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
        if is_prefixed([line for line in lines[:200] if line.strip()]):
            by_host: dict[str, list[str]] = defaultdict(list)
            for line in lines:
                host, rest = split_prefix(line)
                by_host[host].append(rest)
        else:
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


def examine(paths: Sequence[str | Path], fabric: Fabric | None = None) -> Examination:
    """Return what the files of an incident say was wrong, where, and how likely that is."""
    sources = Sources(paths)
    folder = _Folder()
    for name, blocks in sources:
        if is_profiler(start_of(Path(name))):
            folder.traces.append(name)
            folder.files[name] = host_of_file(name)
            continue
        data = b""
        for block in blocks:
            data = data + block if len(data) < MAX_BYTES else data
        folder.take(name, data.decode("utf-8", "replace"))
    diagnosis = diagnose([name for name in folder.files if name not in folder.traces], cluster=fabric)
    hosts = _hosts(folder, diagnosis)
    nics = _Nics(folder, fabric, hosts)
    found = [*_port_suspects(folder, nics), *_pcie_suspects(folder, nics), *_counter_suspects(folder, nics)]
    found += [
        *_gpu_suspects(folder),
        *_late_suspects(folder),
        *_log_suspects(diagnosis, nics, {(one.host, one.part) for one in found}),
    ]
    measured = _measured(folder, fabric)
    suspects = _ranked(_merged(found), measured, fabric, nics)
    measured = _with_healthy(measured, fabric)
    return Examination(
        suspects, measured, diagnosis.unexplained, diagnosis.unread, tuple(hosts), folder.files
    )  # fmt: skip


def examine_host(fabric: Fabric | None = None) -> Examination:
    """Return what this host itself says: every rule of the audit, its kernel log among them."""
    report = audit(Root.live())
    nics = _Nics(_Folder(), fabric, [report.host])
    bad = [finding for finding in report.findings if finding.severity in (Severity.WARNING, Severity.CRITICAL)]
    found = []
    for finding in bad:
        weight = 0.9 if finding.severity is Severity.CRITICAL else 0.4
        part = finding.place.removeprefix(report.host).strip()
        found.append(_of_finding(finding, report.host, part, weight * finding.confidence, nics))
    unread = tuple(Unread(path, why) for path, why in report.unreadable.items())
    return Examination(_ranked(_merged(found), None, fabric, nics), None, (), unread, (report.host,), {})


def _hosts(folder: _Folder, diagnosis: Diagnosis) -> list[str]:
    names = {host for text in folder.files.values() for host in text.split(", ")} - {""}
    names |= {device.host for _, run in folder.runs for device in run.devices if device.host}
    return sorted(names, key=natural)


class _Nics:
    """Which NIC of the cluster a tool's name or a PCI address of a host is."""

    def __init__(self, folder: _Folder, fabric: Fabric | None, hosts: Sequence[str]) -> None:
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
        if _PCI.fullmatch(name):
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


def _usual(values: Iterable[float | None]) -> float | None:
    counted = Counter(value for value in values if value)
    return counted.most_common(1)[0][0] if counted else None


def _port_suspects(folder: _Folder, nics: _Nics) -> Iterable[IncidentSuspect]:
    """Yield ports that are down or slower than the same port of other hosts, or than the others of their own."""
    ports = [one for one in folder.readings if isinstance(one, PortReading)]
    by_name: dict[str, list[PortReading]] = defaultdict(list)
    by_host: dict[str, list[PortReading]] = defaultdict(list)
    for port in ports:
        by_name[port.name].append(port)
        by_host[port.host].append(port)
    for port in ports:
        peers = by_name[port.name] if len({one.host for one in by_name[port.name]}) > 2 else by_host[port.host]
        ups = sum(one.is_up is True for one in peers)
        part = nics.part(port.host, port.name)
        if port.is_up is False and ups > len(peers) / 2:
            failed = nics.failed(port.host, part)
            yield IncidentSuspect(
                "port.down", port.host, part, f"{port.name} is down ({ups} of {len(peers)} others are up)", 0.9,
                (port.line,), f'ssh {port.host or "HOST"} "ip -br link; ibstat {port.name}; mlxlink -d {port.name} -m"',
                fault_line(failed) if failed else "", stops=True, failed=failed,
            )  # fmt: skip
            continue
        usual = _usual(one.rate_Bps for one in peers)
        if port.rate_Bps and usual and port.rate_Bps < 0.95 * usual and port.is_up is not False:
            failed = nics.failed(port.host, part, port.rate_Bps)
            yield IncidentSuspect(
                "port.slow", port.host, part,
                f"{port.name} runs at {port.rate_Bps * 8 / 1e9:.0f} Gb/s, others at {usual * 8 / 1e9:.0f}", 0.8,
                (port.line,), f'ssh {port.host or "HOST"} "mlxlink -d {port.name} -m -c; ethtool {port.name}"',
                fault_line(failed) if failed else "", failed=failed,
            )  # fmt: skip


def _pcie_suspects(folder: _Folder, nics: _Nics) -> Iterable[IncidentSuspect]:
    """Yield NICs whose PCIe link is narrower than it could be, unless all of their kind are."""
    links = [one for one in folder.readings if isinstance(one, PcieReading)]
    hosts = max(len({*folder.addresses, *(one.host for one in links)}), 1)
    for link in links:
        alike = len({one.host for one in links if one.pci == link.pci and one.rate_Bps == link.rate_Bps})
        by_design = hosts > 1 and alike > hosts / 2
        part = nics.part(link.host, link.pci)
        failed = nics.failed(link.host, part, link.rate_Bps) if part.startswith("nic-") else None
        yield IncidentSuspect(
            "pcie.narrow", link.host, part,
            f"PCIe of {link.pci} trained at {link.rate_Bps * 8 / 1e9:.0f} Gb/s of {link.best_Bps * 8 / 1e9:.0f}",
            0.1 if by_design else 0.8, (link.line,),
            f"ssh {link.host or 'HOST'} \"lspci -vvv -s {link.pci} | grep -E 'LnkCap|LnkSta'\"",
            fault_line(failed) if failed else "", failed=failed,
        )  # fmt: skip


def _counter_suspects(folder: _Folder, nics: _Nics) -> Iterable[IncidentSuspect]:
    """Yield ports whose error counters stand far above those of the others."""
    counters = [one for one in folder.readings if isinstance(one, CounterReading)]
    by_name: dict[str, list[CounterReading]] = defaultdict(list)
    for one in counters:
        by_name[one.counter].append(one)
    for name, rows in by_name.items():
        if len(rows) == 1 and len({one.host for one in folder.readings}) < 2:
            continue
        values = sorted(one.value for one in rows)
        usual = values[len(values) // 2] if len(values) > 2 else 0
        worst = max(rows, key=lambda one: one.value)
        if worst.value > max(20 * usual, 100):
            yield IncidentSuspect(
                "port.errors", worst.host, nics.part(worst.host, worst.name) if worst.name else "",
                f"{name} is {worst.value:,}" + (f" (the others have {usual:,})" if usual else " (no other has any)"),
                0.6, (worst.line,),
                f'ssh {worst.host or "HOST"} "ethtool -S {worst.name or "DEVICE"} | grep -E \'err|drop|discard|down\'"',
            )  # fmt: skip


def _gpu_suspects(folder: _Folder) -> Iterable[IncidentSuspect]:
    lists = [one for one in folder.readings if isinstance(one, GpuReading)]
    usual = _usual(float(one.count) for one in lists)
    for one in lists:
        for part, what, line in one.faults:
            yield IncidentSuspect("gpu.fault", one.host, part, f"{part} {what}", 0.85, (line,),
                          f'ssh {one.host or "HOST"} "nvidia-smi -q -d ECC,PERFORMANCE; dmesg -T | grep -i xid | tail"',
                          stops=True)  # fmt: skip
        if usual and 0 < one.count < usual and len(lists) > 1:
            yield IncidentSuspect("gpu.missing", one.host, "", f"{one.count} GPUs, others have {usual:.0f}", 0.9,
                          (f"nvidia-smi lists {one.count}",),
                          f'ssh {one.host or "HOST"} "nvidia-smi -L; lspci | grep -i nvidia; dmesg -T | grep -i xid"',
                          stops=True)  # fmt: skip


def _late_suspects(folder: _Folder) -> Iterable[IncidentSuspect]:
    """Yield ranks that others wait for, by the traces of a profiler."""
    if len(folder.traces) < 2:
        return
    try:
        late = explain_recordings(read_recordings(folder.traces)).late
    except SynclineError:
        return
    host_of_rank = {device.rank: device.host for _, run in folder.runs for device in run.devices}
    for one in late:
        named = [name for name in folder.traces if re.search(rf"(?:rank|_|-){one.rank}(?!\d)", Path(name).name)]
        host = host_of_rank.get(one.rank) or next((folder.files[name] for name in named), "")
        yield IncidentSuspect(
            "rank.late", host, f"rank {one.rank}",
            f"rank {one.rank} is late: others wait {one.share:.0%} of a step for it; its {one.longer} takes longer",
            min(0.85, 0.3 + 2 * one.share), tuple(named[:2]),
            f"syncline explain {' '.join(folder.traces[:2])} ...",
        )  # fmt: skip


def _log_suspects(diagnosis: Diagnosis, nics: _Nics, known: set[tuple[str, str]]) -> Iterable[IncidentSuspect]:
    """Yield the first causes that logs name, but for what a tool's output says more exactly.

    What many causes lead to (a collective that timed out) says of no host that it is to blame: it is a suspect only
    where nothing else is.
    """
    symptoms = {rule.id for rule in shipped_rules().values() if rule.symptom}
    causes = [cause for cause in diagnosis.causes if cause.finding.rule not in symptoms]
    for cause in causes or ([] if known else diagnosis.causes):
        finding = cause.finding
        if finding.rule in _BY_READING and known:
            continue
        places = [finding.place] if finding.place.startswith("rank ") else finding.place.split(", ")
        for place_ in places[:4]:
            host, part = _where(place_, nics)
            weight = {Severity.CRITICAL: 1.0, Severity.WARNING: 0.6}.get(finding.severity, 0.2)
            yield _of_finding(finding, host, part, weight * finding.confidence, nics)


def _where(text: str, nics: _Nics) -> tuple[str, str]:
    if text.startswith("rank "):
        return "", text
    words = text.split()
    host = words[0] if words and not _PCI.fullmatch(words[0]) else ""
    rest = next((word for word in words if _PCI.fullmatch(word)), " ".join(words[1:]) if host else "")
    is_nic = _PCI.fullmatch(rest) or re.fullmatch(r"(?:eth|en|ib|mlx5_|rdma)\w*\d\w*", rest)
    return host, nics.part(host, rest) if is_nic else rest


def _of_finding(finding: Finding, host: str, part: str, prior: float, nics: _Nics) -> IncidentSuspect:
    down = finding.rule in ("kernel.link.down", "kernel.nic.stuck", "kernel.nic.probe", "switch.link.down")
    failed = nics.failed(host, part) if down and part.startswith("nic-") else None
    return IncidentSuspect(
        finding.rule, host, part, finding.observed, min(prior, 0.95), finding.evidence[:3], next_command(finding),
        fault_line(failed) if failed else "", stops=finding.rule.startswith(_STOPS), failed=failed,
    )  # fmt: skip


def _merged(found: Iterable[IncidentSuspect]) -> list[IncidentSuspect]:
    """Return one suspect a place and kind of fault; evidence of the others is kept with the likeliest."""
    best: dict[tuple[str, str, str], IncidentSuspect] = {}
    for one in found:
        key = one.host, one.part, "" if one.part.startswith("nic-") else one.rule
        other = best.get(key)
        if other is None:
            best[key] = one
            continue
        first, second = (one, other) if one.probability > other.probability else (other, one)
        sure = 1 - (1 - first.probability) * (1 - 0.5 * second.probability)
        best[key] = replace(first, probability=min(sure, 0.97), evidence=(*first.evidence, *second.evidence)[:5])
    return list(best.values())


def _measured(folder: _Folder, fabric: Fabric | None) -> Measured | None:
    """Return the largest row of the run with the most ranks."""
    runs = [(name, run) for name, run in folder.runs if run.rows]
    if not runs:
        return None
    name, run = max(runs, key=lambda item: (item[1].num_ranks, len(item[1].rows)))
    row = max(run.rows, key=lambda one: (one.size_bytes, not one.in_place))
    hosts = tuple(dict.fromkeys(device.host for device in run.devices if device.host))
    return Measured(name, run.kind.value, row.size_bytes, run.num_ranks, row.busbw_Bps / 1e9, hosts)


def _price(fabric: Fabric, measured: Measured, faults: Sequence[FailedPart]) -> LibraryTime | None:
    try:
        faulty = apply_faults(fabric, tuple(faults))
        return price(Kind(measured.collective), measured.size_bytes, place("packed", faulty, measured.num_ranks)).nccl
    except SynclineError:
        return None


def _with_healthy(measured: Measured | None, fabric: Fabric | None) -> Measured | None:
    if measured is None or fabric is None or (found := _price(fabric, measured, ())) is None:
        return measured
    scale = found.busbw_Bps * found.time_s / 1e9
    return replace(
        measured, healthy_GBps=found.busbw_Bps / 1e9, low_GBps=scale / found.high_s, high_GBps=scale / found.low_s
    )


def _likelihood(found: LibraryTime | None, measured: Measured) -> float:
    """Return how well a prediction fits what was measured, 1 where they agree."""
    if found is None:
        return 0.05
    sigma = max(math.log(found.high_s / found.low_s) / 2.56, FEWEST_SIGMA)
    off = math.log(max(found.busbw_Bps / 1e9, 1e-9) / max(measured.busbw_GBps, 1e-9)) / sigma
    return math.exp(-0.5 * min(off * off, 40.0)) + 1e-4


def _ranked(
    suspects: Sequence[IncidentSuspect], measured: Measured | None, fabric: Fabric | None, nics: _Nics
) -> tuple[IncidentSuspect, ...]:
    """Return the suspects, the likeliest and costliest first.

    Those that are faults of the cluster are weighed together: every one alone, every two at once, and none, each by its
    evidence and by how well its price fits what was measured. Faults that the cluster file has already come last.
    """
    suspects = [
        replace(one, is_described=one.failed is not None and one.failed.device in nics.described) for one in suspects
    ]
    priced = [one for one in suspects if one.failed is not None and not one.is_described]
    if fabric is not None and measured is not None and priced:
        weighed = sorted(priced, key=lambda one: -one.probability)[:MOST]
        suspects = [*_weighed(weighed, fabric, measured), *(one for one in suspects if one not in weighed)]
    return tuple(sorted(suspects, key=lambda one: (one.is_described, -one.probability * _weight(one))))


def _weight(one: IncidentSuspect) -> float:
    if one.stops:
        return 1.0
    return 0.5 if one.loss is None else 0.4 + 0.6 * min(max(one.loss, 0.0) * 1.5, 1.0)


def _weighed(suspects: Sequence[IncidentSuspect], fabric: Fabric, measured: Measured) -> list[IncidentSuspect]:
    odds = {number: one.probability / (1 - one.probability) for number, one in enumerate(suspects)}
    sets = [(), *((number,) for number in odds), *combinations(odds, 2)]
    prices = {
        chosen: _price(fabric, measured, [failed for number in chosen if (failed := suspects[number].failed)])
        for chosen in sets
    }
    weights = {
        chosen: (NOTHING if not chosen else math.prod(odds[number] for number in chosen))
        * _likelihood(prices[chosen], measured)
        for chosen in sets
    }
    total = sum(weights.values())
    healthy = prices[()]
    result = []
    for number, one in enumerate(suspects):
        share = sum(weight for chosen, weight in weights.items() if number in chosen) / total
        alone = prices[(number,)]
        if alone is None or healthy is None:
            result.append(one)
            continue
        loss = 1 - alone.busbw_Bps / healthy.busbw_Bps
        # What the measurement cannot tell apart keeps what its evidence says.
        sure = share if loss > FEWEST_SIGMA else one.probability
        result.append(one.priced(alone.busbw_Bps / 1e9, loss, round(min(sure, 0.99), 3)))
    return result
