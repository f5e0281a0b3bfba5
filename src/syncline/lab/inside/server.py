"""Process 1 of a lab: one loop that answers requests, starts processes, reaps them and keeps the clock of faults."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import resource
import selectors
import signal
import socket
import time
from collections.abc import Callable

from syncline.errors import LabError, SynclineError
from syncline.lab.blueprint import Blueprint
from syncline.lab.inside import kernel, oracle, protocol
from syncline.lab.inside.build import Works
from syncline.lab.inside.injector import Injector
from syncline.lab.inside.nursery import Nursery
from syncline.lab.inside.protocol import Message
from syncline.lab.observe import meter_order, sampler_order

VISITOR_PATIENCE_S = 5.0
JOINED = ("user", "mnt", "pid", "ipc")
"""Namespaces that somebody joins along with a host's network."""
OBSERVERS: dict[str, tuple[str, Callable[..., Message]]] = {
    "record": ("sampler", sampler_order),
    "measure": ("meter", meter_order),
}
Answer = Message | tuple[Message, list[int]]


class LabServer:
    """Serves the maker over `control` and anybody of the same user over `listener`; ends when the maker is gone."""

    def __init__(self, control: socket.socket, listener: socket.socket) -> None:
        self.control = control
        self.listener = listener
        self.selector = selectors.DefaultSelector()
        self.timers: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self.works: Works | None = None
        self.nursery: Nursery | None = None
        self.injector: Injector | None = None
        self.running = True
        self.has_proc = False

    def serve(self) -> None:
        """Answer until told to stop or the maker is gone."""
        self.has_proc = own_mounts()
        _raise_file_limit()
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(wake_read, selectors.EVENT_READ, "child")
        self.selector.register(self.control, selectors.EVENT_READ, "peer")
        self.selector.register(self.listener, selectors.EVENT_READ, "knock")
        protocol.send(self.control, {"event": "ready", "own_proc": self.has_proc})
        while self.running:
            for key, _ in self.selector.select(self._until_timer()):
                self._handle(key)
            self._ring_timers()

    def at(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do something after a while."""
        heapq.heappush(self.timers, (time.monotonic() + delay_s, next(self._number), action))

    def tell(self, channel: socket.socket | None, event: Message) -> None:
        """Send an event to whoever should know, if still there."""
        try:
            protocol.send(channel or self.control, event)
        except OSError:
            if channel is None or channel is self.control:
                self.running = False

    def _until_timer(self) -> float | None:
        return max(0.0, self.timers[0][0] - time.monotonic()) if self.timers else None

    def _ring_timers(self) -> None:
        while self.timers and self.timers[0][0] <= time.monotonic():
            heapq.heappop(self.timers)[2]()

    def _handle(self, key: selectors.SelectorKey) -> None:
        if key.data == "child":
            os.read(key.fd, 4096)
            if self.nursery is not None:
                self.nursery.reap()
        elif key.data == "knock":
            self._welcome()
        else:
            assert isinstance(key.fileobj, socket.socket)
            self._serve_one(key.fileobj)

    def _welcome(self) -> None:
        channel, _ = self.listener.accept()
        if protocol.peer_uid(channel) != os.geteuid():  # the abstract socket has no file permissions of its own
            channel.close()
            return
        channel.settimeout(VISITOR_PATIENCE_S)  # a visitor that stalls must not hold up the lab
        self.selector.register(channel, selectors.EVENT_READ, "peer")

    def _serve_one(self, channel: socket.socket) -> None:
        try:
            request, files = protocol.receive(channel)
        except (EOFError, OSError):
            self._part(channel)
            return
        number = request.pop("id", None)
        passed: list[int] = []
        try:
            answer = self._do(request, files, channel)
            body, passed = answer if isinstance(answer, tuple) else (answer, [])
            reply = {"id": number, "ok": body}
        except SynclineError as error:
            reply = {"id": number, "error": error.to_json()}
        except Exception as error:  # whoever asked must hear of it, whatever it is
            reply = {"id": number, "error": {"error": "LabError", "message": f"{type(error).__name__}: {error}"}}
        try:
            protocol.send(channel, reply, passed)
        except OSError:  # gone before the answer
            self._part(channel)
        finally:
            for file in (*files, *passed):
                os.close(file)

    def _part(self, channel: socket.socket) -> None:
        with contextlib.suppress(KeyError, ValueError):  # twice in one round of the loop
            self.selector.unregister(channel)
        channel.close()
        if channel is self.control:
            self.running = False

    # Requests

    def _do(self, request: Message, files: list[int], channel: socket.socket) -> Answer:
        verb = request.pop("do")
        if verb == "build":
            return self._build(**request)
        if verb == "stop":
            self.running = False
            return {}
        if self.works is None or self.nursery is None or self.injector is None:
            raise LabError("the lab is not built yet.")
        if verb in OBSERVERS:
            module, order = OBSERVERS[verb]
            return self._observe(module, order(self.works, files, **request), files, channel)
        if verb == "spawn":
            return self.nursery.spawn(files=files, channel=channel, **request)
        answers: dict[str, Callable[..., Answer]] = {
            "fault": self.injector.order,
            "mend": self.injector.mend,
            "reshape": self.works.reshape,
            "stop-recording": self.nursery.stop_helper,
            "namespaces": self._namespaces,
            "signal": self.nursery.signal,
            "paths": self._paths,
            "describe": self._describe,
        }
        if verb not in answers:
            raise SynclineError(f'a lab does not know how to "{verb}".')
        return answers[verb](**request)

    def _observe(self, module: str, order: Message, files: list[int], channel: socket.socket) -> Message:
        """Start an observer, which says `recorded` to the one who asked when it has ended."""
        assert self.works is not None and self.nursery is not None
        child = self.nursery.helper(module, order, [*files, *self.works.namespaces])
        event = {"event": "recorded", "recording": child.number}
        child.on_exit = lambda code: self.tell(channel, {**event, "code": code})
        return {"recording": child.number}

    def _paths(self) -> Message:
        assert self.works is not None
        return {"paths": oracle.paths(self.works)}

    def _describe(self) -> Message:
        assert self.works is not None and self.nursery is not None and self.injector is not None
        return {
            "blueprint": self.works.blueprint.to_json(),
            "processes": self.nursery.listing(),
            "faults": self.injector.listing(),
        }

    def _build(self, blueprint: Message) -> Answer:
        self.works = Works(Blueprint.from_json(blueprint))
        self.works.build()
        self.nursery = Nursery(self, self.works)
        self.injector = Injector(self, self.works, self.nursery)
        for number, wire in self.works.wires.items():
            delay_s = self.works.blueprint.cables[number].delay_s
            self.nursery.helper("relay", {"namespace": wire, "delay_s": delay_s}, [wire])
        bind_hosts_file(self.works.blueprint)
        return {"failed_settings": self.works.failed_settings}

    def _namespaces(self, host: int) -> Answer:
        """Hand out the namespaces of the lab and one host, for somebody who wants to join them."""
        assert self.works is not None
        opened = [os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in JOINED]
        try:
            return {"kinds": [*JOINED, "net"]}, [*map(os.dup, opened), os.dup(self.works.namespaces[host])]
        finally:
            for file in opened:
                os.close(file)


def own_mounts() -> bool:
    """Show the lab's processes the lab's own process numbers; False where the kernel forbids a fresh /proc."""
    try:
        kernel.mount("proc", "/proc", "proc")
    except OSError:
        return False
    return True


def bind_hosts_file(blueprint: Blueprint) -> bool:
    """Make host names resolve inside the lab; touches only the lab's own view of /etc/hosts."""
    lines = ["127.0.0.1 localhost"]
    for host in blueprint.hosts:
        for number, (_, end, _) in enumerate(blueprint.ports(host)):
            name = blueprint.boxes[host].name
            names = f"{name}-{end.interface}" if number else f"{name} {name}-{end.interface}"
            # The second form is what a socket that speaks IPv6 and IPv4 sees; torch asks for the name of that.
            lines += [f"{end.address} {names}", f"::ffff:{end.address} {names}"]
    # A file of no file system: in a tmpfs that is taken away again at once, so that only the binding is left.
    shelf = next((folder for folder in ("/mnt", "/srv", "/opt") if os.path.isdir(folder)), "/")
    try:
        kernel.mount("tmpfs", shelf, "tmpfs")
    except OSError:
        return False
    try:
        with open(f"{shelf}/hosts", "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        kernel.bind(f"{shelf}/hosts", "/etc/hosts")
    except OSError:
        return False
    finally:
        kernel.detach(shelf)
    return True


def _raise_file_limit() -> None:
    """Allow as many open files as may be: a box takes a handful."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536) if hard > 0 else 65_536, hard))
