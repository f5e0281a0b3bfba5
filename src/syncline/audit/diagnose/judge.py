"""From tallies to findings: which rules hold, given what the others have seen, and what the environment says."""

from __future__ import annotations

import re
from collections.abc import Mapping

from syncline.audit.diagnose.causes import Found
from syncline.audit.diagnose.checks import CHECKS
from syncline.audit.diagnose.rule import Rule
from syncline.audit.diagnose.tally import Evidence, Tally
from syncline.audit.diagnose.verdict import Verdict, some
from syncline.audit.environment import Site, lint
from syncline.fabric import Fabric
from syncline.finding import Action, Finding

# What a setting leads to. The lint's own rules are in `environment_rules.py`.
_ENV_EXPLAINS = {
    "nccl.env.rdma-off": ("net.rdma.missing", "net.efa.missing", "net.mixed"),
    "nccl.env.rdma-off-unknown": ("net.rdma.missing", "net.efa.missing", "net.mixed"),
    "nccl.env.gid-index": ("rdma.gid.invalid", "rdma.peer.unreachable", "rdma.route.missing"),
    "nccl.env.gdr-off": ("gdr.unused",),
    "nccl.env.wrong-interface": ("net.interface.wrong", "net.bootstrap.refused"),
    "nccl.env.mismatch-ignored": ("torch.watchdog.timeout",),
}


def judge(tallies: Mapping[str, Tally], cluster: Fabric | None) -> list[Found]:
    """Return what holds, each with the line it was first seen on."""
    verdicts = {name: _verdicts(tally, tallies) for name, tally in tallies.items()}
    holds: dict[str, bool] = {}
    for name in tallies:
        _holds(name, tallies, verdicts, holds, ())
    found = []
    for name, tally in tallies.items():
        if not tally.rule.signal and holds[name]:
            found += [_found(tally.rule, verdict) for verdict in verdicts[name]]
    return found + _environment(tallies, cluster)


def _verdicts(tally: Tally, tallies: Mapping[str, Tally]) -> list[Verdict]:
    if tally.rule.check:
        return CHECKS[tally.rule.check](tallies)
    if not tally.holds():
        return []
    return [Verdict(_observed(tally), some(name for name in tally.places if name), tuple(tally.evidence))]


def _holds(
    name: str,
    tallies: Mapping[str, Tally],
    verdicts: Mapping[str, list[Verdict]],
    holds: dict[str, bool],
    above: tuple[str, ...],
) -> bool:
    """Say whether a rule holds, given what it requires and excludes; a ring of rules counts as not holding."""
    if name in holds:
        return holds[name]
    if name in above:
        return False
    rule = tallies[name].rule

    def other(id_: str) -> bool:
        return _holds(id_, tallies, verdicts, holds, (*above, name))

    met = bool(verdicts[name]) and not (rule.multi_host and one_host(tallies))
    met = met and all(other(id_) for id_ in rule.requires)
    met = met and (not rule.requires_any or any(other(id_) for id_ in rule.requires_any))
    met = met and not any(other(id_) for id_ in rule.excludes)
    met = met and all(other(id_) and _precedes(tallies[id_], tallies[name]) for id_ in rule.before)
    holds[name] = met
    return met


def one_host(tallies: Mapping[str, Tally]) -> bool:
    """Say whether the logs show a whole job on one host: as many ranks started there as the job has."""
    rows = list(tallies["signal.init"].rows.values()) if "signal.init" in tallies else []
    total = max((int(row.get("nranks")) for row in rows), default=0)
    hosts = {row.host for row in rows}
    seen = {row.get("rank") for row in rows if int(row.get("nranks")) == total}
    return total > 0 and len(hosts) == 1 and len(seen) == total


def _precedes(a: Tally, b: Tally) -> bool:
    if not a.evidence or not b.evidence:
        return False
    first, second = a.evidence[0], b.evidence[0]
    if first.order == second.order:
        return first.line < second.line
    times = first.context.time_s, second.context.time_s
    return times[0] is None or times[1] is None or times[0] <= times[1]


def _observed(tally: Tally) -> str:
    parts = [tally.rule.title]
    if tally.rule.distinct:
        values = tally.values.get(tally.rule.distinct.group, {})
        parts.append(f"({some(values)})")
    elif tally.count > 1:
        places = sum(1 for name in tally.places if name)
        parts.append(f"({tally.count:,} lines" + (f", {places} places)" if places > 1 else ")"))
    return " ".join(parts)


def _found(rule: Rule, verdict: Verdict) -> Found:
    times = [e.context.unix_s for e in verdict.evidence if e.context.unix_s is not None]
    finding = Finding(
        rule=rule.id,
        severity=rule.severity,
        place=verdict.place,
        observed=verdict.observed if rule.check == "" else f"{rule.title}: {verdict.observed}",
        evidence=tuple(str(e) for e in verdict.evidence),
        meaning=rule.meaning,
        fix=rule.fix,
        reference=rule.reference,
        action=rule.action,
        confidence=verdict.confidence if verdict.confidence is not None else rule.confidence,
        since_s=min(times) if times else None,
    )
    return Found(finding, _first(verdict.evidence), frozenset(rule.explains))


def _first(evidence: tuple[Evidence, ...]) -> Evidence | None:
    timed = [e for e in evidence if e.context.time_s is not None]
    return min(timed, key=lambda e: e.context.time_s or 0.0) if timed else evidence[0] if evidence else None


def _environment(tallies: Mapping[str, Tally], cluster: Fabric | None) -> list[Found]:
    """Lint the variables that the logs say were set, all hosts together; a value that differs is shown once each."""
    rows = list(tallies["signal.env"].rows.values()) if "signal.env" in tallies else []
    env = {row.get("name"): row.get("value").rstrip(".") for row in reversed(rows)}
    lines = {row.get("name"): row.evidence for row in reversed(rows)}
    site = Site.of(cluster) if cluster is not None else Site()
    found = []
    for finding in lint(env, site, nccl=_release(tallies)) if env else []:
        shown = [lines[name] for name in re.findall(r"\b([A-Z][A-Z0-9_]+)=", finding.observed) if name in lines]
        if not shown:  # about a variable that is missing, which a log cannot show
            continue
        detailed = Finding(
            finding.rule, finding.severity, shown[0].context.host or "environment", finding.observed, finding.expected,
            tuple(str(e) for e in shown), finding.meaning, finding.fix, finding.reference, Action.CONFIGURE,
            finding.confidence,
        )  # fmt: skip
        found.append(Found(detailed, shown[0], frozenset(_ENV_EXPLAINS.get(finding.rule, ()))))
    return found


def _release(tallies: Mapping[str, Tally]) -> tuple[int, int] | None:
    for row in tallies["signal.version"].rows.values() if "signal.version" in tallies else ():
        major, minor = row.get("version").split(".")[:2]
        return int(major), int(minor)
    return None
