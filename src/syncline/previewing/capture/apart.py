"""A process with no network: neither it nor what it starts can send anything, in whatever language it is written."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000
SET_FLAGS, UP_AND_RUNNING = 0x8914, 0x41


def alone() -> bool:
    """Leave every network but an own loopback, for this process and all it starts; return whether the kernel let it."""
    user, group = os.getuid(), os.getgid()
    flags = NEW_NETWORK if user == 0 else NEW_USER | NEW_NETWORK
    if ctypes.CDLL(None, use_errno=True).unshare(flags) != 0:
        return False
    if user != 0:  # who it was outside
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as loopback:
        fcntl.ioctl(loopback, SET_FLAGS, struct.pack("16sh14x", b"lo", UP_AND_RUNNING))
    return True
