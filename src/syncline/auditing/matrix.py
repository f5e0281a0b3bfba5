"""Hosts side by side: for every fact the majority, and who differs from it.

    odd = compare([report_of_h0, report_of_h1, report_of_h2])
    odd.rows[0].odd                 # {"h2": "1500"}

A fact has a majority when more than half of the hosts that tell it agree. Without one nobody is called odd: the
values are listed, and the finding says that they differ. Hosts that do not tell a fact which others tell are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from syncline.auditing.names import bad_names
from syncline.auditing.paths import bad_paths
from syncline.auditing.report import HostReport
from syncline.describe.model import Handle, reported
from syncline.describe.names import few
from syncline.errors import UsageError
from syncline.finding import Action, Finding, Severity, worst

# Differences that make jobs hang or fail, rather than slow.
_BREAKING = (
    "mtu", "rdma mtu", "nccl", "gpu driver", "rdma link layer", "rdma devices", "gpus", "gid index", "gid family",
    "imex nodes", "nvlink clique",
)  # fmt: skip
# Facts that only hosts of one NVLink domain must share; hosts of another rack have their own.
_DOMAIN = "nvlink domain"
_OF_A_DOMAIN = ("nvlink clique", "imex nodes")
# Figure -> least value that counts, how far from the middle of the others, +1 where more is worse, how to write it,
# meaning, fix.
_MEASURES = {
    "tcp retransmits": (1e-3, 2.0, 1, ".2%", "Packets to or from this host are lost more than between the others.",
                        "Check its cable, optic and switch port first: the others lose only what they send to it."),
    "cpu share": (0.0, 3.0, -1, ".2%",
                  "A process here gets far less of a core than on the others: the host is a straggler.",
                  "Look for other load, a CPU quota, a lower clock or a hot processor on this host."),
    "cpu held back": (0.2, 2.0, 1, ".2%", "Processes here are stopped part of the time: the host is a straggler.",
                      "Look for a CPU quota (cgroup cpu.max), a paused or oversubscribed virtual machine, SIGSTOP."),
    "memory copy": (0.0, 1.3, -1, ".3g", "Memory is slower here than on the others (bytes/s): modules missing or slow.",
                    "Compare dmidecode -t memory with another host; look at power caps and other load."),
    "gpu matrix": (0.0, 1.1, -1, ".3g", "Its slowest GPU computes less than those of the others (operations/s).",
                   "Look at clocks, power and temperature of this host's GPUs."),
    "gpu memory": (0.0, 1.1, -1, ".3g", "Memory of its slowest GPU is slower than on the others (bytes/s).",
                   "Look at clocks and ECC counters of this host's GPUs."),
    "gpu all-reduce": (0.0, 1.2, -1, ".3g", "A sum over its GPUs is slower than on the others (busbw, bytes/s).",
                       "Look at NVLink, fabric manager and NCCL's settings on this host."),
    "link downs": (3, 2.0, 1, ".0f", "A link of this host goes down again and again: collectives through it stall.",
                   "Swap optic and cable; look at the switch port; then at the card."),
}  # fmt: skip
_FIX = {
    "kernel options": "Make the boot configuration equal and reboot the odd host.",
    "rdma devices": "Make names and PCI slots equal: rails are counted by device name.",
    "nccl": "Install one NCCL, in one container image.",
    "gid family": "Give the ports the same kinds of address on all hosts, and force no NCCL_IB_GID_INDEX.",
    "imex nodes": "Write one node map to all hosts of the NVLink domain and restart nvidia-imex there.",
    "nvlink clique": "Put the host's GPUs into the partition of the others (NMX controller), then reset them.",
    "name sources": "Make the line for hosts in /etc/nsswitch.conf equal.",
    "name servers": "Make /etc/resolv.conf equal: hosts that ask different servers may get different answers.",
    "mtu": "Set the MTU of the others on the odd host, and check its switch ports.",
}


@dataclass(frozen=True)
class FactRow:
    """One fact over all hosts."""

    fact: str
    values: Mapping[str, str]
    """Host -> value, of those that tell it."""
    majority: str | None
    missing: tuple[str, ...]

    @reported
    def odd(self) -> dict[str, str]:
        """The hosts that differ from the majority; none where there is none."""
        return {} if self.majority is None else {h: v for h, v in self.values.items() if v != self.majority}

    @property
    def agrees(self) -> bool:
        return len(set(self.values.values())) <= 1 and not self.missing


@dataclass(frozen=True)
class Matrix:
    """All facts over all hosts."""

    hosts: tuple[str, ...]
    rows: tuple[FactRow, ...]
    outliers: Handle[tuple[Finding, ...]] = ()

    @reported
    def findings(self) -> tuple[Finding, ...]:
        """Who is the odd one out, by figures and by facts."""
        return (*self.outliers, *(finding for row in self.rows for finding in _findings(row)))

    @property
    def status(self) -> Severity:
        return worst(self.findings)


def compare(reports: Sequence[HostReport]) -> Matrix:
    """Compare the facts of hosts; two reports of one host are an error, since one of them is stale."""
    names = Counter(report.host for report in reports)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise UsageError(
            f'there are {names[twice[0]]} reports of host "{twice[0]}".',
            hint="Keep one report for each host; under srun use --ntasks-per-node=1.",
        )
    facts = dict.fromkeys(fact for report in reports for fact in report.facts)
    rows = tuple(_row(fact, group) for fact in facts for group in _groups(fact, reports))
    apart = (*_outliers(reports), *bad_paths(reports), *bad_names(reports))
    return Matrix(tuple(report.host for report in reports), rows, apart)


def _groups(fact: str, reports: Sequence[HostReport]) -> list[Sequence[HostReport]]:
    """Return the hosts that should agree on a fact: all of them, or those of each NVLink domain."""
    if fact == _DOMAIN:
        return []
    if fact not in _OF_A_DOMAIN:
        return [reports]
    domains: dict[str, list[HostReport]] = {}
    for report in reports:
        domains.setdefault(report.facts.get(_DOMAIN, ""), []).append(report)
    return [group for domain, group in domains.items() if domain and any(fact in report.facts for report in group)]


def _outliers(reports: Sequence[HostReport]) -> list[Finding]:
    """Name the host that is far worse than the middle of the others; with fewer than three nobody is."""
    found = []
    for name, (floor, factor, worse, form, meaning, fix) in _MEASURES.items():
        figures = {report.host: report.measures[name] for report in reports if name in report.measures}
        if len(figures) < 3:
            continue
        host = max(figures, key=lambda one: figures[one] * worse)
        middle = median(value for one, value in figures.items() if one != host)
        worst = figures[host]
        far = worst >= floor and worst > factor * middle if worse > 0 else worst < middle / factor
        if far:
            found.append(
                Finding(f"cluster.{name.replace(' ', '_')}", Severity.CRITICAL, host, f"{name} {worst:{form}}",
                        f"about {middle:{form}}, the middle of the others", (f"measures: {name}",), meaning, fix,
                        action=Action.INSPECT, confidence=0.8)
            )  # fmt: skip
    return found


def _row(fact: str, reports: Sequence[HostReport]) -> FactRow:
    values = {report.host: report.facts[fact] for report in reports if fact in report.facts}
    missing = tuple(report.host for report in reports if fact not in report.facts)
    counts = Counter(values.values())
    value, count = counts.most_common(1)[0]
    # A variable that only a minority sets is odd where it is set; "" stands for not set.
    if fact.startswith("env ") and len(missing) * 2 > len(reports):
        value, count = "", len(missing)
        values = {**values, **dict.fromkeys(missing, "")}
        missing = ()
    return FactRow(fact, values, value if count * 2 > len(values) else None, missing)


def _findings(row: FactRow) -> Iterator[Finding]:
    rule = f"cluster.{row.fact.replace(' ', '_').lower()}"
    severity = Severity.CRITICAL if row.fact in _BREAKING else Severity.WARNING
    fix = _FIX.get(row.fact, "Make the odd host like the others, or find out why it differs.")
    if row.majority is None:
        counts = Counter(row.values.values()).most_common()
        shown = "; ".join(f"{value or 'not set'} on {_hosts(row, value)}" for value, _ in counts[:4])
        more = f"; {len(counts) - 4} other values" if len(counts) > 4 else ""
        yield Finding(
            rule, severity, ", ".join(row.values), f"{row.fact}: {shown}{more}", "one value on all hosts", (),
            "Hosts differ and none has the majority: which one is odd is not known.", fix, action=Action.CONFIGURE,
            confidence=0.5,
        )  # fmt: skip
    for host, value in row.odd.items():
        alike = sum(other == row.majority for other in row.values.values())
        yield Finding(
            rule, severity, host, f"{row.fact} {value or 'not set'}",
            f"{row.majority or 'not set'}, as on {alike} of {len(row.values)} hosts", (f"facts: {row.fact}",),
            "The odd host out: jobs that span it and others may hang, fail, or run at its pace.", fix,
            action=Action.CONFIGURE, confidence=alike / len(row.values),
        )  # fmt: skip
    if row.missing and row.values:
        yield Finding(
            rule, Severity.UNKNOWN, ", ".join(row.missing), f"{row.fact} is missing from the report",
            f"reported by {len(row.values)} others", (), "These hosts could not read it, or do not have it.",
            "Run the audit there with the same rights and tools.",
        )  # fmt: skip


def _hosts(row: FactRow, value: str) -> str:
    hosts = [host for host, own in row.values.items() if own == value]
    return few(hosts, 3)
