"""Run benchmarks: one as JSON on stdout, or all of them into benchmarks/results/.

    python benchmarks/run.py flow               figures for people
    python benchmarks/run.py flow --json        one JSON object
    python benchmarks/run.py flow --keep        the same, kept as benchmarks/results/flow.json; git has earlier ones
    python benchmarks/run.py --all              each in turn, kept
    python benchmarks/run.py --table            write benchmarks/RESULTS.md from results/ by table.yaml
    python benchmarks/run.py --list

A benchmark is benchmarks/NAME.py with `def run() -> dict` that returns its figures, units in their names, each beside a
peer or a bound. One whose figures say `all_passed: false` is kept as well, and the status is 1. Proofs of the whole
tree (`make fresh`, `make release-proof`) are in tools/ and run the same way.
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
sys.path.append(str(FOLDER.parent / "tools"))
RESULTS = FOLDER / "results"
TABLE = FOLDER / "RESULTS.md"
PROOFS = ("fresh", "mutation", "pages_axe", "release")
"""In tools/, not part of --all: they take half an hour, or want root or a browser."""
PACKAGES = ("syncline", "numpy", "networkx", "pydantic", "torch")


def names() -> list[str]:
    """Return the benchmarks there are."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "run")


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
    """Write a report in place of the one before and return the path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{report['benchmark']}.json"
    path.write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")
    return path


def table() -> str:
    """Return RESULTS.md: every kept result beside its peer or bound."""
    import yaml

    rows = [
        "# Results",
        "",
        "Written by `python benchmarks/run.py --table` from `benchmarks/results/`. Each row is the latest run of one",
        "script beside its peer or its bound; the JSON file has the machine, the versions and every figure.",
        "",
        "| benchmark | peer or bound | figures | date |",
        "|---|---|---|---|",
    ]
    for name, row in yaml.safe_load((FOLDER / "table.yaml").read_text(encoding="utf-8")).items():
        report = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        figures = "; ".join(f"{label}: {_figure(report, form, paths)}" for label, form, *paths in row["figures"])
        rows.append(f"| [{name}](results/{name}.json) | {row['bound']} | {figures} | {_dates(report)} |")
    return "\n".join(rows) + "\n"


def _dates(report: dict[str, Any]) -> str:
    """Return the day of a report, or the first and last where its parts were run apart."""
    parts = [part for part in report.values() if isinstance(part, dict) and "date" in part]
    days = sorted(str(part["date"])[:10] for part in (report, *parts))
    return days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"


def _figure(report: dict[str, Any], form: str, paths: list[list[Any]]) -> str:
    """Return the values of a report as its row shows them; a run without its peer may lack some."""
    try:
        return form.format(*(_at(report, path) for path in paths))
    except (KeyError, IndexError, StopIteration):
        return "not measured"


def _at(value: Any, path: list[Any]) -> Any:
    """Return what a path of `table.yaml` leads to."""
    for step in path:
        if isinstance(step, dict):
            value = next(row for row in value if step.items() <= row.items())
        else:
            value = value[step]
    return value


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
    parser.add_argument("--keep", action="store_true", help="keep the result")
    parser.add_argument("--all", action="store_true", help="run every benchmark and keep the results")
    parser.add_argument("--table", action="store_true", help="write RESULTS.md from the kept results")
    parser.add_argument("--list", action="store_true", help="list the benchmarks")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join([*names(), *PROOFS]))
        return 0
    if arguments.table:
        TABLE.write_text(table(), encoding="utf-8")
        return 0
    if arguments.all:
        # One process each: a benchmark must not find the caches another has warmed.
        status = max(_run_and_keep(name) for name in names())
        TABLE.write_text(table(), encoding="utf-8")
        return status
    if arguments.name not in (*names(), *PROOFS):
        parser.error(f"no benchmark {arguments.name!r}; there are: {', '.join((*names(), *PROOFS))}")
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
