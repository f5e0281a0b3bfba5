"""From tallies to findings: which rules hold, given what the others have seen, and what the environment says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from syncline.finding import Finding, Place, Severity
from syncline.logs.causes import RankedFinding
from syncline.logs.checks.book import CHECKS
from syncline.logs.checks.steps import SLOWER
from syncline.logs.emitter import at_home
from syncline.logs.rule import SYMPTOMS, LogRule
from syncline.logs.scan import REST
from syncline.logs.tally import MAX_EVIDENCE, Evidence, Tallies, Tally, rows_of
from syncline.logs.topic import SURE, place_in, rule_of
from syncline.logs.unexplained import FAILURES, failing_rows, num_open, unexplained
from syncline.logs.verdict import MAX_NAMES, CheckVerdict, in_order, some

MAX_WORDS = 110
_MESSAGE = re.compile(r"(?:\b[A-Za-z_][\w.]*(?:Error|Exception)|\b(?:[Ff]atal|[Ee]rror|ERROR|FATAL)): .*$")
POSSIBLE = 0.3
"""What a match is worth that does not say what is the matter; see `Finding.is_possible`."""
EFFECTS = frozenset({"nccl.abort", "torch.process.failed"})
"""What is never a cause: where nothing else was found, the cause is not in the log."""
SMALL = 8
"""A job of so many ranks fits one host."""

# Trouble of hosts and networks, any of which makes every step longer while it lasts.
_SLOWS = ("kernel.", "rdma.", "roce.", "ib.", "nic.", "switch.", "storage.", "nvlink.", "dcgm.", "amdgpu.", "host.")


def judge(tallies: Tallies, others: Sequence[RankedFinding] = ()) -> list[RankedFinding]:
    """Return what holds, each with the line it was first seen on; `others` were found by other means."""
    verdicts = {name: _verdicts(tally, tallies) for name, tally in tallies.items()}
    holds: dict[str, bool] = {}
    for name in tallies:
        _holds(name, tallies, verdicts, holds, ())
    symptoms = frozenset(tally.rule.id for tally in tallies.values() if tally.rule.symptom)
    found: dict[bool, list[RankedFinding]] = {False: list(others), True: []}
    for name, tally in tallies.items():
        if not tally.rule.signal and holds[name]:
            found[tally.rule.fallback] += [_found(tally.rule, verdict, symptoms) for verdict in verdicts[name]]
    all_found = found[False]
    if not _has_cause(all_found, symptoms) and not _outnumbered(found[True], tallies):
        all_found = all_found + found[True]
    _open_others(all_found, tallies, holds)
    has_cause = _has_cause(all_found, symptoms)
    all_found = _by_topic(all_found, tallies, symptoms, causes_only=has_cause)
    if has_cause:
        return all_found
    sure = [one.finding.rule for one in all_found if not one.finding.is_possible]
    cause = not symptoms.issuperset(sure)
    effects = [tallies[name] for name in dict.fromkeys(sure)] if EFFECTS.issuperset(sure) else []
    return all_found + unexplained(tallies, has_symptom=bool(sure) and not cause, has_cause=cause, effects=effects)


def _open_others(found: Sequence[RankedFinding], tallies: Tallies, holds: Mapping[str, bool]) -> None:
    """Open the lines again that only rules took of which nothing is said, as their conditions are not met.

    A rule that another one excludes, that concerns several hosts where there is one, or whose trouble is over has
    explained its lines all the same.
    """
    explained = {one.finding.rule for one in found}
    concerned = _concerns_hosts(tallies)
    for name, tally in tallies.items():
        rule = tally.rule
        if tally.count and (
            (rule.multi_host and not concerned)
            or (rule.setup and tally.is_over())
            or any(holds.get(other) for other in rule.excludes)
        ):
            explained.add(name)
    for tally in tallies.values():
        tally.explained = frozenset(explained)


def _by_topic(
    found: list[RankedFinding], tallies: Tallies, symptoms: frozenset[str], *, causes_only: bool
) -> list[RankedFinding]:
    """Return the findings with those of rules that topics of open lines name, instead of fallbacks that took these.

    With `causes_only`, where a cause is known, a topic counts whose rule leads to one of the first causes.
    """
    firsts = {one.finding.rule for one in found}.difference(*(one.explains for one in found))
    lines: dict[str, list[Evidence]] = {}
    for row, level in failing_rows(tallies):
        rule = rule_of(row.evidence.text, grave=level in FAILURES)
        if rule in tallies and not (causes_only and firsts.isdisjoint(tallies[rule].rule.explains)):
            lines.setdefault(rule, []).append(row.evidence)
            row.takers |= {rule}
    vague = []
    for one in () if causes_only else found:
        tally = tallies.get(one.finding.rule)
        if tally is None or not one.finding.is_possible:
            continue
        for line in tally.evidence:
            if (rule := rule_of(line.text)) in tallies and rule != one.finding.rule:
                lines.setdefault(rule, []).append(line)
                vague.append(one)
    if not lines:
        return found
    sure = {one.finding.rule for one in found if one not in vague}
    named = [_named(tallies[name].rule, seen, symptoms) for name, seen in lines.items() if name not in sure]
    for tally in tallies.values():
        tally.explained = (tally.explained or frozenset()) | set(lines)
    return [one for one in found if one not in vague] + named


def _named(rule: LogRule, lines: list[Evidence], symptoms: frozenset[str]) -> RankedFinding:
    """Return the finding of a rule that lines' topics name."""
    places = {str(place): place for line in lines if str(place := _place(rule, line))}
    count = f" ({len(lines):,} lines)" if len(lines) > 1 else ""
    verdict = CheckVerdict(
        rule.title + count, some(places), tuple(lines[:MAX_EVIDENCE]), min(SURE, rule.confidence),
        tuple(places[name] for name in in_order(places)[:MAX_NAMES]),
    )  # fmt: skip
    return _found(rule, verdict, symptoms)


def _place(rule: LogRule, line: Evidence) -> Place:
    return Place(line.context.host, place_in(line.text, rule.place) or line.context.who)


def _places(verdict: CheckVerdict) -> tuple[Place, ...]:
    """Return the places that a check names in words: hosts that its lines come from or that it lists, and ranks."""
    hosts = {line.context.host for line in verdict.evidence} - {""}
    found = []
    for name in verdict.place.split(", ")[:MAX_NAMES] if not verdict.place.startswith("rank ") else [verdict.place]:
        host = next((one for one in hosts if name == one or name.startswith(f"{one} ")), "")
        is_part = host or name.startswith("rank ")
        found.append(Place(host, name.removeprefix(host).strip()) if is_part else Place(name))
    return tuple(place for place in found if str(place))


def _has_cause(found: list[RankedFinding], symptoms: frozenset[str]) -> bool:
    """Say whether a cause is among them that stands for what went wrong."""
    causes = (one for one in found if one.finding.rule not in symptoms and not one.finding.is_possible)
    return any(one.finding.severity is Severity.CRITICAL or one.explains >= symptoms for one in causes)


def _outnumbered(fallbacks: list[RankedFinding], tallies: Tallies) -> bool:
    """Say whether fallbacks speak for fewer lines than look like errors besides, so that they name a part only."""
    held = sum(tallies[name].count for name in {one.finding.rule for one in fallbacks})
    return held < num_open(tallies)


def _verdicts(tally: Tally, tallies: Tallies) -> list[CheckVerdict]:
    if tally.rule.check:
        return CHECKS[tally.rule.check](tallies)
    if not tally.holds():
        return []
    names, sure = in_order(name for name in (tally.bursts or tally.places) if name), POSSIBLE if tally.is_weak else None
    hosts = {line.context.host for line in tally.bursts.values()}
    lines = [line for line in tally.evidence if not tally.bursts or line.context.host in hosts]
    lines += [line for line in tally.bursts.values() if line not in lines][: max(0, MAX_EVIDENCE - len(lines))]
    places = tuple(tally.parts[name] for name in names[:MAX_NAMES] if name in tally.parts)
    return [CheckVerdict(_observed(tally), some(names), tuple(lines), sure, places)]


def _holds(
    name: str,
    tallies: Tallies,
    verdicts: Mapping[str, list[CheckVerdict]],
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

    met = bool(verdicts[name]) and (not rule.multi_host or _concerns_hosts(tallies))
    met = met and all(other(id_) for id_ in rule.requires)
    met = met and (not rule.requires_any or any(other(id_) for id_ in rule.requires_any))
    met = met and not any(other(id_) for id_ in rule.excludes)
    met = met and all(other(id_) and _precedes(tallies[id_], tallies[name]) for id_ in rule.before)
    holds[name] = met
    return met


def _concerns_hosts(tallies: Tallies) -> bool:
    """Say whether hints about the network between hosts matter: hosts are seen, or something failed and may be there.

    What a job of one host finds or misses between hosts is of no concern to it.
    """
    return many_hosts(tallies) or (_has_trouble(tallies) and not one_host(tallies))


def _has_trouble(tallies: Tallies) -> bool:
    """Say whether a line tells of something that went wrong, known or not."""
    seen = (tally.rule for tally in tallies.values() if tally.count and not tally.rule.signal and tally.holds())
    return num_open(tallies) > 0 or any(rule.symptom or rule.severity is Severity.CRITICAL for rule in seen)


def many_hosts(tallies: Tallies) -> bool:
    """Say whether the logs show a job on several hosts."""
    if any(int(row.get("nodes")) > 1 for row in rows_of(tallies, "signal.nodes")):
        return True
    ranks = max((int(row.get("nranks")) for row in rows_of(tallies, "signal.init")), default=0)
    hosts = {e.context.host for tally in tallies.values() for e in tally.evidence}
    hosts |= {row.get("name") for row in rows_of(tallies, "signal.bench")}
    return len(hosts - {""}) > 1 or ranks > SMALL or bool(rows_of(tallies, "signal.channel"))


def one_host(tallies: Tallies) -> bool:
    """Say whether the logs show a job on one host.

    NCCL says so, nccl-tests list it alone, all its ranks started there, or it is small and no second host is seen.
    """
    nodes = {row.get("nodes") for row in rows_of(tallies, "signal.nodes")}
    if nodes:
        return nodes == {"1"}
    listed = {row.get("name") for row in rows_of(tallies, "signal.bench")} - {""}
    if listed:  # nccl-tests list every rank in front
        return len(listed) == 1
    rows = rows_of(tallies, "signal.init")
    total = max((int(row.get("nranks")) for row in rows), default=0)
    hosts = {e.context.host for tally in tallies.values() for e in tally.evidence} - {""}
    seen = {row.get("rank") for row in rows if int(row.get("nranks")) == total}
    if not total or len(hosts | {row.host for row in rows}) > 1:
        return False
    return len(seen) == total or (total <= SMALL and not rows_of(tallies, "signal.channel"))


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
    if tally.rule.fallback and tally.evidence and (words := _words(tally.evidence[0].text)):
        return f"{tally.rule.title}: {words}"
    if tally.rule.distinct:
        values = tally.values.get(tally.rule.distinct.group, {})
        parts.append(f"({some(values)})")
    elif tally.bursts:
        parts.append(f"({sum(tally.places.get(name, 0) for name in tally.bursts):,} lines)")
    elif tally.count > 1:
        places = sum(1 for name in tally.places if name)
        count = f"{tally.count:,}" if tally.count < REST else f"more than {REST:,}"  # a flood is not counted to its end
        parts.append(f"({count} lines" + (f", {places} places)" if places > 1 else ")"))
    return " ".join(parts)


def _words(line: str) -> str:
    """Return what a line itself says, without time, host and logger in front: a fallback has nothing better to tell."""
    match = _MESSAGE.search(line)
    words = (match[0] if match else line).strip()
    return words if len(words) <= MAX_WORDS else words[: MAX_WORDS - 4] + " ..."


def _found(rule: LogRule, verdict: CheckVerdict, symptoms: frozenset[str]) -> RankedFinding:
    times = [e.context.unix_s for e in verdict.evidence if e.context.unix_s is not None]
    first = _first(verdict.evidence)
    confidence = verdict.confidence if verdict.confidence is not None else rule.confidence
    if first is not None and rule.ships and not rule.check and not at_home(rule.id, first.text):
        confidence = min(confidence, POSSIBLE)
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
        confidence=confidence,
        since_s=min(times) if times else None,
        places=verdict.places or _places(verdict),
    )
    if finding.is_possible and finding.severity is Severity.CRITICAL:
        finding = replace(finding, severity=Severity.WARNING)
    explains = frozenset(rule.explains) - {SYMPTOMS}
    explains |= symptoms - {rule.id} if SYMPTOMS in rule.explains else frozenset()
    explains |= {SLOWER} if rule.severity is Severity.CRITICAL and rule.id.startswith(_SLOWS) else frozenset()
    return RankedFinding(finding, first, explains)


def _first(evidence: tuple[Evidence, ...]) -> Evidence | None:
    timed = [line for line in evidence if line.context.time_s is not None]
    return min(timed, key=lambda line: line.when, default=evidence[0] if evidence else None)
