"""Limits of processes: locked memory, files, stack, shared memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from syncline.auditing.expect import Expect
from syncline.auditing.rule import AuditRule, CannotTell, Sight
from syncline.describe import units
from syncline.finding import Severity
from syncline.host.host import Host
from syncline.host.huge_pages import meminfo

MIN_MEMLOCK_BYTES = 16 * 2**30
"""AWS's EFA health check asks for 16 GiB; unlimited is what everyone advises."""
MIN_FILES = 128_000
MIN_STACK_BYTES = 2 * 2**20
MIN_SHM_BYTES = 2**30
UNLIMITED = float("inf")
SHM = "/dev/shm"  # noqa: S108  (looked at, not written to)


def limit(host: Host, name: str) -> float:
    """Return a soft limit of this process, in bytes or as a count."""
    text = host.root.text("proc/self/limits")
    if text is None:
        raise CannotTell("/proc/self/limits cannot be read")
    match = re.search(rf"^{re.escape(name)}\s+(\d+|unlimited)", text, re.MULTILINE)
    if match is None:
        raise CannotTell(f'/proc/self/limits has no line "{name}"')
    return UNLIMITED if match.group(1) == "unlimited" else float(match.group(1))


def memlock(host: Host, expect: Expect) -> Iterator[Sight]:
    value = limit(host, "Max locked memory")
    if value < MIN_MEMLOCK_BYTES:
        yield Sight("this process", f"max locked memory {units.show_size(value)}", "unlimited", ("proc/self/limits",))


def files(host: Host, expect: Expect) -> Iterator[Sight]:
    value = limit(host, "Max open files")
    if value < MIN_FILES:
        yield Sight("this process", f"max open files {value:,.0f}", f"at least {MIN_FILES:,}", ("proc/self/limits",))


def stack(host: Host, expect: Expect) -> Iterator[Sight]:
    value = limit(host, "Max stack size")
    if value == UNLIMITED or value <= MIN_STACK_BYTES:
        shown = "unlimited" if value == UNLIMITED else units.show_size(value)
        yield Sight("this process", f"max stack size {shown}", "8 MiB", ("proc/self/limits",))


def shm(host: Host, expect: Expect) -> Iterator[Sight]:
    text = host.root.text("proc/self/mounts") or host.root.text("proc/mounts")
    if text is None:
        raise CannotTell("the list of mounts cannot be read")
    rows = [line.split() for line in text.splitlines()]
    options = [row[3] for row in rows if len(row) > 3 and row[1] == SHM]
    if not options:
        yield Sight(SHM, "is not mounted", f"at least {units.show_size(MIN_SHM_BYTES)}", ("proc/self/mounts",))
        return
    sized = re.search(r"(?:^|,)size=(\d+)([kmg]?)", options[-1])
    if sized:
        room = int(sized.group(1)) * {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}[sized.group(2)]
    else:
        room = (meminfo(host.root, "MemTotal") or 0) * 1024 // 2  # the kernel's default
    if 0 < room < MIN_SHM_BYTES:
        expected = f"at least {units.show_size(MIN_SHM_BYTES)}"
        yield Sight(SHM, units.show_size(room), expected, ("proc/self/mounts",))


RULES = (
    AuditRule("limits.memlock", "processes may lock memory for RDMA", memlock,
        "Registering buffers fails: ibv_reg_mr, Cannot allocate memory.",
        "ulimit -l unlimited, also for slurmd and in containers (limits.conf, LimitMEMLOCK=infinity, IPC_LOCK).",
        "nccl-tests #206, nccl #1191", needs="rdma", severity=Severity.CRITICAL),
    AuditRule("limits.files", "processes may open many files", files,
        "Connections of all ranks and channels, plus data files, run out of descriptors at scale.",
        "ulimit -n 1048576 for jobs (limits.conf, slurmd's LimitNOFILE, the container's ulimit).",
        "NCCL troubleshooting; ml-engineering"),
    AuditRule("limits.stack", "the stack is neither tiny nor unlimited", stack,
        "Unlimited stacks make threads of 2 MiB that NCCL's helpers overrun; tiny ones crash too.",
        "ulimit -s 8192",
        "NCCL troubleshooting, stack size"),
    AuditRule("limits.shm", "shared memory has room for collectives inside the host", shm,
        "NCCL and data loaders fail to extend shared memory; containers get 64 MiB by default.",
        "docker --shm-size=16g (or --ipc=host); Kubernetes: an emptyDir of medium Memory on /dev/shm.",
        "NCCL troubleshooting, shared memory", severity=Severity.CRITICAL),
)  # fmt: skip
