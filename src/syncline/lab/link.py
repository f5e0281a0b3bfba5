"""The maker's end of a lab: the guard's process, the control socket, and a thread that hears what the lab says."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from syncline import errors
from syncline.errors import LabError, SynclineError
from syncline.lab.inside import protocol
from syncline.lab.inside.protocol import Message

ANSWER_PATIENCE_S = 120.0
_names = itertools.count()
OnBytes = Callable[[bytes], None]


class LabControl:
    """A running lab's process family, driven over its control socket."""

    def __init__(self, *, own_user: bool, on_event: Callable[[Message], None]) -> None:
        self._on_event = on_event
        self._numbers = itertools.count(1)
        self._answers: dict[int, SimpleQueue[tuple[Message, list[int]] | None]] = {}
        self._lock = threading.Lock()
        self._ready: SimpleQueue[Message | None] = SimpleQueue()
        self._actions: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._selector = selectors.DefaultSelector()
        self.alive = True
        listener, self.name = _listener()
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        lifeline_end, self._lifeline = os.pipe2(os.O_CLOEXEC)
        files = (theirs.fileno(), listener.fileno(), lifeline_end)
        command = [sys.executable, "-P", "-m", "syncline.lab.inside.init", *map(str, files), str(int(own_user))]
        try:
            self.guard = subprocess.Popen(command, pass_fds=files, stdin=subprocess.DEVNULL)
        finally:
            theirs.close()
            listener.close()
            os.close(lifeline_end)
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._listen, name="syncline-lab", daemon=True)
        self._thread.start()

    def wait_ready(self, timeout_s: float = 60.0) -> Message:
        """Return the lab's first word: `ready` or `refused`; None of both within the time is an error."""
        try:
            first = self._ready.get(timeout=timeout_s)
        except Exception:
            first = None
        if first is None:
            raise LabError("the lab's first process did not start.", hint="Is Python itself readable for this user?")
        return first

    def ask(self, do: str, files: Sequence[int] = (), **request: Any) -> tuple[Message, list[int]]:
        """Send a request and return the answer with the files that came with it; the lab's errors are raised here."""
        number = next(self._numbers)
        queue: SimpleQueue[tuple[Message, list[int]] | None] = SimpleQueue()
        with self._lock:
            if not self.alive:
                raise LabError("the lab has ended.")
            self._answers[number] = queue
            protocol.send(self.control, {"id": number, "do": do, **request}, files)
        try:
            found = queue.get(timeout=ANSWER_PATIENCE_S)
        except Exception:
            found = None
        if found is None:
            raise LabError(f'the lab ended before it answered "{do}".')
        answer, passed = found
        if "error" in answer:
            raise rebuilt(answer["error"])
        return answer["ok"], passed

    def watch(self, descriptor: int, on_bytes: OnBytes) -> None:
        """Hand over the bytes of a non-blocking pipe as they come; b"" once at its end, when it is closed."""
        self.later(lambda: self._selector.register(descriptor, selectors.EVENT_READ, on_bytes))

    def later(self, action: Callable[[], object]) -> None:
        """Do something in the listening thread, in the order of the calls."""
        self._actions.put(action)
        os.write(self._wake_write, b".")

    def drain(self, descriptors: Sequence[int]) -> None:
        """Hand over all that watched pipes hold now; for the listening thread alone: events and what comes `later`."""
        self._act()
        for descriptor in descriptors:
            key = self._selector.get_map().get(descriptor)
            while key is not None and self._take(key):
                pass

    def close(self) -> None:
        """End the lab and wait until the kernel has removed all its processes."""
        with contextlib.suppress(LabError, OSError):
            if self.alive:
                self.ask("stop")
        os.close(self._lifeline)
        self.guard.wait()
        self.alive = False
        with contextlib.suppress(OSError):
            os.write(self._wake_write, b".")
        self._thread.join()
        self.control.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _listen(self) -> None:
        with self._selector as selector:
            selector.register(self.control, selectors.EVENT_READ, None)
            selector.register(self._wake_read, selectors.EVENT_READ, None)
            while self.alive or len(selector.get_map()) > 2:
                for key, _ in selector.select():
                    if key.fileobj is self.control:
                        self._hear()
                    elif key.fd == self._wake_read:
                        with contextlib.suppress(BlockingIOError):
                            os.read(self._wake_read, 4096)
                        self._act()
                    elif selector.get_map().get(key.fd) is key:  # not closed by another event of this round
                        self._take(key)

    def _act(self) -> None:
        while not self._actions.empty():
            self._actions.get()()

    def _take(self, key: selectors.SelectorKey) -> bool:
        """Hand over the next bytes of a pipe; False where it holds none now, and at its end."""
        try:
            data = os.read(key.fd, 1 << 16)
        except BlockingIOError:
            return False
        key.data(data)
        if not data:
            self._selector.unregister(key.fd)
            os.close(key.fd)
        return bool(data)

    def _hear(self) -> None:
        try:
            message, files = protocol.receive(self.control)
        except (EOFError, OSError):
            self._selector.unregister(self.control)
            with self._lock:
                self.alive = False
                for queue in self._answers.values():
                    queue.put(None)
            self._ready.put(None)
            self._on_event({"event": "lost"})
            return
        if "id" in message:
            with self._lock:
                queue = self._answers.pop(message["id"])
            queue.put((message, files))
        elif message["event"] in ("ready", "refused"):
            self._ready.put(message)
        else:
            self._on_event(message)


def _listener() -> tuple[socket.socket, str]:
    """Return a socket under an abstract name: the kernel forgets it with its last holder, so no file is left behind."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    while True:
        name = f"syncline-lab-{os.getuid()}-{os.getpid()}-{next(_names)}"
        try:
            listener.bind(f"\0{name}")
        except OSError as error:  # somebody with this number in another PID namespace
            if error.errno != errno.EADDRINUSE:
                raise
            continue
        listener.listen(16)
        return listener, name


def rebuilt(error: dict[str, str]) -> SynclineError:
    """Return an error that a lab sent as the exception it was."""
    kind = getattr(errors, error.get("error", ""), LabError)
    parts = {name: error.get(name, "") for name in ("where", "detail", "hint")}
    return kind(error.get("message", "the lab failed."), **parts)
