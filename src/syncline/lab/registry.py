"""Labs that are running: found by the abstract socket each listens on, joined by whoever owns them.

The kernel keeps the list: a socket's name goes with its last holder, so there is no file to go stale.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from syncline.errors import LabError
from syncline.lab.blueprint import Blueprint
from syncline.lab.inside import protocol
from syncline.lab.inside.protocol import Message
from syncline.lab.link import rebuilt

_NAME = re.compile(r"@(syncline-lab-(\d+)-(\d+)-\d+)\s*\Z")
_LISTENING = "00010000"
_PATIENCE_S = 30.0


@dataclass(frozen=True)
class RunningLab:
    """A lab of this user: its name and the process that made it."""

    name: str
    maker_pid: int


def running_labs() -> tuple[RunningLab, ...]:
    """Return the labs of this user in this network namespace, oldest process first."""
    table = Path("/proc/net/unix")
    found = []
    for line in table.read_text().splitlines() if table.exists() else []:
        match = _NAME.search(line)
        if match and line.split()[3] == _LISTENING and int(match.group(2)) == os.getuid():
            found.append(RunningLab(match.group(1), int(match.group(3))))
    return tuple(sorted(found, key=lambda lab: (lab.maker_pid, lab.name)))


def find_lab(name: str | None = None) -> Visit:
    """Return the running lab of that name (or the only one, without a name), ready to be asked."""
    labs = running_labs()
    if name is not None:
        chosen = [lab for lab in labs if name in (lab.name, lab.name.removeprefix("syncline-lab-"), str(lab.maker_pid))]
        if len(chosen) != 1:
            raise LabError(f'no lab is called "{name}".', hint="List them: syncline lab list.")
        return Visit(chosen[0])
    if not labs:
        raise LabError("no lab is running.", hint="Start one: syncline lab run CLUSTER -- COMMAND.")
    if len(labs) > 1:
        names = ", ".join(lab.name for lab in labs)
        raise LabError(f"{len(labs)} labs are running: {names}.", hint="Say which: --lab NAME.")
    return Visit(labs[0])


class Visit:
    """A connection to a lab that somebody else's process made."""

    def __init__(self, lab: RunningLab) -> None:
        self.lab = lab
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_PATIENCE_S)
        try:
            self._socket.connect(f"\0{lab.name}")
        except OSError as error:
            self._socket.close()
            raise LabError(f"cannot reach {lab.name}: {error.strerror}.", hint="It may just have ended.") from None
        # Anybody may take a name; only the owner's process is believed.
        if protocol.peer_uid(self._socket) != os.getuid():
            self._socket.close()
            raise LabError(f"{lab.name} belongs to another user.")

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def ask(self, do: str, **request: Any) -> tuple[Message, list[int]]:
        """Send a request and return the answer and the files that came with it."""
        try:
            protocol.send(self._socket, {"id": 1, "do": do, **request})
            while True:
                answer, files = protocol.receive(self._socket)
                if "id" in answer:
                    break
        except (OSError, EOFError):
            raise LabError(f"{self.lab.name} does not answer.", hint="It may just have ended.") from None
        if "error" in answer:
            raise rebuilt(answer["error"])
        return answer["ok"], files

    def describe(self) -> tuple[Blueprint, Mapping[str, Any]]:
        """Return what the lab is made of, and its processes and faults."""
        answer, _ = self.ask("describe")
        return Blueprint.from_json(answer.pop("blueprint")), answer
