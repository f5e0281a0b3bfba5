"""The processes of a lab: started in a host's namespace, watched, signalled, and reported when they end."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from syncline.errors import LabError
from syncline.lab.inside import kernel
from syncline.lab.inside.build import Works
from syncline.lab.inside.protocol import Message

OWN_FILE_LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)


class Messenger(Protocol):
    """What a nursery needs of its server."""

    has_proc: bool

    def tell(self, channel: socket.socket | None, event: Message) -> None:
        """Send an event."""


@dataclass
class Child:
    """One running process: who started it, where, and what to call when it ends."""

    number: int
    process: subprocess.Popen[bytes]
    box: int
    label: str
    channel: socket.socket | None
    on_exit: Callable[[int], None] | None = None


class Nursery:
    """All processes of one lab."""

    def __init__(self, server: Messenger, works: Works) -> None:
        self.server = server
        self.works = works
        self.children: dict[int, Child] = {}
        self._number = itertools.count(1)

    def spawn(
        self,
        *,
        files: list[int],
        channel: socket.socket,
        host: int,
        argv: list[str],
        env: dict[str, str],
        cwd: str,
        label: str = "",
        core: int | None = None,
        sysfs: bool = False,
    ) -> Message:
        """Start a command in a host: `files` are its stdin, stdout and stderr."""
        name = self.works.blueprint.boxes[host].name
        prepare = self._preparation(host, name, core, sysfs)
        try:
            process = subprocess.Popen(
                argv,
                stdin=files[0],
                stdout=files[1],
                stderr=files[2],
                env=env,
                cwd=cwd,
                start_new_session=True,
                preexec_fn=prepare,  # safe: this process has one thread
            )
        except (OSError, subprocess.SubprocessError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise LabError(f'cannot start "{argv[0]}" on {name}: {reason}.', hint="Check its path and mode.") from None
        return self._keep(process, host, label or argv[0], channel)

    def helper(self, module: str, order: Mapping[str, Any], files: Sequence[int]) -> Child:
        """Start one of the lab's own helpers, which read their order from stdin and find namespaces among `files`."""
        text = os.memfd_create("order")  # not an argument: those may not be long
        os.write(text, json.dumps(order).encode())
        os.lseek(text, 0, os.SEEK_SET)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"syncline.lab.inside.{module}"],
            pass_fds=tuple(files),
            stdin=text,
            start_new_session=True,
        )
        os.close(text)
        number = self._keep(process, -1, module, None)["process"]
        return self.children[number]

    def _keep(self, process: subprocess.Popen[bytes], box: int, label: str, channel: socket.socket | None) -> Message:
        number = next(self._number)
        self.children[number] = Child(number, process, box, label, channel)
        return {"process": number, "pid": process.pid}

    def _preparation(self, host: int, name: str, core: int | None, sysfs: bool) -> Callable[[], None]:
        namespace = self.works.namespaces[host]

        def prepare() -> None:
            kernel.setns(namespace, kernel.NEWNET)
            kernel.unshare(kernel.NEWUTS)
            kernel.set_host_name(name)
            if sysfs:  # the inherited one shows the interfaces of the machine
                kernel.unshare(kernel.NEWNS)
                kernel.mount("sysfs", "/sys", "sysfs")
            if core is not None:
                os.sched_setaffinity(0, {core})
            resource.setrlimit(resource.RLIMIT_NOFILE, OWN_FILE_LIMIT)

        return prepare

    def reap(self) -> None:
        """Collect the processes that ended and report them."""
        by_pid = {child.process.pid: child for child in self.children.values()}
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid in by_pid:  # others are orphans that process 1 inherits
                    self._ended(by_pid[pid], os.waitstatus_to_exitcode(status))

    def _ended(self, child: Child, code: int) -> None:
        child.process.returncode = code
        del self.children[child.number]
        if child.on_exit is not None:
            child.on_exit(code)
        if child.channel is not None:
            event = {"event": "exit", "process": child.number, "code": code, "at_s": time.monotonic()}
            self.server.tell(child.channel, event)

    def signal(self, *, process: int | None = None, host: int | None = None, number: int) -> Message:
        """Send a signal to one process and its children, or to all processes of a host."""
        if process is not None:
            child = self.children.get(process)
            pids = self._family(child) if child is not None else []
        else:
            assert host is not None
            pids = self.pids_of_host(host)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return {"signalled": len(pids)}

    def _family(self, child: Child) -> list[int]:
        """Return the processes of a child's session: it leads one of its own."""
        if not self.server.has_proc:
            return [-child.process.pid]  # its process group
        return [pid for pid, session in _sessions() if session == child.process.pid]

    def pids_of_host(self, host: int) -> list[int]:
        """Return the processes in a host's network namespace, whoever started them."""
        if not self.server.has_proc:
            return [-child.process.pid for child in self.children.values() if child.box == host]
        wanted = os.fstat(self.works.namespaces[host]).st_ino
        found = []
        for pid, _ in _sessions():
            with contextlib.suppress(OSError):
                if pid != 1 and os.stat(f"/proc/{pid}/ns/net").st_ino == wanted:
                    found.append(pid)
        return found

    def stop_helper(self, *, recording: int) -> Message:
        """End a helper."""
        if recording in self.children:
            os.kill(self.children[recording].process.pid, signal.SIGTERM)
        return {}

    def listing(self) -> list[Message]:
        """Return the processes that people started."""
        boxes = self.works.blueprint.boxes
        return [
            {"process": c.number, "pid": c.process.pid, "host": boxes[c.box].name, "label": c.label}
            for c in self.children.values()
            if c.box >= 0
        ]


def _sessions() -> list[tuple[int, int]]:
    """Return (process, session) of every process of the lab; needs the lab's own /proc."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                found.append((int(entry), os.getsid(int(entry))))
    return found
