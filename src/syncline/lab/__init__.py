"""Cost by emulation: a described fabric out of Linux namespaces and shaped links, and what runs on it.

with Lab(load("cluster.yaml")) as lab:
    lab.run([sys.executable, "train.py"])

Names are loaded when first used: the processes inside a lab import this package too, and must start fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncline.lab.blueprint import Blueprint
    from syncline.lab.counters import LinkBurst, LinkCounters
    from syncline.lab.drafting import draft
    from syncline.lab.lab import Lab
    from syncline.lab.paths import PathTable
    from syncline.lab.process import LabJob, Process, RankResult, RunResult
    from syncline.lab.profile import Profile
    from syncline.lab.recording import LabRecording
    from syncline.lab.trouble import FaultEvent

_MODULES = {
    "Blueprint": "blueprint", "FaultEvent": "trouble", "Lab": "lab", "LabJob": "process", "LinkBurst": "counters",
    "LinkCounters": "counters", "PathTable": "paths", "Process": "process", "Profile": "profile",
    "RankResult": "process", "LabRecording": "recording", "RunResult": "process", "draft": "drafting",
}  # fmt: skip
__all__ = [
    "Blueprint",
    "FaultEvent",
    "Lab",
    "LabJob",
    "LabRecording",
    "LinkBurst",
    "LinkCounters",
    "PathTable",
    "Process",
    "Profile",
    "RankResult",
    "RunResult",
    "draft",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"syncline.lab.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
