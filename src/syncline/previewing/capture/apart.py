"""A process apart: it and what it starts send nothing, and what they write is gone when they end, in any language.

An own network has nothing but a loopback. Over every folder lies a layer in memory that takes what is written, so
that scripts find what they wrote and nothing of it reaches a disk; sockets with a path answer nobody through it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

NEW_USER, NEW_NETWORK, NEW_MOUNTS = 0x10000000, 0x40000000, 0x00020000
SET_FLAGS, UP_AND_RUNNING = 0x8914, 0x41
BIND, RECURSIVE, PRIVATE, REMOUNT = 0x1000, 0x4000, 0x40000, 0x20
AS_IT_IS = ("/proc", "/sys", "/dev")
"""What no layer lies over: devices and the kernel's own files."""
MOST_NAME = 15
"""Characters that the kernel keeps of a process's name."""


def rank_name(folder: Path) -> str:
    """Return the name of the process whose files are in `folder`, by which its forks are found."""
    return str(folder)[-MOST_NAME:]


def alone(kept: Path | None = None) -> tuple[bool, bool]:
    """Leave every network, and put a layer over all files but the folder `kept`; return which of both the kernel let.

    Without `kept` files are left as they are. It holds for this process and all it starts.
    """
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    network, files = NEW_NETWORK, NEW_MOUNTS if kept is not None else 0
    for flags in dict.fromkeys((network | files, network)):
        if libc.unshare(flags if user == 0 else flags | NEW_USER) == 0:
            break
    else:
        return False, False
    if user != 0:  # who it was outside
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as loopback:
        fcntl.ioctl(loopback, SET_FLAGS, struct.pack("16sh14x", b"lo", UP_AND_RUNNING))
    return True, kept is not None and bool(flags & NEW_MOUNTS) and _layered(kept, private=user != 0)


def _layered(kept: Path, *, private: bool) -> bool:
    """Go on under a root in which a layer lies over every folder; return whether the kernel let it."""
    here, home = os.getcwd(), kept / "apart"
    home.mkdir(exist_ok=True)
    try:
        _mount("none", "/", "", RECURSIVE | PRIVATE)
        _mount("tmpfs", str(home), "tmpfs", 0, "mode=755")
        layers = _Layers(home, private=private)
        layers.over(Path("/"))
        _mount(str(kept), f"{layers.root}{kept}", "", BIND | RECURSIVE)
        os.chroot(layers.root)
        os.chdir(here)
    except OSError:
        return False
    return True


class _Layers:
    """A second root in the making; a layer cannot hold a mount, so that folders with mounts in them are made anew."""

    def __init__(self, home: Path, *, private: bool) -> None:
        self.home, self.root = home, home / "root"
        self.own = ",userxattr" if private else ""
        self.count = 0
        rows = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        self.places = {row[4].encode().decode("unicode_escape") for row in rows}

    def over(self, place: Path) -> None:
        """Put what lies at a place into the second root."""
        target = Path(f"{self.root}{place}")
        if place.is_symlink():
            target.symlink_to(os.readlink(place))
        elif str(place) in AS_IT_IS:
            target.mkdir()
            _mount(str(place), str(target), "", BIND | RECURSIVE)
        elif not place.is_dir():
            target.touch()
            _read_only(place, target)
        elif any(Path(each).is_relative_to(place) and each != str(place) for each in self.places):
            target.mkdir()
            target.chmod(place.stat().st_mode & 0o7777)
            for each in sorted(place.iterdir()):
                self.over(each)
        else:
            target.mkdir()
            self._layer(place, target)

    def _layer(self, place: Path, target: Path) -> None:
        self.count += 1
        upper, work = self.home / f"upper{self.count}", self.home / f"work{self.count}"
        upper.mkdir()
        work.mkdir()
        upper.chmod(place.stat().st_mode & 0o7777)
        try:
            options = f"lowerdir={place},upperdir={upper},workdir={work}{self.own}"
            _mount("overlay", str(target), "overlay", 0, options)
        except OSError:  # no layer lies over such a file system, or it holds a mount that cannot be seen
            _read_only(place, target)


def _read_only(place: Path, target: Path) -> None:
    _mount(str(place), str(target), "", BIND | RECURSIVE)
    kept = os.statvfs(target).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)  # which must stay
    _mount("none", str(target), "", REMOUNT | BIND | os.ST_RDONLY | kept)


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), target.encode(), kind.encode() or None, flags, options.encode() or None) != 0:
        raise OSError(ctypes.get_errno(), f"{source} is not mounted on {target}")
