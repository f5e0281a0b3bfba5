"""The one door to a host: files, commands and environment, of this machine or of a captured tree.

    root = Root.live()                          # this machine
    root = Root.captured(Path("h3.tar.gz"))     # what `syncline audit capture` wrote
    root.text("sys/class/net/eth0/mtu")         # "9000", or None where there is no such file
    root.command("tc-qdisc", ("tc", "-j", "-s", "qdisc", "show"))

What is absent is None. What is there and cannot be read is None too, and `noting()` tells why: rules turn that into
UNKNOWN. Links are followed inside the tree only. Everything read is kept, so a capture is what an audit read.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncline.host.privacy import COMMAND_FILTERS, FILE_FILTERS, environment
from syncline.host.tree import FolderTree, PathKind, Tree, open_tree

MAX_FILE_BYTES = 2**20
MAX_LINKS = 40
MAX_DEPTH = 100
COMMAND_TIMEOUT_S = 15.0
DEADLINE_S = 50.0
"""Commands are refused after this long, so that an audit ends within Slurm's 60 s for a health check."""
RESAMPLE_S = 1.0
NOTES = "syncline"
"""The folder of a captured tree that holds what is no file of the host: commands, environment, manifest."""

# The kernel's way of saying that there is no value: a link that is down has no speed, an old card no such attribute.
_NO_VALUE = {errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ENODEV, errno.ENXIO, errno.EOPNOTSUPP, errno.ENODATA}
# Links that differ for every process; a capture has plain folders there.
_PER_PROCESS = ("proc/self", "proc/thread-self", "proc/net", "proc/mounts")


@dataclass
class Root:
    """Reads of one host, each made once and kept."""

    tree: Tree
    is_live: bool
    source: str
    manifest: Mapping[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    """By the path where the file really is."""
    links: dict[str, str] = field(default_factory=dict)
    listings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    outputs: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    later: dict[str, bytes] = field(default_factory=dict)
    present: set[str] = field(default_factory=set)
    """Where something was found that was not read: a driver's folder, a file whose being there counts."""
    problems: dict[str, str] = field(default_factory=dict)
    """Path or command -> why it could not be read."""
    began_s: float = field(default_factory=time.monotonic)
    _real: dict[str, str | None] = field(default_factory=dict)
    _noting: list[dict[str, str]] = field(default_factory=list)

    @classmethod
    def live(cls) -> Root:
        """Return this machine."""
        return cls(FolderTree(Path("/")), True, "this machine")

    @classmethod
    def mounted(cls, path: Path) -> Root:
        """Return a running host whose root is mounted here, as in a pod.

        Commands run in the namespaces of this process.
        """
        return cls(FolderTree(path), True, str(path))

    @classmethod
    def under(cls, path: Path) -> Root:
        """Return the host under a path: a capture, or a running host's mounted root (a live /proc, no notes)."""
        running = (path / "proc" / "self" / "stat").exists() and not (path / NOTES / "manifest.json").exists()
        return cls.mounted(path) if running else cls.captured(path)

    @classmethod
    def captured(cls, path: Path) -> Root:
        """Return a captured tree: a folder, or an archive read into memory."""
        return cls.of(open_tree(path), str(path))

    @classmethod
    def of(cls, tree: Tree, source: str = "tree") -> Root:
        """Return the host that a tree holds."""
        root = cls(tree, False, source)
        text = root.text(f"{NOTES}/manifest.json")
        try:
            manifest = json.loads(text) if text else {}
        except (ValueError, RecursionError):
            manifest = {}
        root.manifest = manifest if isinstance(manifest, dict) else {}
        return root

    @contextmanager
    def noting(self) -> Iterator[dict[str, str]]:
        """Collect what cannot be read inside the block: path -> reason."""
        met: dict[str, str] = {}
        self._noting.append(met)
        try:
            yield met
        finally:
            self._noting.pop()

    def note(self, problems: Mapping[str, str]) -> None:
        """Tell every open `noting` block of these problems."""
        self.problems.update(problems)
        for met in self._noting:
            met.update(problems)

    def data(self, path: str, limit: int = MAX_FILE_BYTES) -> bytes | None:
        """Return a file's bytes, or None; a file over the limit is cut, and that is noted."""
        real = self._resolve(path)
        if real is None:
            self._note_captured(path)
            return None
        if real in self.files:
            self._note_again(path)
            return self.files[real]
        if self.tree.kind(real) is not PathKind.FILE:
            if self.tree.kind(real) is PathKind.OTHER:
                self.note({path: "is a pipe, socket or device, not a file"})
            return None
        try:
            found = self.tree.read(real, limit + 1)
        except OSError as error:
            self._note_error(path, error)
            return None
        if len(found) > limit:
            self.note({path: f"is larger than {limit:,} bytes; only that much was read"})
            found = found[:limit]
        self.files[real] = _filtered(path, found)
        return self.files[real]

    def text(self, path: str) -> str | None:
        """Return a file's text without the spaces around it; bytes that are no text become U+FFFD."""
        found = self.data(path)
        return None if found is None else found.decode("utf-8", "replace").strip("\x00 \t\r\n")

    def number(self, path: str) -> int | None:
        """Return the whole number in a file; what is no number is noted."""
        return self._as_number(path, self.text(path))

    def number_later(self, path: str) -> int | None:
        """Return the number in a file one second (or as captured) after it was first read."""
        if not self.is_live:
            return self._as_number(path, self.text(f"{NOTES}/later/{path}"))
        left = self.began_s + RESAMPLE_S - time.monotonic()
        if left > 0:
            time.sleep(left)
        real = self._resolve(path)
        if real is None:
            return None
        try:
            self.later[path] = self.tree.read(real, 64)
        except OSError:
            return None
        return self._as_number(path, self.later[path].decode("ascii", "replace").strip())

    def names(self, path: str) -> tuple[str, ...]:
        """Return what a folder holds; nothing where there is no folder."""
        real = self._resolve(path)
        if real is None:
            self._note_captured(path)
            return ()
        if real not in self.listings:
            if self.tree.kind(real) is not PathKind.FOLDER:
                return ()
            try:
                self.listings[real] = tuple(self.tree.names(real))
            except OSError as error:
                self._note_error(path, error)
                return ()
        return self.listings[real]

    def real(self, path: str) -> str | None:
        """Return where a path leads after its links, as `sys/devices/...`, or None."""
        found = self._resolve(path)
        if found is not None:
            self.present.add(found)
        return found

    def exists(self, path: str) -> bool:
        """Say whether something is there."""
        real = self.real(path)
        return real is not None and self.tree.kind(real) is not None

    def command(self, name: str, argv: Sequence[str], *, quiet: bool = False) -> str | None:
        """Return what a read-only command prints, or None; `quiet` when another source may serve instead."""
        if name not in self.outputs:
            text, reason = self._run(name, argv) if self.is_live else self._captured_output(name, argv)
            if text is None:
                if not quiet:
                    self.note({f"`{' '.join(argv)}`": reason})
                else:
                    self.problems.setdefault(f"`{' '.join(argv)}`", reason)
                return None
            text = COMMAND_FILTERS.get(name, str)(text)
            self.outputs[name] = tuple(argv), text
        return self.outputs[name][1]

    def environment(self) -> dict[str, str]:
        """Return the variables that steer collectives: of this process, or as captured."""
        if self.is_live:
            return environment(os.environ)
        lines = (self.text(f"{NOTES}/environment") or "").splitlines()
        return environment(dict(line.split("=", 1) for line in lines if "=" in line))

    def _resolve(self, path: str) -> str | None:
        """Follow links inside the tree; None for what is not there, leads outside or goes round."""
        path = path.strip("/")
        if path in self._real:
            self._note_again(path)
            return self._real[path]
        try:
            return self._walk(path, 0)
        except OSError as error:
            self._note_error(path, error)
            self._real[path] = None
            return None

    def _walk(self, path: str, followed: int) -> str | None:
        """Return where a path leads: its folder first, which is mostly known already, then its last step."""
        if path in self._real or path == "":
            if path in self.problems and self._real.get(path) is None:
                raise OSError(errno.ELOOP, self.problems[path])  # what lies below it is just as unreadable
            return self._real.get(path, "")
        if followed > MAX_LINKS:
            raise OSError(errno.ELOOP, "its links lead in a circle")
        if path.count("/") > MAX_DEPTH:
            raise OSError(errno.ENAMETOOLONG, "its path is too deep")
        folder, _, name = path.rpartition("/")
        here = self._walk(folder, followed)
        found = None if here is None else self._step(here, name, followed)
        self._real[path] = found
        return found

    def _step(self, here: str, name: str, followed: int) -> str | None:
        if name in ("", "."):
            return here
        if name == "..":
            return here.rpartition("/")[0]
        step = f"{here}/{name}" if here else name
        if step in _PER_PROCESS:
            return step
        kind = self.tree.kind(step)
        if kind is not PathKind.LINK:
            return None if kind is None else step
        target = self.links.setdefault(step, self.tree.target(step))
        base = "" if target.startswith("/") else f"{here}/"
        return self._walk((base + target).strip("/"), followed + 1)

    def _run(self, name: str, argv: Sequence[str]) -> tuple[str | None, str]:
        path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin", "/usr/local/bin"))
        program = shutil.which(argv[0], path=path)
        left = DEADLINE_S - (time.monotonic() - self.began_s)
        if program is None:
            return None, f"{argv[0]} is not installed"
        if left <= 0:
            return None, f"not run: the audit's {DEADLINE_S:.0f} s were over"
        limit = min(COMMAND_TIMEOUT_S, left)
        try:
            done = subprocess.run(  # noqa: S603
                [program, *argv[1:]], stdin=subprocess.DEVNULL, capture_output=True, timeout=limit, check=False,
                env={**os.environ, "LC_ALL": "C", "PATH": path},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None, f"did not answer within {limit:.0f} s"
        except OSError as error:
            return None, str(error.strerror)
        output = done.stdout[: 4 * MAX_FILE_BYTES].decode("utf-8", "replace")
        if done.returncode != 0 and not output.strip():
            first = done.stderr.decode("utf-8", "replace").strip().splitlines()
            return None, f"exit status {done.returncode}" + (f": {first[0][:200]}" if first else "")
        return output, ""

    def _captured_output(self, name: str, argv: Sequence[str]) -> tuple[str | None, str]:
        text = self.text(f"{NOTES}/commands/{name}")
        if text is not None:
            return text + "\n", ""
        reasons = self.manifest.get("unreadable")
        reason = reasons.get(f"`{' '.join(argv)}`") if isinstance(reasons, dict) else None
        return None, f"{reason} (when captured)" if reason else "its output was not captured"

    def _as_number(self, path: str, text: str | None) -> int | None:
        if text is None:
            return None
        try:
            return int(text, 16) if text.startswith("0x") else int(text)
        except ValueError:
            self.note({path: f"holds {_shown(text)}, which is no number"})
            return None

    def _note_error(self, path: str, error: OSError) -> None:
        if error.errno in _NO_VALUE:
            return
        reason = error.strerror or str(error)
        self.note({path: reason[:1].lower() + reason[1:]})

    def _note_again(self, path: str) -> None:
        if path in self.problems:
            self.note({path: self.problems[path]})

    def _note_captured(self, path: str) -> None:
        """Repeat what the capture itself could not read."""
        reasons = self.manifest.get("unreadable")
        if isinstance(reasons, dict) and isinstance(reasons.get(path), str):
            self.note({path: f"{reasons[path]} (when captured)"})


def _filtered(path: str, found: bytes) -> bytes:
    make = next((make for name, make in FILE_FILTERS.items() if path.strip("/").endswith(name)), None)
    return found if make is None else make(found.decode("utf-8", "replace")).encode()


def _shown(text: str) -> str:
    return json.dumps(text[:40])
