"""A newcomer's first hour: a bare Debian with only the packages of CONTRIBUTING.md, a clone, `make demo`, `make test`.

    make fresh                                        the whole of it (root, mmdebstrap; about half an hour), kept
    FRESH_TREE=/var/tmp/bare make fresh               the same in a tree that stays, and is not built a second time
    FRESH_TESTS="tests/lab tests/cli" make fresh      with these tests instead of `make test`
    FRESH_RUNS=3 FRESH_LOAD=8 make fresh              `make test` three times, each beside eight busy loops
    python3 tools/fresh.py /var/tmp/bare CMD     run one command in the clone of such a tree

The tree is entered with `pivot_root` in a mount namespace of its own (in a plain chroot Linux refuses user namespaces,
and labs would be skipped). Ctrl-C is ignored inside, as for everything that a background shell starts, and the clone
lies in a home folder that others cannot enter. apt and pip are set as they are on this machine: what apt's files and
pip's files and variables say is handed over, and nothing of it is written into the result. A run of the tests that
fails is kept with the names of what failed, the runs after it take place all the same, and the status is 1.
"""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SUITE = "bookworm"
HOME = "/root"
CLONE = f"{HOME}/syncline"
JUNIT = f"{HOME}/tests.xml"
STEPS = {"install": "make venv", "demo": "make demo"}
# Ends with whoever holds its standard input, however that ends.
BUSY = "for _ in $(seq {num}); do (while :; do :; done) & done; cat; kill 0"
# Copied as they are: names must resolve inside as they do outside.
HANDED_IN = ("/etc/resolv.conf", "/etc/hosts")
ENTER = """
set -eu
mount --make-rprivate /
mount --bind "$TREE" "$TREE"
cd "$TREE"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs tmp
for path in $SHOWN; do
  if [ -d "$path" ]; then mkdir -p ".$path"; else mkdir -p ".${path%/*}"; : >> ".$path"; fi
  mount --bind -o ro "$path" ".$path"
done
mkdir -p .old
pivot_root . .old
umount -l /.old
trap '' INT
cd "$WHERE"
exec env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@" </dev/null
"""


class CannotRunError(Exception):
    """Something that `make fresh` needs is not here, or a step failed inside."""


def run() -> dict[str, Any]:
    """Build the tree, clone, run every step, and return what passed, what was skipped and why."""
    need_what_it_takes()
    num_runs, num_loops = count("FRESH_RUNS", 1), count("FRESH_LOAD", 0)
    kept = os.environ.get("FRESH_TREE")
    tree = Path(kept) if kept else Path(tempfile.mkdtemp(prefix="syncline-fresh-", dir="/var/tmp")) / "tree"
    some = os.environ.get("FRESH_TESTS")
    test = f".venv/bin/python -m pytest -q {some}" if some else "make test"
    try:
        began_s = time.monotonic()
        build(tree)
        clone(tree)
        seconds = {"tree": round(time.monotonic() - began_s)}
        seconds |= {step: timed(tree, command) for step, command in STEPS.items()}
        with busy(num_loops):
            runs = [tested(tree, test) for _ in range(num_runs)]
        found = {"debian": debian(tree), "packages": packages(), "steps": {**STEPS, "test": test}, "seconds": seconds}
    except CannotRunError as error:
        sys.exit(str(error))
    finally:
        if not kept:
            shutil.rmtree(tree.parent)
    good = all(one["status"] == 0 for one in runs)
    return {**found, "num_busy_loops": num_loops, "runs": runs, "all_passed": good}


def count(name: str, otherwise: int) -> int:
    """Return the whole number that a variable holds."""
    text = os.environ.get(name, str(otherwise))
    if not text.isdecimal():
        sys.exit(f"{name} is {text!r}, not a whole number.")
    return int(text)


@contextmanager
def busy(num: int) -> Iterator[int]:
    """Keep that many loops busy beside what runs inside, in a session of their own, and give its number."""
    command = ["sh", "-c", BUSY.format(num=num)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True) as loops:
        try:
            yield loops.pid
        finally:
            loops.communicate()


def need_what_it_takes() -> None:
    """Say what is missing before anything is built."""
    if os.geteuid() != 0:
        sys.exit("make fresh mounts and pivots: run it as root.")
    if shutil.which("mmdebstrap") is None:
        sys.exit("make fresh needs mmdebstrap. On Debian: apt install mmdebstrap")


def packages() -> list[str]:
    """Return the packages that a newcomer is told to install."""
    found = re.search(r"^apt install (.+)$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert found is not None, "CONTRIBUTING.md has no line `apt install ...`"
    return found[1].split()


def build(tree: Path) -> None:
    """Make a minimal Debian with those packages, from where this machine gets its own."""
    if (tree / "etc").is_dir():
        return
    tree.parent.mkdir(parents=True, exist_ok=True)
    sources = [*Path("/etc/apt").glob("*.list"), *Path("/etc/apt/sources.list.d").glob("*.[ls]*")]
    said = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=True).stdout
    # Proxies, certificates and old snapshots; what apt knows by itself stays as it is.
    ours = re.findall(r'^Acquire::(?:https?::|Check-Valid-Until|Retries).*[^"]";$', said, re.MULTILINE)
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(packages())}"]
    command += [f"--aptopt={option}" for option in ours]
    done = subprocess.run([*command, SUITE, str(tree), *map(str, sources)], stdout=sys.stderr, check=False)
    if done.returncode:
        raise CannotRunError("mmdebstrap could not build the tree; its own words are above.")


def clone(tree: Path) -> None:
    """Clone what is committed here into the tree."""
    for name in HANDED_IN:
        if Path(name).exists():
            (tree / name.lstrip("/")).write_bytes(Path(name).read_bytes())
    inside = tree / CLONE.lstrip("/")
    shutil.rmtree(inside, ignore_errors=True)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(inside)], check=True)
    (tree / HOME.lstrip("/")).chmod(0o700)


def timed(tree: Path, command: str) -> int:
    """Run one step and return the seconds it took."""
    status, seconds = attempt(tree, command)
    if status:
        raise CannotRunError(f"`{command}` failed with status {status}; its own words are above.")
    return seconds


def tested(tree: Path, command: str) -> dict[str, Any]:
    """Run the tests once and return how that ended."""
    report = tree / JUNIT.lstrip("/")
    report.unlink(missing_ok=True)
    status, seconds = attempt(tree, command, PYTEST_ADDOPTS=f"--junitxml={JUNIT}")
    how = outcome(report) if report.exists() else {"failed": ["ended before any test"]}
    return {"status": status, "seconds": seconds, **how}


def attempt(tree: Path, command: str, **settings: str) -> tuple[int, int]:
    """Run a command in the clone and return its status and the seconds it took."""
    print(f"== {command} on a bare Debian", file=sys.stderr, flush=True)
    began_s = time.monotonic()
    return enter(tree, command, **settings), round(time.monotonic() - began_s)


def enter(tree: Path, command: str, where: str = CLONE, **settings: str) -> int:
    """Run a command in the clone (or elsewhere) with the tree as the whole file system, and return its status."""
    pip = pip_settings()
    shown = [*places(pip), *(["/etc/ssl/certs/ca-certificates.crt"] if "PIP_CERT" not in pip else [])]
    told = {"TREE": str(tree), "SHOWN": " ".join(shown), "WHERE": where, "PATH": os.environ["PATH"]}
    inner = [*(f"{name}={value}" for name, value in {**pip, **settings}.items()), "sh", "-c", command]
    outer = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh"]
    return subprocess.run([*outer, *inner], env=told, stdout=sys.stderr, check=False).returncode


def pip_settings() -> dict[str, str]:
    """Return how pip is set on this machine, as the variables it reads; files first, variables win."""
    files = ["/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf", os.environ.get("PIP_CONFIG_FILE", "")]
    found: dict[str, str] = {}
    for name in filter(None, files):
        parser = configparser.RawConfigParser()
        parser.read(Path(name).expanduser())
        for section in ("global", "install"):
            if parser.has_section(section):
                values = {key.upper().replace("-", "_"): " ".join(text.split()) for key, text in parser.items(section)}
                found |= {f"PIP_{key}": text for key, text in values.items()}
    return found | {name: text for name, text in os.environ.items() if re.fullmatch(r"PIP_(?!CONFIG_FILE)\w+", name)}


def places(pip: dict[str, str]) -> list[str]:
    """Return the files and folders that pip's settings name; an index names its files by the way above it."""
    found = []
    for word in (word for text in pip.values() for word in text.split()):
        path = Path(word.removeprefix("file://"))
        if path.is_absolute() and path.exists():
            found.append(str(path.parent if word.startswith("file://") else path))
    return list(dict.fromkeys(found))


def debian(tree: Path) -> str:
    """Return which Debian the tree is."""
    return (tree / "etc/debian_version").read_text().strip()


def outcome(report: Path) -> dict[str, Any]:
    """Return how many tests passed, which failed, why some were skipped and where time went, from what pytest wrote."""
    cases = [case for suite in ET.parse(report).iter("testsuite") for case in suite.iter("testcase")]  # noqa: S314
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = Counter(
        f"{case.get('classname')}: {why.get('message')}" for case in cases for why in case.iter("skipped")
    )
    folders: defaultdict[str, float] = defaultdict(float)
    for case in cases:
        folders[".".join((case.get("classname") or "").split(".")[:2])] += float(case.get("time") or 0)
    for why, num in skipped.items():
        print(f"skipped {num}: {why}", file=sys.stderr)
    num_skipped = sum(skipped.values())
    return {
        "num_passed": len(cases) - len(failed) - num_skipped,
        "num_failed": len(failed),
        "num_skipped": num_skipped,
        "failed": failed,
        "skipped_because": dict(sorted(skipped.items())),
        "seconds_by_folder": {name: round(folders[name]) for name in sorted(folders, key=folders.__getitem__)[::-1]},
    }


if __name__ == "__main__":
    need_what_it_takes()
    sys.exit(enter(Path(sys.argv[1]), shlex.join(sys.argv[2:]) if sys.argv[3:] else sys.argv[2]))
