"""Fill the figures in README and Learn from the commands that give them.

    python tools/figures.py            rewrite the pages
    python tools/figures.py --check    name stale figures and exit with 1

A page holds `<!--plan.step-->17<!--/-->`; `docs/figures.yaml` says which value of which command's JSON `plan.step` is,
and how it is rounded. Files that a command names are the titled YAML blocks of its `page`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from syncline.cli.shell.app import run
from syncline.validation.claims import taken

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "figures.yaml"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARKED = re.compile(r"<!--([a-z0-9-]+\.[a-z0-9-]+)-->(.*?)<!--/-->")
TITLED = re.compile(r'^```yaml title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)


def figures() -> dict[str, str]:
    """Return every figure as it should stand in a page, by name."""
    shown = {}
    for name, entry in yaml.safe_load(FIGURES.read_text("utf-8")).items():
        data = answer(entry["run"], entry.get("page"))
        for figure, (path, form, *factor) in entry["figures"].items():
            shown[f"{name}.{figure}"] = form.format(taken(data, path) * (factor[0] if factor else 1))
    return shown


def answer(command: str, page: str | None) -> Any:
    """Return the JSON that a command prints, run in the repository or beside the files of a page."""
    printed = io.StringIO()
    with files_of(page) as folder, contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        status = run([*shlex.split(command), "--json"])
    if status not in (0, 1, 2) or not printed.getvalue():
        raise SystemExit(f"syncline {command} --json: exit status {status}")
    return json.loads(printed.getvalue())


@contextlib.contextmanager
def files_of(page: str | None) -> Iterator[Path]:
    """Give a folder with the titled YAML blocks of a page; without a page, the repository."""
    if page is None:
        yield ROOT
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, text in TITLED.findall((ROOT / page).read_text("utf-8")):
            (Path(folder) / name).write_text(text, "utf-8")
        yield Path(folder)


def stale(shown: dict[str, str]) -> list[str]:
    """Return the figures of all pages that are not what their command gives, one line each."""
    return [
        f"{page.relative_to(ROOT)}: {name} is {text}, not {shown.get(name, 'a known figure')}"
        for page in PAGES
        for name, text in MARKED.findall(page.read_text("utf-8"))
        if text != shown.get(name)
    ]


def main() -> None:
    """Rewrite the pages, or check them."""
    os.environ["COLUMNS"] = "110"
    shown = figures()
    if "--check" in sys.argv[1:]:
        lines = stale(shown)
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        raise SystemExit(1 if lines else 0)
    for page in PAGES:
        text = page.read_text("utf-8")
        new = MARKED.sub(lambda found: f"<!--{found[1]}-->{shown[found[1]]}<!--/-->", text)
        if new != text:
            page.write_text(new, "utf-8")


if __name__ == "__main__":
    main()
