"""A claim and its verdict for people: what is stated, and what each case gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SIGNS = {True: "as stated", False: "not as stated", None: "not measured here"}


def claim_lines(verdict: Mapping[str, Any]) -> list[str]:
    """Return a claim with its cases for people."""
    lines = [f"{verdict['id']}  {verdict['verdict']}: {verdict['claim']} (stated: {verdict['stated']})"]
    for case in verdict["cases"]:
        when = f"{case['when']}: " if case["when"] else ""
        value = "-" if case["value"] is None else f"{case['value']:,.4g} {case['unit']}".rstrip()
        kept = " (kept, not run)" if case["kept"] and case["value"] is not None else ""
        why = f" ({case['why']})" if case.get("why") else ""
        lines.append(f"       {when}{value}, {_SIGNS[case['inside']]}{kept}{why}")
    lines.append(f"       would change: {verdict['would_change']}")
    return lines + ([f"       {verdict['note']}"] if verdict["note"] else [])
