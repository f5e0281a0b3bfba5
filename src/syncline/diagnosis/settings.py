"""The variables that logs say were set for NCCL, linted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from syncline.finding import Action, Finding
from syncline.logs.causes import RankedFinding
from syncline.logs.tally import Tallies, rows_of

if TYPE_CHECKING:
    from syncline.fabric import Fabric

# What a setting leads to. The lint's own rules are in `environment_rules.py`.
_ENV_EXPLAINS = {
    "nccl.env.rdma-off": ("net.rdma.missing", "net.efa.missing", "net.mixed"),
    "nccl.env.rdma-off-unknown": ("net.rdma.missing", "net.efa.missing", "net.mixed"),
    "nccl.env.gid-index": ("rdma.gid.invalid", "rdma.peer.unreachable", "rdma.route.missing"),
    "nccl.env.gdr-off": ("gdr.unused",),
    "nccl.env.wrong-interface": ("net.interface.wrong", "net.bootstrap.refused"),
    "nccl.env.mismatch-ignored": ("torch.watchdog.timeout",),
}


def settings(tallies: Tallies, cluster: Fabric | None) -> list[RankedFinding]:
    """Lint the variables that the logs say were set, all hosts together; a value that differs is shown once each."""
    rows = rows_of(tallies, "signal.env")
    if not rows:
        return []
    from syncline.auditing.environment import JobSite, lint  # it knows NCCL's model: a second that few logs need

    env = {row.get("name"): row.get("value").rstrip(".") for row in reversed(rows)}
    lines = {row.get("name"): row.evidence for row in reversed(rows)}
    site = JobSite.of(cluster) if cluster is not None else JobSite()
    found = []
    for finding in lint(env, site, nccl=_release(tallies)):
        shown = [lines[name] for name in re.findall(r"\b([A-Z][A-Z0-9_]+)=", finding.observed) if name in lines]
        if not shown:  # about a variable that is missing, which a log cannot show
            continue
        detailed = Finding(
            finding.rule, finding.severity, shown[0].context.host or "environment", finding.observed, finding.expected,
            tuple(str(e) for e in shown), finding.meaning, finding.fix, finding.reference, Action.CONFIGURE,
            finding.confidence,
        )  # fmt: skip
        found.append(RankedFinding(detailed, shown[0], frozenset(_ENV_EXPLAINS.get(finding.rule, ()))))
    return found


def _release(tallies: Tallies) -> tuple[int, int] | None:
    versions = [row.get("version").split(".") for row in rows_of(tallies, "signal.version")]
    return (int(versions[0][0]), int(versions[0][1])) if versions else None
