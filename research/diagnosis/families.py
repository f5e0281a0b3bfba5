"""Which messages of a component are known, by families read from its source.

    python -m research diagnosis.families

Each line stands alone in a log. `named` where a rule of its family answers, `other` where another rule does that is
no fallback, `fallback` where only fallbacks or the list of lines that look like errors do, `silent` where nothing does.
The lines come from sources, not from threads, and rules were written with them at hand: it counts breadth and is
not blind.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from syncline.diagnosis import diagnose, shipped_rules
from syncline.finding import Severity

FILE = Path(__file__).resolve().parents[2] / "tests" / "logs" / "families.yaml"


def answer(line: str, named: set[str], folder: Path) -> tuple[str, set[str]]:
    """Say how one line is answered, and by which rules."""
    book = shipped_rules()
    path = folder / "line.log"
    path.write_text(line + "\n", "utf-8")
    found = {f.rule for f in diagnose([path], rules=book).findings if f.severity is not Severity.OK}
    strong = {rule for rule in found if rule != "log.unexplained" and not book[rule].fallback}
    if found & named:
        return "named", found
    if strong:
        return "other", found
    return ("fallback" if found else "silent"), found


def run() -> dict[str, Any]:
    """Return the shares of every family and of all."""
    total: Counter[str] = Counter()
    rows = {}
    for family in yaml.safe_load(FILE.read_text("utf-8")):
        counts: Counter[str] = Counter()
        open_lines = []
        with TemporaryDirectory() as folder:
            for line in family["lines"]:
                how, rules = answer(line, set(family["rules"]), Path(folder))
                counts[how] += 1
                if how != "named":
                    open_lines.append(f"{how} ({', '.join(sorted(rules))}): {line[:120]}")
        total += counts
        rows[family["family"]] = {"messages": len(family["lines"]), **counts, "not_named": open_lines}
    messages = sum(total.values())
    return {
        "messages": messages,
        **{f"{key}_percent": round(100 * total[key] / messages, 1) for key in ("named", "other", "fallback", "silent")},
        "families": rows,
    }
