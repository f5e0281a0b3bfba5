"""The few system calls that Python does not have: namespaces, mounts, and dying with the parent.

`os.unshare` and `os.setns` came with Python 3.12; these work from 3.11 on. All act on the calling thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
from functools import cache

NEWNS = 0x00020000
NEWUTS = 0x04000000
NEWIPC = 0x08000000
NEWUSER = 0x10000000
NEWPID = 0x20000000
NEWNET = 0x40000000

_PR_SET_PDEATHSIG = 1
_MS_BIND = 0x1000
_MS_PRIVATE_EVERYWHERE = (1 << 18) | 0x4000
_MNT_DETACH = 2


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Give this thread namespaces of its own; with NEWPID its next children."""
    _check(_libc().unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    """Move this thread into the namespace that a descriptor holds."""
    _check(_libc().setns(descriptor, kind), "setns")


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Ask for a signal when the parent (the thread that forked this process) ends; lost when credentials change."""
    _check(_libc().prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0), "prctl")


def mount(source: str, target: str, kind: str) -> None:
    """Mount a new file system such as `proc` or `tmpfs`."""
    _check(_libc().mount(source.encode(), target.encode(), kind.encode(), 0, None), f"mount {kind} on {target}")


def bind(source: str, target: str) -> None:
    """Show `source` in the place of `target`."""
    _check(_libc().mount(source.encode(), target.encode(), None, _MS_BIND, None), f"bind {source} on {target}")


def detach(target: str) -> None:
    """Take a mount away; what is bound elsewhere stays."""
    _check(_libc().umount2(target.encode(), _MNT_DETACH), f"umount {target}")


def private_mounts() -> None:
    """Keep mounts made from now on inside this mount namespace."""
    _check(_libc().mount(b"none", b"/", None, _MS_PRIVATE_EVERYWHERE, None), "make mounts private")


def set_host_name(name: str) -> None:
    """Set the host name of this UTS namespace."""
    text = name.encode()[:64]
    _check(_libc().sethostname(text, len(text)), "sethostname")
