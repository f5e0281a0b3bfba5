"""What the log engine shows where no rule knows the line: all rules but the signals are switched off.

    python -m research diagnosis.mechanism

A faulty log is `shown` where the line that matters is among the first three that a reader is given, `asked` where
another line is, and `passed` where the answer is that nothing is wrong. Sets without a marked line count `asked` for
any line. A healthy log is judged as in `blind`, and is `not_understood` where only its form is unknown.
Rules were written with these logs at hand, and so were the words of failure: only a new set's first score is blind.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from research.diagnosis.blind import FOLDER, first_lines, healthy_verdict

from syncline.diagnosis import Diagnosis, diagnose, shipped_rules


def verdict(log: dict[str, Any], found: Diagnosis) -> str:
    """Say what became of one log."""
    lines = first_lines(found)
    if log.get("kind") == "healthy":
        said = healthy_verdict(found)
        return said if said != "silent" or found.understood else "not_understood"
    if "line" in log and any(log["line"] in line for line in lines):
        return "shown"
    return "asked" if lines else "not_understood" if not found.understood else "passed"


def score(name: str) -> dict[str, Any]:
    """Count what the mechanism alone says of one set."""
    book = {rule.id: rule for rule in shipped_rules().values() if rule.signal}
    counts: dict[str, Counter[str]] = {"faults": Counter(), "healthy": Counter()}
    misses = []
    for log in yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8")):
        with TemporaryDirectory() as folder:
            path = Path(folder) / "excerpt.log"
            path.write_text(log["log"], "utf-8")
            found = diagnose([path], rules=book)
        said = verdict(log, found)
        counts["healthy" if log.get("kind") == "healthy" else "faults"][said] += 1
        if said not in ("shown", "silent") and ("line" in log or said != "asked"):
            misses.append(f"{said}: {log['source']} {log.get('line', log.get('truth', ''))}")
    return {**{key: dict(counted) for key, counted in counts.items()}, "missed": misses}


def run() -> dict[str, Any]:
    """Return the counts of every set."""
    return {path.stem: score(path.stem) for path in sorted(FOLDER.glob("*.yaml")) if path.stem != "kinds"}
