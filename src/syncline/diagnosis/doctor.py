"""One answer from whatever an incident left behind: logs, tools' output, nccl-tests tables, flight-recorder dumps.

    found = examine(["incident/"], load("cluster.yaml"))
    found.suspects[0].place, found.suspects[0].probability, found.suspects[0].next

Every suspect that slows a link becomes a fault of the cluster description, is priced, and is compared with what was
measured: of two suspects with the same evidence the one whose price is the measurement is the likelier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from syncline.auditing.audit import audit
from syncline.diagnosis.diagnose import diagnose
from syncline.diagnosis.incident import IncidentFolder, NicNames, hosts_of
from syncline.diagnosis.readings import MAX_BYTES
from syncline.diagnosis.suspect import IncidentSuspect
from syncline.diagnosis.suspects import (
    counter_suspects,
    gpu_suspects,
    late_suspects,
    log_suspects,
    merged,
    of_finding,
    pcie_suspects,
    port_suspects,
)  # fmt: skip
from syncline.diagnosis.weighing import Measured, measured_in, ranked, with_healthy
from syncline.fabric import Fabric
from syncline.finding import Severity
from syncline.host.root import Root
from syncline.logs.origin import host_of_file
from syncline.logs.source import Sources, Unread
from syncline.logs.unexplained import OpenLine
from syncline.workload.trace import is_profiler, start_of


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


def examine(paths: Sequence[str | Path], fabric: Fabric | None = None) -> Examination:
    """Return what the files of an incident say was wrong, where, and how likely that is."""
    sources = Sources(paths)
    folder = IncidentFolder()
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
    hosts = hosts_of(folder)
    nics = NicNames(folder, fabric, hosts)
    found = [*port_suspects(folder, nics), *pcie_suspects(folder, nics), *counter_suspects(folder, nics)]
    found += [
        *gpu_suspects(folder),
        *late_suspects(folder),
        *log_suspects(diagnosis, nics, {(one.host, one.part) for one in found}),
    ]
    measured = measured_in(folder)
    suspects = ranked(merged(found), measured, fabric, nics)
    measured = with_healthy(measured, fabric)
    return Examination(
        suspects, measured, diagnosis.unexplained, diagnosis.unread, tuple(hosts), folder.files
    )  # fmt: skip


def examine_host(fabric: Fabric | None = None) -> Examination:
    """Return what this host itself says: every rule of the audit, its kernel log among them."""
    report = audit(Root.live())
    nics = NicNames(IncidentFolder(), fabric, [report.host])
    bad = [finding for finding in report.findings if finding.severity in (Severity.WARNING, Severity.CRITICAL)]
    found = []
    for finding in bad:
        weight = 0.9 if finding.severity is Severity.CRITICAL else 0.4
        part = finding.place.removeprefix(report.host).strip()
        found.append(of_finding(finding, report.host, part, weight * finding.confidence, nics))
    unread = tuple(Unread(path, why) for path, why in report.unreadable.items())
    return Examination(ranked(merged(found), None, fabric, nics), None, (), unread, (report.host,), {})
