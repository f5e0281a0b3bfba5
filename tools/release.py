"""A release from end to end: built twice and compared, installed on bare Debians, with the oldest dependencies too.

    RELEASE_PYTHONS="python3.11 python3.12" python benchmarks/run.py release --keep      root, mmdebstrap, a compiler

- each Python builds what is committed and its wheel twice, in different folders: equal bytes, or it says which differ;
  the wheel is built from the source package, without a network,
- every suite of RELEASE_SUITES (bookworm trixie sid: Python 3.11, 3.13, 3.14) gets a tree with `python3 python3-venv`
  and nothing else, the wheel is installed there with the newest dependencies, and every verb is asked something,
- an environment of the first Python gets the versions of `tools/release/oldest.txt`, torch among them: every verb, and
  the training example on two processes.

RELEASE_PARTS="builds suites oldest" picks parts; RELEASE_DIST keeps what was built (and is taken if it is there).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import fresh

ROOT = fresh.ROOT
SMOKE = ROOT / "tools" / "release" / "smoke.py"
INSTALL = "python3 -m venv venv && venv/bin/pip install --quiet --find-links dist --only-binary syncline syncline"


def run() -> dict[str, Any]:
    """Return what was built, from what, and what every installation answered."""
    fresh.need_what_it_takes()
    parts = os.environ.get("RELEASE_PARTS", "builds suites oldest").split()
    pythons = os.environ.get("RELEASE_PYTHONS", "python3.11 python3.12").split()
    with tempfile.TemporaryDirectory(prefix="syncline-release-", dir="/var/tmp") as folder:
        dist = Path(os.environ.get("RELEASE_DIST", f"{folder}/dist"))
        found: dict[str, Any] = {"pythons": [version_of(python) for python in pythons]}
        if "builds" in parts:
            found["builds"] = builds(pythons, dist, Path(folder))
        if "suites" in parts:
            suites = os.environ.get("RELEASE_SUITES", "bookworm trixie sid").split()
            found["suites"] = {suite: installed(suite, dist, Path(folder)) for suite in suites}
        if "oldest" in parts:
            found["oldest"] = oldest(pythons[0], dist, Path(folder))
    return found


def version_of(python: str) -> str:
    """Return the version that a Python says it has."""
    return subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout.strip()


def builds(pythons: list[str], dist: Path, folder: Path) -> dict[str, Any]:
    """Build everything twice; return the hashes, and the files whose bytes differ."""
    again, clone = folder / "again", folder / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    for target in (dist, again):
        for number, python in enumerate(pythons):
            made = ["wheel"] if number else ["sdist", "wheel", *(["sbom"] if target == dist else [])]
            settings = {**os.environ, "PYTHON": python, "DIST": str(target)}
            told("build", *made, "with", python)
            subprocess.run(
                ["bash", "tools/release/build.sh", *made], cwd=clone, env=settings, stdout=sys.stderr, check=True
            )
    hashes = {path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(dist.glob("syncline-*"))}
    twice = {path.name: sha256(path.read_bytes()).hexdigest() for path in again.glob("syncline-*")}
    licences = (dist / "licences.txt").read_text("utf-8").split("\n")[1:]
    return {
        "sha256": hashes,
        "differ": sorted(name for name, value in hashes.items() if twice.get(name) != value),
        "licences": sorted({re.split(r"\s{2,}", line.strip())[-1] for line in licences if line.strip()}),
    }


def installed(suite: str, dist: Path, folder: Path) -> dict[str, Any]:
    """Install on a bare Debian and ask every verb something."""
    told("a bare", suite)
    tree = Path(os.environ.get("RELEASE_TREES", str(folder))) / f"rel-{suite}"
    if not (tree / "etc").is_dir():
        mirror = subprocess.run(
            ["apt-get", "indextargets", "--format", "$(REPO_URI)"], capture_output=True, text=True, check=True
        ).stdout.split()[0]
        include = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3,python3-venv"]
        source = f"deb {mirror} {suite} main"
        options = ['--aptopt=Acquire::Check-Valid-Until "false";']
        subprocess.run([*include, *options, suite, str(tree), source], stdout=sys.stderr, check=True)
    inside = tree / "root"
    for name in fresh.HANDED_IN:
        (tree / name.lstrip("/")).write_bytes(Path(name).read_bytes())
    shutil.rmtree(inside / "venv", ignore_errors=True)
    shutil.copytree(dist, inside / "dist", dirs_exist_ok=True)
    shutil.copy(SMOKE, inside / "smoke.py")
    status = fresh.enter(tree, f"{INSTALL} && venv/bin/python smoke.py > smoke.txt", where="/root")
    return {"status": status, **said(inside / "smoke.txt")}


def oldest(python: str, dist: Path, folder: Path) -> dict[str, Any]:
    """Install the oldest versions that are promised; ask every verb, and train on two processes."""
    told("the oldest dependencies")
    venv = folder / "oldest"
    subprocess.run([python, "-m", "venv", str(venv)], check=True)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    pins = str(ROOT / "tools" / "release" / "oldest.txt")
    subprocess.run(
        [*pip, "--find-links", str(dist), "--only-binary", "syncline", "-c", pins, "syncline[torch]"], check=True
    )
    report = folder / "oldest.txt"
    with report.open("w") as out:
        status = subprocess.run([str(venv / "bin" / "python"), str(SMOKE)], stdout=out, check=False).returncode
    train = [str(venv / "bin" / "torchrun"), "--nproc-per-node", "2", "--standalone", "ddp.py"]
    work = shutil.copytree(ROOT / "examples" / "training", folder / "training")
    trained = subprocess.run(
        train, cwd=work, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
    )
    print(trained.stderr[-2000:] if trained.returncode else "", file=sys.stderr)
    return {"status": status, **said(report), "trained": trained.returncode, "last": trained.stdout.splitlines()[-1:]}


def said(report: Path) -> dict[str, Any]:
    """Return what the smoke test printed: verbs that answered, those that failed, and the versions."""
    lines = report.read_text("utf-8").splitlines() if report.exists() else []
    failed = [line for line in lines if line.startswith("FAILED")]
    print(*failed, sep="\n", file=sys.stderr)
    return {
        "answered": sum(line.startswith("ok") for line in lines),
        "failed": failed,
        "versions": next((line for line in lines if line.startswith("Python ")), ""),
    }


def told(*words: str) -> None:
    """Say what is going on."""
    print("==", *words, file=sys.stderr, flush=True)
