"""The kernel's messages as they come, from /dev/kmsg."""

from __future__ import annotations

import os
import re
from contextlib import suppress

DEVICE = "/dev/kmsg"
_RECORD = re.compile(r"(\d+),\d+,(\d+),[^;]*;(.*)")
_MOST = 4096


class KernelFollower:
    """Reads what the kernel says from now on; `problem` is why it cannot be read."""

    def __init__(self, device: str = DEVICE) -> None:
        self.problem = ""
        self._file = -1
        try:
            self._file = os.open(device, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            self.problem = f"{device}: {error.strerror}"

    def lines(self) -> list[str]:
        """Return the messages since the last look, in the form of dmesg."""
        found: list[str] = []
        while self._file >= 0 and len(found) < _MOST:
            try:
                record = os.read(self._file, 8192)
            except BlockingIOError:
                break
            except OSError:  # messages were overwritten before they were read: go on with those that are there
                continue
            if not record:
                break
            text = record.decode("utf-8", "replace").splitlines()[0]
            if match := _RECORD.match(text):
                seconds = int(match[2]) / 1e6
                found.append(f"<{int(match[1]) & 7}>[{seconds:12.6f}] {match[3]}")
        return found

    def close(self) -> None:
        if self._file >= 0:
            with suppress(OSError):
                os.close(self._file)
            self._file = -1
