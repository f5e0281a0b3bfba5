"""A hundred labs made and removed: how long each takes, and that nothing of them is left on the machine."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from pathlib import Path
from statistics import median
from typing import Any

from syncline.fabric import load
from syncline.lab import Lab
from syncline.lab.registry import running_labs

CYCLES = 100
CLUSTERS = ("lab-flat", "lab-two-rails", "lab-two-sites", "lab-leaf-spine")
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
MARK = "SYNCLINE_LAB_CYCLES"
FOLDERS = ("/tmp", "/run", "/dev/shm", "/var/run/netns")  # noqa: S108  looked at, not written to


def run() -> dict[str, Any]:
    """Make and remove labs of four kinds, each with a process inside, and compare the machine before and after."""
    os.environ[MARK] = uuid.uuid4().hex  # every process of these labs carries it; those of other labs do not
    fabrics = [load(EXAMPLES / f"{name}.yaml") for name in CLUSTERS]
    before = machine()
    made_s: list[float] = []
    removed_s: list[float] = []
    num_in_user_namespaces = most_processes = 0
    for cycle in range(CYCLES):
        start = time.perf_counter()
        own_user = os.geteuid() != 0 or cycle % 2 == 1  # half of them as anybody could make them
        num_in_user_namespaces += own_user
        lab = Lab(fabrics[cycle // 2 % len(fabrics)], user_namespace=own_user).open()
        made_s.append(time.perf_counter() - start)
        lab.spawn(lab.host_names[0], ["sleep", "1000"])
        most_processes = max(most_processes, len(_marked()))
        start = time.perf_counter()
        lab.close()
        removed_s.append(time.perf_counter() - start)
    after, waited_s = settled(before)
    left = {key: sorted(map(str, after[key] - before[key])) for key in before}
    return {
        "cycles": CYCLES,
        "clusters": list(CLUSTERS),
        "as_root": os.geteuid() == 0,
        "cycles_in_user_namespaces": num_in_user_namespaces,
        "made_s_median": round(median(made_s), 4),
        "made_s_worst": round(max(made_s), 4),
        "removed_s_median": round(median(removed_s), 4),
        "removed_s_worst": round(max(removed_s), 4),
        "waited_for_kernel_s": round(waited_s, 3),
        "most_processes_of_one_lab": most_processes,
        "left_behind": {key: names for key, names in left.items() if names},
        "interfaces_of_the_machine_unchanged": after["interfaces"] == before["interfaces"],
        "other_labs_running_meanwhile": len(running_labs()),
    }


def machine() -> dict[str, set[Any]]:
    """Return what a lab could leave: namespaces, interfaces, routes, processes of labs, files."""
    return {
        "namespaces": set(_marked().values()),
        "named_namespaces": set(_lines("ip", "netns")),
        "interfaces": set(_lines("ip", "-o", "-d", "link")),
        "routes": set(_lines("ip", "route", "show", "table", "all")),
        "processes": set(_marked()),
        "files": {str(path) for folder in FOLDERS if os.path.isdir(folder) for path in Path(folder).iterdir()
                  if "syncline-lab" in path.name},
        "mounts": {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()},
    }  # fmt: skip


def settled(before: dict[str, set[Any]], patience_s: float = 20.0) -> tuple[dict[str, set[Any]], float]:
    """Wait until the kernel, which removes namespaces in its own time, is done."""
    start = time.monotonic()
    while True:
        after = machine()
        waited_s = time.monotonic() - start
        if all(after[key] <= before[key] for key in before) or waited_s > patience_s:
            return after, waited_s
        time.sleep(0.1)


def _marked() -> dict[str, int]:
    """Return the processes of these labs, with the network namespace each is in."""
    wanted = f"{MARK}={os.environ[MARK]}".encode()
    found = {}
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and wanted in Path(f"/proc/{entry}/environ").read_bytes():
                found[entry] = os.stat(f"/proc/{entry}/ns/net").st_ino
        except OSError:
            continue
    return found


def _lines(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


if __name__ == "__main__":
    import json

    print(json.dumps(run(), indent=2))
