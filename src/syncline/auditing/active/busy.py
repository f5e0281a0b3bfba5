"""Is somebody working on this host? Then nothing is loaded: a test would take what the job needs, and measure it."""

from __future__ import annotations

import os
from pathlib import Path

from syncline.describe.names import few
from syncline.host.host import Host

PROC = Path("/proc")
COMPUTE_APPS = (
    "nvidia-smi", "--query-compute-apps=pid,process_name,gpu_bus_id", "--format=csv,noheader",
)  # fmt: skip
KFD = "/dev/kfd"
_WATCHERS = {"gpuagent", "amd-smi", "rocm-smi", "amdgpuexporter"}
"""Processes that look at GPUs all the time without working on them."""
HARMLESS = ("active.process.stuck", "active.mount", "active.ipmi")
"""Rules that take nothing from a job: asked on a host at work too."""
MOST_LOAD = 0.5
"""Load of the last minute per processor, from which on a host counts as at work."""


def why_busy(host: Host, proc: Path = PROC) -> str:
    """Return what is at work here, "" where nothing is."""
    if used := gpu_processes(host, proc):
        return f"process {few([f'{pid} ({name})' for pid, name, _ in used], 1)} is on a GPU"
    # Processes that are stuck count as load, but do not work.
    load, cpus = _load(proc) - len(stuck_processes(proc)), len(os.sched_getaffinity(0))
    if load > MOST_LOAD * cpus:
        return f"the load of the last minute is {load:.1f} on {cpus} processors"
    return ""


def gpu_processes(host: Host, proc: Path = PROC) -> list[tuple[int, str, str]]:
    """Return the processes on GPUs: number, name and the GPU's address, as nvidia-smi sees them.

    AMD's driver tells it by who holds /dev/kfd open.
    """
    if not any(gpu.pci.vendor == 0x10DE for gpu in host.gpus):
        return _holders(proc, KFD) if host.gpus else []
    text = host.root.command("nvidia-smi-apps", COMPUTE_APPS, quiet=True) or ""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [(int(row[0]), row[1].rpartition("/")[2], row[-1]) for row in rows if len(row) >= 3 and row[0].isdecimal()]


def _holders(proc: Path, device: str) -> list[tuple[int, str, str]]:
    """Return the processes that hold a device open, of those this user may look at."""
    found = []
    for folder in proc.glob("[0-9]*"):
        try:
            if any(os.readlink(link) == device for link in (folder / "fd").iterdir()):
                name = (folder / "comm").read_text("utf-8", "replace").strip()
                found.append((int(folder.name), name, device))
        except OSError:
            continue  # it is gone, or somebody else's
    return sorted(row for row in found if row[1] not in _WATCHERS)


def stuck_processes(proc: Path = PROC) -> list[tuple[int, str, str]]:
    """Return processes in uninterruptible sleep (state D): number, name, and where in the kernel they wait."""
    found = []
    for folder in proc.glob("[0-9]*"):
        try:
            head, _, tail = (folder / "stat").read_text("utf-8", "replace").rpartition(")")
            if tail.split()[:1] != ["D"]:
                continue
            found.append((int(folder.name), head.partition("(")[2], _waits_for(folder)))
        except (OSError, ValueError):
            continue  # it is gone
    return sorted(found)


def _waits_for(folder: Path) -> str:
    try:
        return (folder / "wchan").read_text("ascii", "replace").strip("0\n ")
    except OSError:
        return ""


def _load(proc: Path) -> float:
    try:
        return float((proc / "loadavg").read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0
