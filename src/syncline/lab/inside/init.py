"""The process family of a lab: `python -m syncline.lab.inside.init`, started by `Lab` and never by hand.

    whoever made the lab   holds the lifeline (the write end of a pipe) and the control socket
      guard                has made the namespaces; waits for the maker or the lab to end
        init               process 1 of the lab's PID namespace: builds, starts ranks, injects faults, answers requests
          rank, rank ...

However the maker ends, the guard sees it and kills init; if the guard is killed, init dies with it; and
when init dies the kernel kills every process of its PID namespace and removes namespaces nobody holds.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from syncline.lab.inside import kernel, protocol

_FLAGS = kernel.NEWPID | kernel.NEWNET | kernel.NEWNS | kernel.NEWIPC


class Refusal(Exception):  # noqa: N818
    """The kernel does not let this user make a lab: the step that failed, and why."""

    def __init__(self, step: str, error: OSError) -> None:
        super().__init__(f"{step}: {error.strerror or error}")
        self.step = step
        self.reason = (error.strerror or str(error)).rpartition(": ")[2]


def main(arguments: list[str]) -> None:
    """Become the guard of a new lab; `arguments` are the numbers of the inherited files, and who to be."""
    control_number, listener_number, lifeline, user = (int(text) for text in arguments)
    control = socket.socket(fileno=control_number)
    listener = socket.socket(fileno=listener_number)
    maker = os.pidfd_open(os.getppid())
    os.setsid()  # a Ctrl-C at the terminal is for the maker, who then ends the lab in order
    try:
        enter_namespaces(own_user=bool(user))
    except Refusal as refused:
        protocol.send(control, {"event": "refused", "step": refused.step, "reason": refused.reason})
        return
    child = os.fork()
    if child == 0:
        os.close(maker)
        _be_init(control, listener, lifeline)
        return
    control.close()
    listener.close()
    _guard(maker, lifeline, child)


def enter_namespaces(*, own_user: bool) -> None:
    """Move this process (and its next child) into fresh namespaces, a user namespace first where that is needed."""
    if own_user:
        enter_user_namespace()
    _step("unshare(NEWPID|NEWNET|NEWNS|NEWIPC)", lambda: kernel.unshare(_FLAGS))
    _step("mount(private)", kernel.private_mounts)


def enter_user_namespace() -> None:
    """Be root in a user namespace of one's own, for what needs no more than that; only a process of one thread can."""
    uid, gid = os.getuid(), os.getgid()
    _step("unshare(NEWUSER)", lambda: kernel.unshare(kernel.NEWUSER))
    _step("write setgroups", lambda: _write("/proc/thread-self/setgroups", "deny"))
    _step("write uid_map", lambda: _write("/proc/thread-self/uid_map", f"0 {uid} 1"))
    _step("write gid_map", lambda: _write("/proc/thread-self/gid_map", f"0 {gid} 1"))


def _step(name: str, action: Callable[[], None]) -> None:
    try:
        action()
    except OSError as error:
        raise Refusal(name, error) from None


def _write(path: str, text: str) -> None:
    Path(path).write_text(text, encoding="ascii")


def _be_init(control: socket.socket, listener: socket.socket, lifeline: int) -> None:
    kernel.die_with_parent()
    os.close(lifeline)  # the guard watches it; the control socket tells init the same
    from syncline.lab.inside.server import LabServer

    try:
        LabServer(control, listener).serve()
    except (BrokenPipeError, ConnectionResetError):
        return  # the maker is gone; so is everything here in a moment


def _guard(maker: int, lifeline: int, child: int) -> None:
    """Wait until the maker or init ends, and see that init is gone and reaped."""
    handle = os.pidfd_open(child)
    poll = select.poll()
    # The lifeline alone would not do: a process that the maker forked may hold it open.
    for descriptor in (maker, lifeline, handle):
        poll.register(descriptor, select.POLLIN | select.POLLHUP)
    while handle not in (ready := {descriptor for descriptor, _ in poll.poll()}):
        os.kill(child, signal.SIGKILL)
        for descriptor in ready:
            poll.unregister(descriptor)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
