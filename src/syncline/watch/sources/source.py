"""What every source is: a name and a `read()` that gives what is there, leaves out what is not, and never raises."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path

from syncline.watch.metric import Reading


class CounterSource(ABC):
    """One origin of numbers. What has vanished is left out; trouble is in `problem`, not raised."""

    name: str
    problem: str = ""
    is_quick: bool = False
    """Whether reading it at every look costs next to nothing; else once a second is enough."""

    @abstractmethod
    def read(self) -> Reading:
        """Return the numbers as they are now."""

    def close(self) -> None:  # noqa: B027 - most hold nothing open
        """Let go of sockets and libraries."""


ALIVE_S = 5.0


class SourceTree:
    """The file tree that sources read: `/` on a host, a captured or invented tree elsewhere."""

    def __init__(self, path: str | os.PathLike[str] = "/") -> None:
        self.path = Path(path)
        self._name = os.fspath(self.path)
        self.is_host = self.path == Path("/") or self._is_alive()

    def _is_alive(self) -> bool:
        """Tell whether this is the root of the running host, seen from a container in its network: not a capture."""
        if self.path == Path("/"):
            return True
        here = SourceTree()
        boot, uptime = ("proc/sys/kernel/random/boot_id", "proc/uptime")
        if not self.text(boot) or self.text(boot) != here.text(boot):
            return False
        own, other = ((tree.text(uptime) or "0").split()[0] for tree in (here, self))
        return abs(float(own) - float(other)) < ALIVE_S and self.names("sys/class/net") == here.names("sys/class/net")

    def at(self, *parts: str) -> Path:
        return self.path.joinpath(*parts)

    def text(self, *parts: str) -> str | None:
        """Return a small file's text; None where it cannot be read (it may vanish between a listing and a look)."""
        try:
            with open("/".join((self._name, *parts)), "rb", buffering=0) as file:
                return (file.read(1 << 20) or b"").decode("utf-8", "replace").strip()
        except OSError:
            return None

    def number(self, *parts: str) -> int | None:
        """Return a file's whole number; None where there is none ("N/A (no PMA)", say)."""
        text = self.text(*parts)
        if text is None:
            return None
        try:
            return int(text, 0)
        except ValueError:
            return None

    def names(self, *parts: str) -> list[str]:
        """Return what a folder holds, sorted; nothing where there is no folder."""
        try:
            return sorted(os.listdir(self.at(*parts)))
        except OSError:
            return []
