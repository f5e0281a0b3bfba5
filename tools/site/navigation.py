"""Guides, Method and Decisions in the navigation: known pages in their order, new ones at the end of their group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

GUIDES = {
    "Describe": ("cluster-file", "job-file", "presets", "exchange"),
    "Plan": ("plan", "preview", "place", "share", "scenario", "serve"),
    "Choose and build a fabric": ("design", "build-a-fabric", "packet"),
    "Rehearse": ("lab", "rehearse", "calibrate"),
    "Run": ("ddp", "fsdp2", "huggingface", "lightning", "auto", "wire", "periodic", "faults", "executor"),
    "Check and watch": ("slow-now", "audit", "bench", "nccl", "diagnose", "watch"),
    "Trust": ("validate", "claims"),
}
METHOD = (
    "index", "levels", "schedules", "schedule-proof", "analytic", "flow", "packet", "packet-transports",
    "collectives", "training", "plan", "cost", "codecs", "runtime", "auto", "periodic", "emulation", "lab", "timeline", "bench", "audit", "diagnose", "watch",
)  # fmt: skip


def filled(nav: list[Any], docs: Path) -> list[Any]:
    """Return the navigation with the three parts that are read from their folders."""
    at = next(i for i, part in enumerate(nav) if "By person" in part) + 1
    nav = [*nav[:at], {"Guides": _guides(docs)}, *nav[at:]]
    at = next(i for i, part in enumerate(nav) if "Reference" in part)
    method = [f"method/{name}.md" for name in METHOD if (docs / "method" / f"{name}.md").exists()]
    method += _rest(docs, "method", METHOD)
    decisions = [f"decisions/{path.name}" for path in sorted((docs / "decisions").glob("*.md"))]
    return [*nav[:at], {"Method": method}, *nav[at:], {"Decisions": decisions}]


def _guides(docs: Path) -> list[Any]:
    known = {name for names in GUIDES.values() for name in names}
    found: list[Any] = ["guides/index.md"]
    for group, names in GUIDES.items():
        found.append({group: [f"guides/{name}.md" for name in names if (docs / "guides" / f"{name}.md").exists()]})
    more = _rest(docs, "guides", {*known, "index"})
    return [*found, *([{"More": more}] if more else [])]


def _rest(docs: Path, folder: str, known: Any) -> list[str]:
    return [f"{folder}/{path.name}" for path in sorted((docs / folder).glob("*.md")) if path.stem not in known]
