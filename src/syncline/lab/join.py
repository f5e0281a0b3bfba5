"""Run a command inside a host of a running lab, at the terminal it was asked from."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence

from syncline.errors import LabError
from syncline.lab.inside import kernel
from syncline.lab.registry import Visit

_KINDS = {
    "user": kernel.NEWUSER,
    "mnt": kernel.NEWNS,
    "pid": kernel.NEWPID,
    "ipc": kernel.NEWIPC,
    "net": kernel.NEWNET,
}


def run_inside(visit: Visit, host: str, command: Sequence[str], *, keep_output: bool = False) -> tuple[int, str]:
    """Run a command on a host of the lab with this process's own terminal; returns its exit code and output if kept.

    The process is a child of this one, so job control works, and it belongs to the lab: it ends with it.
    """
    blueprint, _ = visit.describe()
    answer, files = visit.ask("namespaces", host=blueprint.host(host))
    try:
        namespaces = list(zip(answer["kinds"], files, strict=True))
        own_user = os.stat(files[answer["kinds"].index("user")]).st_ino == os.stat("/proc/self/ns/user").st_ino
        joined = [(kind, file) for kind, file in namespaces if not (kind == "user" and own_user)]
        environment = {
            **os.environ,
            "SYNCLINE_LAB": blueprint.name,
            "SYNCLINE_LAB_HOST": host,
            "PS1": f"[{host}] \\w \\$ ",
        }
        return _run(list(command), joined, host, environment, keep_output)
    finally:
        for file in files:
            os.close(file)


def enter_user(visit: Visit) -> None:
    """Move this process into the lab's user namespace, in which it may read the lab's networks.

    Only a process of one thread can, so this comes before whatever starts any.
    """
    answer, files = visit.ask("namespaces", host=0)
    try:
        kernel.setns(files[answer["kinds"].index("user")], kernel.NEWUSER)
    except OSError as error:
        raise LabError(f"cannot enter the lab: {error.strerror}.", hint="Only the user who made it can.") from None
    finally:
        for file in files:
            os.close(file)


def _run(
    command: list[str], namespaces: list[tuple[str, int]], host: str, environment: dict[str, str], keep_output: bool
) -> tuple[int, str]:
    here = os.getcwd()

    def prepare() -> None:
        for kind, file in namespaces:
            kernel.setns(file, _KINDS[kind])
        os.chdir(here)  # joining a mount namespace goes to its root
        kernel.unshare(kernel.NEWUTS)
        kernel.set_host_name(host)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command
    try:
        # `setns` moves only children into a PID namespace, so a helper shell forks the command.
        process = subprocess.Popen(
            ["/bin/sh", "-c", '"$@"; exit $?', "sh", *command],
            env=environment,
            preexec_fn=prepare,
            stdout=subprocess.PIPE if keep_output else None,
            text=True,
        )
        output, _ = process.communicate()
        return process.returncode, output or ""
    except (OSError, subprocess.SubprocessError) as error:
        raise LabError(f"cannot enter {host}: {error}.", hint="Only the user who made the lab can.") from None
    finally:
        signal.signal(signal.SIGINT, before)
