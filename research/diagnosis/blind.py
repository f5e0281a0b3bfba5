"""How well logs are told that nobody had seen when the rules were written.

    python -m research diagnosis.blind

Each set was collected before the rules of that day were changed, with the cause that its thread found, and scored once
before the change; the kept results of those days are the blind figures, and later ones of the same set are not blind.

A log is `named` where a finding is of its kind, `related` where a finding is a symptom of it or a wider word for it, or
of its kind and only said to be possible, `wrong` where something else is said to be the matter, `open` where lines
are shown without a cause or with one that may be, and `silent` where nothing is. It is `shown` where it is named or the
line that matters is among the first three given, and `ok` where the answer is that nothing is wrong. A healthy log is
`silent` where nothing is found and no line is said to speak of a failure. Calibration is counted over first causes:
how often what was said with which confidence was right.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from syncline.diagnosis import Diagnosis, diagnose, shipped_rules
from syncline.finding import Severity
from syncline.logs.unexplained import FAILURES

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "logs" / "blind"
UNEXPLAINED = "log.unexplained"
SYMPTOMS = {rule.id for rule in shipped_rules().values() if rule.symptom}
FIRST = 3


def first_lines(found: Diagnosis) -> list[str]:
    """Return the lines that a reader is given first: those of findings, then those that no rule explains."""
    lines = [line.partition(": ")[2] for one in found.findings for line in one.evidence]
    lines += [line.text for line in found.unexplained]
    return list(dict.fromkeys(line.strip() for line in lines))[:FIRST]


def healthy_verdict(found: Diagnosis) -> str:
    """Say what became of a log of a host or job that works."""
    if any(finding.severity is not Severity.OK for finding in found.findings):
        return "false alarm"
    return "questioned" if any(line.level in FAILURES for line in found.unexplained) else "silent"


def verdict(kind: str, found: Diagnosis, kinds: dict[str, dict[str, list[str]]]) -> str:
    """Say what became of a log of this kind."""
    findings = [finding for finding in found.findings if finding.severity is not Severity.OK]
    rules = {finding.rule for finding in findings}
    said = {finding.rule for finding in findings if not finding.is_possible}
    if kind == "healthy":
        return healthy_verdict(found)
    if said & set(kinds[kind]["named"]):
        return "named"
    if rules & {*kinds[kind]["named"], *kinds[kind]["related"]}:
        return "related"
    if UNEXPLAINED in said:  # beside it symptoms are told as consequences
        said -= {UNEXPLAINED} | SYMPTOMS
    if said:
        return "wrong"
    return "open" if rules or found.unexplained else "silent"


def score(name: str) -> dict[str, Any]:
    """Count what is said of one set."""
    logs = yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8"))
    kinds = yaml.safe_load((FOLDER / "kinds.yaml").read_text("utf-8"))
    book = shipped_rules()
    counts: dict[str, Counter[str]] = {"faults": Counter(), "healthy": Counter()}
    bins: dict[str, list[bool]] = defaultdict(list)
    misses = []
    shown = ok = 0
    for log in logs:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "excerpt.log"
            path.write_text(log["log"], "utf-8")
            found = diagnose([path], rules=book)
        own = {log["source"]: {"named": log["named"], "related": []}} if "named" in log else {}
        kind = log.get("kind", log["source"])
        told = verdict(kind, found, {**kinds, **own})
        shown += told == "named" or any(log.get("line", "\0") in line for line in first_lines(found))
        ok += told == "silent" and found.understood and kind != "healthy"
        counts["healthy" if kind == "healthy" else "faults"][told] += 1
        if told not in ("named", "silent") or (told == "silent" and kind != "healthy"):
            misses.append(f"{told}: {kind} {log['source']} ({', '.join(f.rule for f in found.findings)})")
        for cause in found.causes[:1]:
            if cause.rule != UNEXPLAINED and cause.severity is not Severity.OK:
                right = kind != "healthy" and cause.rule in {**kinds, **own}[kind]["named"]
                bins[f"{cause.confidence or 0.9:.1f}"].append(right)
    total = sum(counts["faults"].values())
    return {
        "faults": total,
        **{
            f"{key}_percent": 100 * counts["faults"][key] / total
            for key in ("named", "related", "wrong", "open", "silent")
        },
        "named_or_shown": shown,
        "ok": ok,
        "healthy": sum(counts["healthy"].values()),
        "healthy_silent": counts["healthy"]["silent"],
        "said_with_confidence": {key: {"said": len(hits), "right": sum(hits)} for key, hits in sorted(bins.items())},
        "not_named": misses,
    }


def run() -> dict[str, Any]:
    """Return the figures of every set."""
    return {path.stem: score(path.stem) for path in sorted(FOLDER.glob("*.yaml")) if path.stem != "kinds"}
