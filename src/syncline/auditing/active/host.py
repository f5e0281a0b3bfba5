"""Processors, memory, disks, mounts and processes of a host, under a load of seconds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np

from syncline.auditing.active.busy import gpu_processes, stuck_processes
from syncline.auditing.expect import Expect
from syncline.auditing.rule import AuditRule, CannotTell, Sight
from syncline.describe.document import read_document
from syncline.describe.names import few
from syncline.finding import Action, Severity
from syncline.host.host import Host

BLOCK_BYTES = 1 << 26
STREAM_S = 0.5
OF_MEMORY = 0.35
"""Copies by NumPy in as many threads as processors get 45 to 70 % of the channels' rate on a sound host."""
PER_CPU_BPS = 4e9
"""What one processor copies at least; few of them cannot fill a socket's channels."""
DISK_BYTES = 1 << 26
LEAST_DISK_BPS = 50e6
LEAST_FREE = 0.02
MOUNT_S = 3.0
_REAL = re.compile(r"ext[234]|xfs|btrfs|zfs|f2fs|nfs4?|lustre|gpfs|wekafs|beegfs|ceph|cifs|9p|virtiofs|fuse\.\S+|vast")


def stream_Bps(seconds: float = STREAM_S, size_bytes: int = BLOCK_BYTES) -> float:
    """Copy memory in as many threads as this process has processors; bytes read and written per second."""
    cpus = len(os.sched_getaffinity(0))

    together = threading.Barrier(cpus)

    def copy_rate(_: int) -> float:
        source, target = np.ones(size_bytes, np.uint8), np.zeros(size_bytes, np.uint8)
        together.wait()
        began, moved = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            np.copyto(target, source)
            moved += 2 * size_bytes
        return moved / (time.perf_counter() - began)

    with ThreadPoolExecutor(cpus) as pool:
        return sum(pool.map(copy_rate, range(cpus)))


def memory_Bps(cpu: str, sockets: int) -> float | None:
    """Return the rate of all memory channels of a processor model, None where it is not known."""
    text = (files("syncline.auditing.active") / "memory.yaml").read_text("utf-8")
    for row in read_document(text, "memory.yaml").data:
        if re.search(str(row["cpu"]), cpu):
            return float(row["GBps"]) * 1e9 * max(1, sockets)
    return None


def stream(host: Host, expect: Expect) -> Iterator[Sight]:
    info = host.root.text("proc/cpuinfo") or ""
    model = re.search(r"^model name\s*:\s*(.*)$", info, re.MULTILINE)
    sockets = len(set(re.findall(r"^physical id\s*:\s*(\d+)", info, re.MULTILINE)))
    got = stream_Bps()
    host.made["cpu_stream"] = got, {}
    most = memory_Bps(model.group(1), sockets) if model else None
    cpus = len(os.sched_getaffinity(0))
    wanted = min(OF_MEMORY * most if most else float("inf"), PER_CPU_BPS * cpus / 2)
    if got < wanted:
        yield Sight("", f"copies {got / 1e9:.3g} GB/s in {cpus} threads", f"at least {wanted / 1e9:.3g} GB/s",
                    ("numpy copies of 64 MiB", model.group(1) if model else "processor not known"))  # fmt: skip


class MountRow(NamedTuple):
    """One line of /proc/self/mounts."""

    device: str
    path: str
    kind: str
    options: str


def mounts(text: str) -> list[MountRow]:
    """Return the file systems that hold data, each device once."""
    found: dict[str, MountRow] = {}
    for line in text.splitlines():
        cells = line.split(" ")
        if len(cells) >= 4 and _REAL.fullmatch(cells[2]):
            path = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), cells[1])
            found.setdefault(cells[0], MountRow(cells[0], path, cells[2], cells[3]))
    return list(found.values())


def mount(host: Host, expect: Expect) -> Iterator[Sight]:
    text = host.root.text("proc/self/mounts")
    if text is None:
        raise CannotTell("/proc/self/mounts cannot be read")
    written = written_by_fstab(host.root.text("etc/fstab") or "")
    for one in mounts(text):
        problem, wanted = _mount_problem(one, written)
        if problem:
            yield Sight(one.path, f"{one.kind} {problem}", wanted, (f"{one.device} on {one.path} ({one.options})",))


def _mount_problem(one: MountRow, written: set[str]) -> tuple[str, str]:
    """Return what is wrong with a file system; another program asks, since whoever asks a dead one hangs."""
    stat = subprocess.Popen(["/usr/bin/env", "stat", "-f", "-c", "%b %a", "--", one.path], stdin=subprocess.DEVNULL,  # noqa: S603
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    try:
        output, complaint = stat.communicate(timeout=MOUNT_S)
    except subprocess.TimeoutExpired:
        stat.kill()  # and not waited for: what hangs in the kernel does not end
        return f"does not answer within {MOUNT_S:.0f} s", "it answers"
    words = output.split()
    if stat.returncode:
        reason = complaint.decode("utf-8", "replace").strip().rpartition(": ")[2]
        return ("", "") if "ermission" in reason else (f"answers with an error: {reason[:80]}", "it answers")
    if "ro" in one.options.split(","):
        return ("is mounted read-only", "read and write, as in /etc/fstab") if one.path in written else ("", "")
    blocks, free = (int(words[0]), int(words[1])) if len(words) == 2 else (0, 0)
    if free < LEAST_FREE * blocks:
        return f"is full: {100 * free / blocks:.1f} % free", f"at least {100 * LEAST_FREE:.0f} % free"
    return "", ""


def written_by_fstab(text: str) -> set[str]:
    """Return the paths that /etc/fstab mounts to be written."""
    rows = [line.split() for line in text.splitlines() if not line.lstrip().startswith("#")]
    return {row[1] for row in rows if len(row) >= 4 and "ro" not in row[3].split(",")}


def disk(host: Host, expect: Expect) -> Iterator[Sight]:
    folder = tempfile.gettempdir()
    if shutil.disk_usage(folder).free < 4 * DISK_BYTES:
        yield Sight(folder, "less than 256 MiB free", "room for temporary files")
        return
    try:
        rate = write_Bps(Path(folder))
    except OSError as error:
        yield Sight(folder, f"cannot be written: {error.strerror}", "it can", severity=Severity.CRITICAL)
        return
    if rate < LEAST_DISK_BPS:
        yield Sight(folder, f"writes {rate / 1e6:.0f} MB/s", f"at least {LEAST_DISK_BPS / 1e6:.0f} MB/s",
                    ("64 MiB written and synced",))  # fmt: skip


def write_Bps(folder: Path, size_bytes: int = DISK_BYTES) -> float:
    """Write a file that has no name, so that nothing is left whatever happens, and sync it; bytes per second."""
    block = os.urandom(1 << 20)
    with tempfile.TemporaryFile(dir=folder) as file:
        began = time.perf_counter()
        for _ in range(size_bytes >> 20):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return size_bytes / max(time.perf_counter() - began, 1e-9)


def stuck(host: Host, expect: Expect) -> Iterator[Sight]:
    first = {pid for pid, _, _ in stuck_processes()}
    if first:
        time.sleep(1.0)  # a process that writes to a disk is in this state for moments
    for pid, name, waits in stuck_processes():
        if pid in first:
            yield Sight(f"process {pid} ({name})", "in uninterruptible sleep for a second and more",
                        "none", (f"/proc/{pid}/stat: D", f"waits in {waits or 'an unknown function'}"))  # fmt: skip


def leftover(host: Host, expect: Expect) -> Iterator[Sight]:
    used = gpu_processes(host)
    if used:
        names = [f"{pid} ({name}) on {where}" for pid, name, where in used]
        yield Sight("", f"processes {few(names)}", "none while no job runs", ("nvidia-smi --query-compute-apps",))


RULES = (
    AuditRule("active.cpu.stream", "memory is as fast as the processor's channels allow", stream,
        "Data loading, optimizer offload and copies to GPUs wait: a module is missing, or runs slower.",
        "Compare the memory modules with the other hosts (dmidecode -t memory): count, slots, speed; check power caps.",
        "azurehpc-health-checks check_cpu_stream", action=Action.INSPECT),
    AuditRule("active.mount", "every mounted file system answers, can be written where it should, and has room", mount,
        "A process that touches it hangs in state D or fails: a job stops at its next read or checkpoint.",
        "Hung: look at server and network, umount -l, mount again. Read-only: look for disk errors. Full: clean up.",
        "gcm dstate, io errors; NHC check_fs_mount, check_fs_free", severity=Severity.CRITICAL, action=Action.RESTART),
    AuditRule("active.disk", "the local disk writes and reads", disk,
        "Logs, caches and local checkpoints stall the job.",
        "Look at the disk's health (smartctl, nvme smart-log), at what else writes, and at free space.",
        "gcm io errors; NHC check_fs_*", action=Action.INSPECT),
    AuditRule("active.process.stuck", "no process is stuck in the kernel", stuck,
        "It waits for a disk, a file server or a driver that does not answer; nothing ends it.",
        "Look at what it waits for (cat /proc/PID/stack) and at the kernel log; most often only a reboot helps.",
        "gcm dstate; kernel hung_task", severity=Severity.CRITICAL, action=Action.RESTART),
    AuditRule("active.process.leftover", "no process of an earlier job is on a GPU", leftover,
        "It holds memory and time of the GPU: the next job runs out of memory or is slow.",
        "End it (its owner's job is over?), and reset the GPU if memory stays in use.",
        "gcm zombie; NHC check_ps_unauth_users", needs="gpu", action=Action.RESTART),
)  # fmt: skip
