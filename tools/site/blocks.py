"""Code blocks that the build runs: what a page shows is what syncline prints today.

In a page whose front matter says `run: true`,

- a `yaml` block with a title is a file of that name,
- a `console` block is run line by line (`$ syncline ...`), in one process, and what it prints is put under each line;
  `lines=12` shows that many, `show="answer,limit"` those paragraphs alone,
- a `python` block is run, and what it prints is put under it,
- a `picture` block is a command with `--svg`, or with `--html N` for the N-th picture of a page; then its caption,
- an `include` block is a file of the repository, which readers of the site do not have.

A command that fails stops the build.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import os
import re
import shlex
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from syncline.cli.shell.app import run

FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
ROOT = Path(__file__).resolve().parents[2]
WIDTH = "110"
LOG = logging.getLogger("mkdocs.site.blocks")


class BlockError(Exception):
    """A block of a page that cannot be run."""


@dataclass
class Kept:
    """Answers of an earlier build, by what was asked of which sources."""

    folder: Path
    sources: str = field(default_factory=lambda: _fingerprint())

    def path(self, *question: str) -> Path:
        key = hashlib.sha256(json.dumps([self.sources, *question]).encode()).hexdigest()[:20]
        return self.folder / key

    def get(self, *question: str) -> str | None:
        path = self.path(*question)
        return path.read_text("utf-8") if path.exists() else None

    def put(self, text: str, *question: str) -> str:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(*question)
        half = path.with_name(f"{path.name}.{os.getpid()}")
        half.write_text(text, "utf-8")
        half.replace(path)
        return text


def _session(parts: list[str]) -> str:
    """Return commands with what they print. Output with lines that look like a prompt is no session to a highlighter."""
    printed = [line for part in parts for line in part.splitlines()[1:]]
    if not any(line.startswith(("#", "$", "%", ">")) for line in printed):
        return "```console\n" + "\n".join(parts) + "\n```"
    fences = []
    for part in parts:
        command, _, output = part.partition("\n")
        fences += [f"```console\n{command}\n```", *([f"```text\n{output}\n```"] if output else [])]
    return "\n\n".join(fences)


@dataclass
class Page:
    """One page: its files so far, and the pictures it has made."""

    name: str
    kept: Kept
    folder: Path
    pictures: dict[str, str] = field(default_factory=dict)
    scope: dict[str, object] = field(default_factory=dict)

    def rewritten(self, text: str) -> str:
        return FENCE.sub(self._block, text)

    def _block(self, found: re.Match[str]) -> str:
        kind, info, body = found.groups()
        title = re.search(r'title="([^"]+)"', info)
        if title and kind != "console":
            (self.folder / title[1]).write_text(body, "utf-8")
        if kind == "console" and "$ " in body:
            most, some = re.search(r"lines=(\d+)", info), re.search(r'show="([^"]+)"', info)
            limits = int(most[1]) if most else 0, tuple(some[1].split(",")) if some else ()
            return _session([self._command(line, *limits) for line in body.splitlines()])
        if kind == "python":
            return f"```python\n{body}```" if "norun" in info else self._python(body)
        if kind == "picture":
            return self._picture(body)
        if kind == "include":
            path = ROOT / body.strip()
            return f'```{path.suffix[1:].replace("py", "python")} title="{path.name}"\n{path.read_text("utf-8")}```'
        return found[0]

    def _files(self) -> str:
        return json.dumps(
            {p.name: p.read_text("utf-8") for p in sorted((*self.folder.glob("*.y*ml"), *self.folder.glob("*.log")))}
        )

    def _command(self, line: str, most: int, labels: tuple[str, ...]) -> str:
        if not line.startswith("$ syncline"):
            return line
        text = self.kept.get("run", line, self._files())
        if text is None:
            text = self.kept.put(self._run(shlex.split(line[2:], comments=True)[1:]), "run", line, self._files())
        lines = text.rstrip("\n").splitlines()
        if labels:
            lines = ["...", *labelled(lines, labels), "..."]
        if most and len(lines) > most:
            lines = [*lines[:most], f"... {len(lines) - most} more lines"]
        return "\n".join((line, *lines))

    def _run(self, words: list[str]) -> str:
        out, err = io.StringIO(), io.StringIO()
        began = time.process_time()
        with self._inside(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run(words)
        LOG.debug("%.2f s CPU: syncline %s", time.process_time() - began, shlex.join(words))
        if status:
            raise BlockError(f"{self.name}: syncline {shlex.join(words)} exits with {status}: {err.getvalue()[-400:]}")
        return out.getvalue()

    def _python(self, body: str) -> str:
        out = io.StringIO()
        try:
            with self._inside(), contextlib.redirect_stdout(out):
                exec(compile(body, self.name, "exec"), self.scope)  # noqa: S102 - our own pages
        except Exception as error:
            raise BlockError(f"{self.name}: a python block ends with {type(error).__name__}: {error}") from error
        said = out.getvalue().rstrip()
        return f"```python\n{body}```" + (f"\n```text\n{said}\n```" if said else "")

    def _picture(self, body: str) -> str:
        command, _, caption = body.strip().partition("\n")
        caption = " ".join(caption.split())
        svg = self.kept.get("picture", command, self._files())
        if svg is None:
            svg = self.kept.put(self._drawn(shlex.split(command)), "picture", command, self._files())
        name = hashlib.sha256(svg.encode()).hexdigest()[:16] + ".svg"
        self.pictures[name] = svg
        up = "../" * self.name.count("/")
        shown = re.sub(r"--svg\b", "--svg picture.svg", re.sub(r"--html \d+", "--html page.html", command))
        return f"[![{caption}]({up}pictures/{name})]({up}pictures/{name})\n/// caption\n{caption} `{shown}`\n///"

    def _drawn(self, words: list[str]) -> str:
        if "--svg" in words:
            at = words.index("--svg")
            self._run([*words[1:at], "--svg", "picture.svg", *words[at + 1 :]])
            return (self.folder / "picture.svg").read_text("utf-8")
        at = words.index("--html")
        self._run([*words[1:at], "--html", "picture.html", *words[at + 2 :]])
        return standalone((self.folder / "picture.html").read_text("utf-8"), int(words[at + 1]))

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        before, width = Path.cwd(), os.environ.get("COLUMNS")
        os.chdir(self.folder)
        os.environ["COLUMNS"] = WIDTH
        try:
            yield
        finally:
            os.chdir(before)
            os.environ.pop("COLUMNS")
            if width is not None:
                os.environ["COLUMNS"] = width


def labelled(lines: list[str], labels: tuple[str, ...]) -> list[str]:
    """Return the paragraphs of an answer that begin with one of these labels."""
    found, inside = [], False
    for line in lines:
        if line[2:3].strip() or not line.startswith("   "):
            inside = line.startswith("  ") and line.strip().startswith(labels)
        if inside:
            found.append(line)
    if not found:
        raise BlockError(f"no paragraph begins with {' or '.join(labels)}")
    return found


def standalone(html: str, number: int) -> str:
    """Return the N-th picture of a page as a file of its own, with the page's style inside."""
    found = re.findall(r"<svg\b.*?</svg>", html, re.DOTALL)
    if not 1 <= number <= len(found):
        raise BlockError(f"the page has {len(found)} pictures, not {number}")
    style = "\n".join(re.findall(r"<style[^>]*>(.*?)</style>", html, re.DOTALL))
    style = re.sub(r"@media\s*\(prefers-color-scheme:\s*dark\)\s*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", style)
    head, rest = found[number - 1].split(">", 1)
    if "xmlns=" not in head:
        head = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f"{head}><style><![CDATA[{style} svg{{background:#fff}}]]></style>{rest}"


@contextlib.contextmanager
def opened(name: str, kept: Kept) -> Iterator[Page]:
    """Open a page in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="syncline-page-") as folder:
        yield Page(name, kept, Path(folder))


def _fingerprint() -> str:
    """Return what changes when the sources do."""
    seen = hashlib.sha256()
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix in (".py", ".yaml", ".csv", ".css", ".js"):
            seen.update(f"{path.relative_to(ROOT)} {path.stat().st_size} {path.stat().st_mtime_ns}\n".encode())
    return seen.hexdigest()
