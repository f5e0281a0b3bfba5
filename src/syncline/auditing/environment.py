"""What is wrong with the variables a job sets for NCCL and its plugins: stale, contradictory, mistyped or missing.

    lint({"NCCL_IB_DISABLE": "1"}, load("h100-64-rail"))      # one critical finding
    lint(dict(os.environ))                                    # what holds for any cluster

Pure: it reads no variable of its own. Without a cluster or a release, rules that depend on them are less confident, or
silent.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files

from syncline.auditing.environment_rules import DOCS, RULES, EnvironmentCase, JobSite, VariableRule
from syncline.fabric import Fabric
from syncline.finding import Action, Finding, Severity

__all__ = ["JobSite", "known_variables", "lint", "rule_ids"]


def lint(
    env: Mapping[str, str], cluster: Fabric | JobSite | None = None, *, nccl: tuple[int, int] | None = None
) -> list[Finding]:
    """Return what is wrong with these variables, worst first; `cluster` and the NCCL release sharpen the answer."""
    site = cluster if isinstance(cluster, JobSite) else JobSite.of(cluster) if cluster is not None else JobSite()
    case = EnvironmentCase(env, replace(site, nccl=nccl) if nccl else site)
    found = [finding for rule in RULES if (finding := _apply(rule, case)) is not None]
    return sorted([*found, *_mistyped(case)], key=lambda finding: -finding.severity)


def rule_ids() -> tuple[str, ...]:
    """Return the id of every rule."""
    return (*(rule.id for rule in RULES), _MISTYPED)


def _apply(rule: VariableRule, case: EnvironmentCase) -> Finding | None:
    seen = rule.when(case)
    if not seen:
        return None
    return Finding(
        rule.id, rule.severity, "environment", seen, rule.expected, (seen,), rule.meaning, rule.fix, rule.reference,
        Action.CONFIGURE, rule.confidence,
    )  # fmt: skip


_MISTYPED = "nccl.env.mistyped"


@cache
def known_variables() -> frozenset[str]:
    """Return the variables that NCCL reads."""
    text = (files("syncline.auditing") / "nccl_variables.txt").read_text(encoding="utf-8")
    return frozenset(word for line in text.splitlines() if not line.startswith("#") for word in line.split())


def _mistyped(case: EnvironmentCase) -> list[Finding]:
    found = []
    for name in sorted(case.env):
        if not name.startswith("NCCL_") or name in known_variables():
            continue
        near = difflib.get_close_matches(name, known_variables(), n=1, cutoff=0.93)
        if near:
            seen = f"{name}={case.get(name)}"
            meaning = f"NCCL has no variable {name} and ignores it silently; {near[0]} is the nearest it has."
            found.append(
                Finding(_MISTYPED, Severity.WARNING, "environment", seen, near[0], (seen,), meaning,
                        f"Rename it to {near[0]}, or remove it.", DOCS, Action.CONFIGURE, 0.8)
            )  # fmt: skip
    return found
