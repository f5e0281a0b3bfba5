"""Run every command of every page in a scratch folder, as a reader would who types them one after another.

    python tools/docs_run.py                 all pages (about half an hour of one core)
    python tools/docs_run.py guides/plan     pages whose path holds these words
    make docs-run

Commands of one page share a folder, which holds the examples and a cluster, a job and the like under the names that
pages use for the reader's own files. What needs root, a cluster or no end is left out and counted, with the reason.
Exit status 1 is an answer (something was found); 2 is a refusal, and a page that says so must show it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCED = re.compile(r"^```(?!picture).*?^```[ \t]*$", re.MULTILINE | re.DOTALL)
LIMIT_S = 1200
#: Files that a reader has, and what stands for them here; a page's own files (`title="job.yaml"`) come first.
MINE = {
    "cluster.yaml": "hosts: 64\nhost: dgx-h100\nnetwork: rail-optimized NDR\n",
    "job.yaml": "model: llama3-70b\nbatch: {global: 1024, sequence: 8192}\nparallel: {tp: 8, pp: 4}\n",
}
TITLED = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^[\w./%-]+\.(ya?ml|json|log|out|csv|txt|xml|py|topo|cm|tar\.gz|log\.gz|conf)$")
#: Options whose file is written, not read.
WRITES = re.compile(r"^(--html|--svg|--out|--csv|--save|--write|--state|--job|--chakra|--profile-out|>|-o)$")
#: What cannot be run here, by the words it has.
NOT_HERE = {
    r"\bsudo\b": "needs root", r"^syncline (lab|rehearse)\b": "makes namespaces",
    r"^syncline watch\b": "has no end",
    r"^syncline serve\b": "has no end", r"\b(ssh|srun|sbatch|kubectl|mpirun|torchrun)\b": "needs a cluster",
    r"^syncline (discover|audit capture)\b": "needs a host with GPUs", r"\*\.json": "needs a cluster",
    r"--hosts\b": "needs a cluster", r"\.\.\.": "is an outline", r"^syncline install-completion": "changes the shell",
    r"^syncline bench (?!--read)": "needs a cluster", r"--active\b": "loads the host",
}  # fmt: skip


def commands(page: Path) -> list[str]:
    """Return the command lines of a page's blocks, in order."""
    text = re.sub(r"\\\n\s*", " ", page.read_text("utf-8"))
    found: list[str] = []
    for block in FENCED.findall(text):
        found += re.findall(r"^(?:\$ )?((?:sudo )?syncline [^\n]*)", block, re.MULTILINE)
    return found


def left_out(line: str) -> str:
    """Return why a command is not run here."""
    return next((why for pattern, why in NOT_HERE.items() if re.search(pattern, line)), "")


def wanting(line: str, folder: Path) -> str:
    """Return a file that a command reads and only the reader has."""
    words = shlex.split(line, comments=True)
    for before, word in zip(["", *words], words, strict=False):
        if FILE.match(word) and not WRITES.match(before) and not (folder / word).exists():
            return word
    return ""


def run(line: str, folder: Path) -> tuple[int, str]:
    """Run one command; return its status and the last of what it said on stderr."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    try:
        done = subprocess.run(
            ["bash", "-c", line], cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True,
            timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 124, f"took more than {LIMIT_S} s"
    return done.returncode, done.stderr.strip()[-400:]


def main() -> int:
    """Run all pages that are asked for; the status says whether a command failed."""
    asked = sys.argv[1:]
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    done, skipped, failed = 0, 0, 0
    for page in (p for p in pages if not asked or any(word in str(p) for word in asked)):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            shutil.copytree(ROOT / "examples", folder / "examples")
            for mine, text in [*MINE.items(), *TITLED.findall(page.read_text("utf-8"))]:
                (folder / mine).parent.mkdir(parents=True, exist_ok=True)
                (folder / mine).write_text(text, "utf-8")
            for line in commands(page):
                if left_out(line) or wanting(line, folder):
                    skipped += 1
                    continue
                status, said = run(line, folder)
                done += 1
                refused = status not in (0, 1) and said  # audit says 2 of what it found, and nothing on stderr
                if refused or "Traceback" in said:
                    failed += 1
                    print(f"{page.relative_to(ROOT)}: {line}\n  status {status}: {said}", flush=True)
    print(
        f"{done} commands run, {failed} failed; {skipped} left out because they need root, a cluster, "
        "a file of the reader's or have no end"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
