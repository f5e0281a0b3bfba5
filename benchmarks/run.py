"""Run benchmarks: one as JSON on stdout, or all of them into dated files.

    python benchmarks/run.py maxmin             figures for people
    python benchmarks/run.py maxmin --json      one JSON object
    python benchmarks/run.py maxmin --keep      the same, kept as benchmarks/results/DATE-NAME.json
    python benchmarks/run.py --all              each in turn, kept as benchmarks/results/DATE-NAME.json
    python benchmarks/run.py --list

A benchmark is benchmarks/NAME.py with `def run() -> dict` that returns its figures, units in their names. One whose
figures say `all_passed: false` is kept as well, and the status is 1.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.append(str(FOLDER.parent))  # what tests and benchmarks share is in tests/
RESULTS = FOLDER / "results"
NOT_BENCHMARKS = {"run", "measure", "peer", "bridge"}
ON_REQUEST = {"fresh", "release"}
"""Not part of --all: `make fresh` and `make release-proof` take half an hour and want root."""
PACKAGES = ("syncline", "numpy", "networkx", "pydantic", "torch")


def names() -> list[str]:
    """Return the benchmarks there are."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in NOT_BENCHMARKS)


def run(name: str) -> dict[str, Any]:
    """Run one benchmark and return its figures with what is needed to read them, the commit it began with among it."""
    commit = _commit()
    figures = importlib.import_module(name).run()
    for why in figures.get("missing", ()):
        print(f"{name}: {why}", file=sys.stderr)
    return {
        "benchmark": name,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": f"python benchmarks/run.py {name} --json",
        "commit": commit,
        "machine": _machine(),
        "versions": _versions(),
        **figures,
    }


def keep(report: dict[str, Any]) -> Path:
    """Write a report to its dated file and return the path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{report['date'][:10]}-{report['benchmark']}.json"
    path.write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")
    return path


def _commit() -> str:
    git = ["git", "-C", str(FOLDER), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _machine() -> dict[str, Any]:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": model,
        "num_cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": memory_bytes,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _show(report: dict[str, Any]) -> None:
    for key, value in report.items():
        print(f"{key:28} {value}")


def main() -> int:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description="Run syncline's benchmarks.")
    parser.add_argument("name", nargs="?", help="the benchmark to run")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--keep", action="store_true", help="keep a dated result")
    parser.add_argument("--all", action="store_true", help="run every benchmark and keep dated results")
    parser.add_argument("--list", action="store_true", help="list the benchmarks")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(names()))
        return 0
    if arguments.all:
        # One process each: a benchmark must not find the caches another has warmed.
        return max(_run_and_keep(name) for name in names() if name not in ON_REQUEST)
    if arguments.name not in names():
        parser.error(f"no benchmark {arguments.name!r}; there are: {', '.join(names())}")
    if arguments.keep:
        return _run_and_keep(arguments.name)
    report = run(arguments.name)
    if arguments.json:
        print(json.dumps(report, indent=2, allow_nan=False))
    else:
        _show(report)
    return int(report.get("all_passed") is False)


def _run_and_keep(name: str) -> int:
    done = subprocess.run([sys.executable, __file__, name, "--json"], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"{name}: failed with status {done.returncode}", file=sys.stderr)
    if done.stdout:
        print(f"{name}: {keep(json.loads(done.stdout)).relative_to(FOLDER.parent)}")
    return int(done.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
