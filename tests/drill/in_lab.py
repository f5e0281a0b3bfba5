"""A fault of the library in a running lab: made to happen, looked at with the tools users have, and named or not.

    with Lab(load("cluster.yaml"), scale=0.2) as lab:
        found = drill(lab, Path("cluster.yaml"), known_faults()["slow-link"])
        found.named                # findings of the right rules that name the right place; none where it was missed
        found.others               # findings that name other places: false alarms

Four ways to look (`KnownFault.lab.by`): the audit with packets between hosts after some traffic, processes that keep a
core busy, a job whose logs are diagnosed, and (from outside, `bench`) a tournament.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.drill.known_fault import KnownFault

from syncline.auditing.matrix import compare
from syncline.auditing.report import HostReport, report_of
from syncline.diagnosis import diagnose
from syncline.errors import LabError
from syncline.fabric import Fabric, load
from syncline.fault.fault import Fault
from syncline.finding import Finding, Severity
from syncline.lab import Lab, RankResult

SCRIPTS = Path(__file__).parent / "scripts"
"""What runs in the lab; programs of their own, so that they start fast and the job alone needs torch."""
SPIN_S = 3.0
SPIN = f"import json; from syncline.auditing.measure import spin; print(json.dumps(spin({SPIN_S})))"
JOB_RANKS = 3
START_S = 120.0
STOP_S = 15.0
# What the network is about; limits, clocks and the like are the machine's own, on which the lab runs.
SUBJECTS = ("net.", "env.", "nccl.", "cluster.", "gloo.", "torch.", "bench.")
# The share of a core varies with whatever else the machine does; the time held back does not.
UNSTEADY = ("cluster.cpu_share",)
Look = Callable[[Lab, Path, KnownFault, str], list[Finding]]


@dataclass(frozen=True)
class DrillResult:
    """What was said of one fault: findings that name it, and those that name another place for no known reason."""

    fault: KnownFault
    place: str
    named: tuple[Finding, ...]
    others: tuple[Finding, ...]
    seconds: float


def drill(lab: Lab, cluster: Path, fault: KnownFault, *, host: int = 1, look: Look | None = None) -> DrillResult:
    """Let a fault happen at a host, look, mend it, and sort what was found."""
    if fault.lab is None:
        raise LabError(f"{fault.id} cannot be made to happen in a lab.", hint="Plant it in a tree or in logs.")
    began_s = time.monotonic()
    fabric = load(cluster)
    name = lab.host_names[host]
    place = fault.place(fabric, host)
    looks = look or LOOKS[fault.lab.by]
    if fault.lab.by == "job":
        found = looks(lab, cluster, fault, name)
    else:
        with injected(lab, fabric, fault, host):
            found = looks(lab, cluster, fault, name)
    here = [f for f in found if any(part in f.place for part in place)]
    named = [f for f in here if f.rule in fault.lab.finds]
    others = [f for f in found if f not in here and f.rule not in fault.lab.also]
    return DrillResult(fault, " or ".join(place), tuple(named), tuple(others), time.monotonic() - began_s)


@contextmanager
def injected(lab: Lab, fabric: Fabric, fault: KnownFault, host: int) -> Iterator[None]:
    """Make a fault happen for as long as the block lasts; a passing one has passed when the block begins."""
    assert fault.lab is not None
    name = lab.host_names[host]
    faults = fault.in_lab(fabric, host)
    numbers = [lab.fault(one) for one in faults]
    _settle(lab, faults)
    if fault.lab.does:
        _shell(lab, name, fault.worded(fault.lab.does, fabric, host, lab.address))
    try:
        yield
    finally:
        if fault.lab.undoes:
            _shell(lab, name, fault.worded(fault.lab.undoes, fabric, host, lab.address))
        for number in numbers:
            lab.mend(number)


def audited(lab: Lab, cluster: Path, sets: Mapping[str, Mapping[str, str]] | None = None) -> list[Finding]:
    """Let every host send to every other, audit all of them with packets between them, and compare."""
    addresses = [lab.address(host) for host in lab.host_names]
    _run(lab, [str(SCRIPTS / "everyone_sends.py"), *addresses])
    with TemporaryDirectory() as folder:
        command = ["-m", "syncline", "audit", "--cluster", str(cluster), "--peers", str(len(addresses)),
                   "--write", folder, "--exit", "none", "--json"]  # fmt: skip
        reports = [report_of(json.loads(text)["hosts"][0], host) for host, text in _run(lab, command, sets)]
    return _of_the_network([*(f for report in reports for f in report.findings), *compare(reports).findings])


def spun(lab: Lab) -> list[Finding]:
    """Keep a core busy on every host at once and compare what each got."""
    rows = _run(lab, ["-c", SPIN])
    return _of_the_network(
        compare([HostReport(host, "lab", measures=json.loads(text)) for host, text in rows]).findings
    )


def worked(lab: Lab, fabric: Fabric, fault: KnownFault, host: int) -> list[Finding]:
    """Run a job, let the fault happen while it works, and diagnose what its ranks said."""
    assert fault.lab is not None
    name = lab.host_names[host]
    stray = [name] if fault.lab.strays else []
    job = lab.start(
        [sys.executable, "-P", str(SCRIPTS / "averaging_job.py"), *stray],
        ranks_per_host=1, num_ranks=JOB_RANKS, env=dict(fault.lab.sets),
    )  # fmt: skip
    try:
        _until(lambda: all(p.exit_code is not None or "started" in p.stdout for p in job.processes), START_S)
        numbers = [lab.fault(replace(one, start_s=0.0)) for one in fault.in_lab(fabric, host)]
        _until(lambda: all(p.exit_code is not None for p in job.processes if p.host != name), STOP_S)
        for number in numbers:
            lab.mend(number)
    finally:
        job.end()
    with TemporaryDirectory() as folder:
        for process in job.processes:
            (Path(folder) / f"{process.host}.log").write_text(process.stdout + process.stderr, "utf-8")
        found = diagnose([folder]).findings
    by_address = {lab.address(each): each for each in lab.host_names}
    return _of_the_network([replace(f, place=_with_hosts(f.place, by_address)) for f in found])


LOOKS: dict[str, Look] = {
    "audit": lambda lab, cluster, fault, name: audited(lab, cluster, {name: fault.lab.sets} if fault.lab else None),
    "spin": lambda lab, cluster, fault, name: spun(lab),
    "job": lambda lab, cluster, fault, name: worked(lab, load(cluster), fault, lab.host_names.index(name)),
}


def _of_the_network(found: Sequence[Finding]) -> list[Finding]:
    return [
        finding
        for finding in found
        if finding.severity is not Severity.UNKNOWN
        and finding.rule.startswith(SUBJECTS)
        and finding.rule not in UNSTEADY
    ]


def _settle(lab: Lab, faults: Sequence[Fault]) -> None:
    """Wait until faults that last have begun, and those that pass have passed, unless it is the look they disturb."""
    passing = [fault.start_s + fault.duration_s for fault in faults if fault.duration_s and fault.kind == "down"]
    if passing:
        time.sleep(max(passing) + 0.2)


def _run(
    lab: Lab, arguments: Sequence[str], sets: Mapping[str, Mapping[str, str]] | None = None
) -> list[tuple[str, str]]:
    """Run Python on every host and return what each printed."""
    told = [dict((sets or {}).get(host, {})) for host in lab.host_names]
    done = lab.run(
        [sys.executable, *arguments], ranks_per_host=1, timeout_s=START_S, sysfs=True, env=lambda rank: told[rank]
    )
    if done.first_failure is not None:
        raise LabError(f"looking at the lab failed on {done.first_failure.host}: {_said(done.first_failure)}")
    return [(rank.host, rank.stdout) for rank in done.ranks]


def _said(failed: RankResult) -> str:
    """Return what a failed rank complained of: a command under --json puts its error on stdout."""
    try:
        error = json.loads(failed.stdout)
        return f"{error['message']} {error['hint']}"
    except (ValueError, KeyError, TypeError):
        return (failed.stderr.splitlines() or [f"exit status {failed.exit_code}"])[-1]


def _shell(lab: Lab, host: str, command: str) -> None:
    done = lab.execute(host, ["sh", "-c", command])
    if done.exit_code:
        raise LabError(f"`{command}` failed on {host}: {done.stderr.strip()}")


def _until(done: Callable[[], bool], limit_s: float) -> None:
    until_s = time.monotonic() + limit_s
    while not done() and time.monotonic() < until_s:
        time.sleep(0.05)


def _with_hosts(place: str, by_address: Mapping[str, str]) -> str:
    return next((place.replace(address, host) for address, host in by_address.items() if address in place), place)
