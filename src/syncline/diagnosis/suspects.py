"""Who may be to blame for an incident, by what each kind of file says: ports, PCIe, counters, GPUs, traces, logs."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from syncline.diagnosis.diagnose import Diagnosis
from syncline.diagnosis.following import next_command
from syncline.diagnosis.incident import PCI_ADDRESS, IncidentFolder, NicNames
from syncline.diagnosis.readings import CounterReading, GpuReading, PcieReading, PortReading
from syncline.diagnosis.suspect import IncidentSuspect, fault_line
from syncline.errors import SynclineError
from syncline.explaining.explain import explain_recordings
from syncline.explaining.reading import read_recordings
from syncline.finding import Finding, Place, Severity
from syncline.logs.read_rules import shipped_rules

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


def _usual(values: Iterable[float | None]) -> float | None:
    counted = Counter(value for value in values if value)
    return counted.most_common(1)[0][0] if counted else None


def _ups(ports: Sequence[PortReading]) -> tuple[int, int]:
    """Return how many ports are up, and of how many."""
    return sum(one.is_up is True for one in ports), len(ports)


def port_suspects(folder: IncidentFolder, nics: NicNames) -> Iterable[IncidentSuspect]:
    """Yield ports that are down or slower than the same port of other hosts, or than the others of their own."""
    ports = [one for one in folder.readings if isinstance(one, PortReading)]
    by_name: dict[str, list[PortReading]] = defaultdict(list)
    by_host: dict[str, list[PortReading]] = defaultdict(list)
    for port in ports:
        by_name[port.name].append(port)
        by_host[port.host].append(port)
    for port in ports:
        alike, beside = by_name[port.name], by_host[port.host]
        peers = alike if len({one.host for one in alike}) > 2 else beside
        part = nics.part(port.host, port.name)
        if (
            port.is_up is False
            and (ups := max(_ups(alike), _ups(beside), key=lambda of: of[0] / of[1]))[0] * 2 > ups[1]
        ):
            failed = nics.failed(port.host, part)
            yield IncidentSuspect(
                "port.down", port.host, part, f"{port.name} is down ({ups[0]} of {ups[1] - 1} others are up)", 0.9,
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


def pcie_suspects(folder: IncidentFolder, nics: NicNames) -> Iterable[IncidentSuspect]:
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


def counter_suspects(folder: IncidentFolder, nics: NicNames) -> Iterable[IncidentSuspect]:
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


def gpu_suspects(folder: IncidentFolder) -> Iterable[IncidentSuspect]:
    """Yield GPUs that report a fault, and hosts that list fewer than the others."""
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


def late_suspects(folder: IncidentFolder) -> Iterable[IncidentSuspect]:
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


def log_suspects(diagnosis: Diagnosis, nics: NicNames, known: set[tuple[str, str]]) -> Iterable[IncidentSuspect]:
    """Yield the first causes that logs name, but for what a tool's output says more exactly.

    What many causes lead to (a collective that timed out) says of no host that it is to blame: it is a suspect only
    where nothing else is.
    """
    symptoms = {rule.id for rule in shipped_rules().values() if rule.symptom}
    causes = [cause for cause in diagnosis.causes if cause.rule not in symptoms]
    for finding in causes or ([] if known else diagnosis.causes):
        if finding.rule in _BY_READING and known:
            continue
        for place in finding.places or (Place(),):
            weight = {Severity.CRITICAL: 1.0, Severity.WARNING: 0.6}.get(finding.severity, 0.2)
            yield of_finding(finding, place.host, _part(place, nics), weight * finding.confidence, nics)


def _part(place: Place, nics: NicNames) -> str:
    """Return a part as the doctor calls it: a NIC by its number, whatever the log calls it."""
    address = next((word for word in place.part.split() if PCI_ADDRESS.fullmatch(word)), "")
    is_nic = address or re.fullmatch(r"(?:eth|en|ib|mlx5_|rdma)\w*\d\w*", place.part)
    return nics.part(place.host, address or place.part) if is_nic else place.part


def of_finding(finding: Finding, host: str, part: str, prior: float, nics: NicNames) -> IncidentSuspect:
    """Return a finding as a suspect, with the fault of the cluster that it is."""
    down = finding.rule in ("kernel.link.down", "kernel.nic.stuck", "kernel.nic.probe", "switch.link.down")
    failed = nics.failed(host, part) if down and part.startswith("nic-") else None
    return IncidentSuspect(
        finding.rule, host, part, finding.observed, min(prior, 0.95), finding.evidence[:3], next_command(finding),
        fault_line(failed) if failed else "", stops=finding.rule.startswith(_STOPS), failed=failed,
    )  # fmt: skip


def merged(found: Iterable[IncidentSuspect]) -> list[IncidentSuspect]:
    """Return one suspect a place and kind of fault; evidence of the others is kept with the likeliest.

    A disk and its partitions are one place, and so is a host that misses a GPU beside the GPU that it lost.
    """
    best: dict[tuple[str, str, str], IncidentSuspect] = {}
    found = list(found)
    lost = {one.host: one for one in found if one.rule in ("kernel.xid.gpu-lost", "kernel.gpu.off-bus")}
    for one in found:
        same = lost.get(one.host, one) if one.rule == "gpu.missing" else one
        part = re.sub(r"(?<=^nvme\d)n\d+(p\d+)?$|(?<=^sd[a-z])\d+$", "", same.part)
        key = one.host, part, "" if part.startswith("nic-") else same.rule
        other = best.get(key)
        if other is None:
            best[key] = one
            continue
        first, second = (one, other) if one.probability > other.probability else (other, one)
        sure = 1 - (1 - first.probability) * (1 - 0.5 * second.probability)
        best[key] = replace(first, probability=min(sure, 0.97), evidence=(*first.evidence, *second.evidence)[:5])
    return list(best.values())
