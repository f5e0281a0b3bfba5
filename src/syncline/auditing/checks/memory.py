"""Huge pages: there where they are needed, on every NUMA node, not idle, safe with fork; and no stalls for them."""

from __future__ import annotations

from collections.abc import Iterator

from syncline.auditing.expect import Expect
from syncline.auditing.rule import AuditRule, CannotTell, Sight
from syncline.describe import units
from syncline.finding import Severity
from syncline.host.host import Host
from syncline.host.huge_pages import meminfo

IDLE_SHARE = 0.1
"""Of all memory: less is what EFA and DPDK set aside as a matter of course."""
_THP = "sys/kernel/mm/transparent_hugepage"
_SYSFS = "sys/kernel/mm/hugepages/*/nr_hugepages"


def efa(host: Host, expect: Expect) -> Iterator[Sight]:
    if not host.huge_pages:
        raise CannotTell("neither sysfs nor /proc/meminfo reports huge pages")
    if not any(pages.total for pages in host.huge_pages):
        yield Sight("", "no huge pages", "5128 of 2 MiB", ("proc/meminfo", _SYSFS))


def idle(host: Host, expect: Expect) -> Iterator[Sight]:
    memory = (meminfo(host.root, "MemTotal") or 0) * 1024
    for pages in host.huge_pages:
        kept = pages.total * pages.size_bytes
        if memory and pages.total == pages.free and kept > IDLE_SHARE * memory:
            place, observed = (
                f"{units.show_size(pages.size_bytes)} pages",
                f"{units.show_size(kept)} set aside, none in use",
            )
            limit = f"below {IDLE_SHARE:.0%} of {units.show_size(memory)}"
            yield Sight(place, observed, limit, (_SYSFS, "sys/kernel/mm/hugepages/*/free_hugepages"), confidence=0.6)


def numa(host: Host, expect: Expect) -> Iterator[Sight]:
    for pages in host.huge_pages:
        without = [node for node, count in pages.by_node.items() if count == 0]
        if without and any(pages.by_node.values()):
            shown = ", ".join(f"{node} {count}" for node, count in pages.by_node.items())
            observed = f"{units.show_size(pages.size_bytes)} pages: {shown}"
            evidence = ("sys/devices/system/node/node*/hugepages/*/nr_hugepages",)
            yield Sight(", ".join(without), observed, "as many on each node", evidence)


def fork(host: Host, expect: Expect) -> Iterator[Sight]:
    guards = [name for name in ("RDMAV_FORK_SAFE", "IBV_FORK_SAFE") if name in host.environment]
    used = any(pages.total for pages in host.huge_pages)
    if guards and used and "RDMAV_HUGEPAGES_SAFE" not in host.environment:
        expected = "RDMAV_HUGEPAGES_SAFE=1 beside it"
        yield Sight(guards[0], "set, and huge pages are in use", expected, (guards[0], _SYSFS))


def thp(host: Host, expect: Expect) -> Iterator[Sight]:
    if "[never]" in (host.root.text(f"{_THP}/enabled") or ""):
        yield Sight("", "transparent huge pages never", "madvise or always", (f"{_THP}/enabled",))


def defrag(host: Host, expect: Expect) -> Iterator[Sight]:
    enabled, mode = (host.root.text(f"{_THP}/{name}") or "" for name in ("enabled", "defrag"))
    if "[always]" in enabled and "[always]" in mode:
        yield Sight("", "transparent huge pages always, defrag always", "defrag madvise or defer", (f"{_THP}/defrag",))


RULES = (
    AuditRule("memory.hugepages.efa", "EFA has huge pages", efa,
        "EFA's buffers fall back to small pages: more translation, less bandwidth.",
        "vm.nr_hugepages=5128 (2 MiB pages) as AWS's EFA installer sets it.",
        "AWS EFA documentation", needs="efa"),
    AuditRule("memory.hugepages.idle", "huge pages that are set aside are used", idle,
        "Data loaders, checkpoints and optimizers in host memory cannot use pages that are set aside and idle.",
        "Lower vm.nr_hugepages (or hugepages= on the kernel command line) to what programs of this host ask for.",
        "kernel Documentation/admin-guide/mm/hugetlbpage", needs="gpu"),
    AuditRule("memory.hugepages.numa", "every NUMA node has its share of huge pages", numa,
        "Ranks of the node without get theirs from the other socket, or none: slower, or a failed start.",
        "echo N > /sys/devices/system/node/nodeX/hugepages/hugepages-2048kB/nr_hugepages for each node, early at boot.",
        "kernel Documentation/admin-guide/mm/hugetlbpage", needs="numa"),
    AuditRule("memory.hugepages.fork", "fork protection of RDMA verbs covers huge pages", fork,
        "Registering memory on huge pages fails with Invalid argument once fork protection is on.",
        "Set RDMAV_HUGEPAGES_SAFE=1 beside RDMAV_FORK_SAFE, or drop both (kernels from 5.12 on need neither).",
        "ibv_fork_init(3)", needs="rdma", severity=Severity.CRITICAL),
    AuditRule("memory.thp", "transparent huge pages are not off", thp,
        "Host buffers of data loaders and optimizers on small pages cost translation time.",
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        "kernel Documentation/admin-guide/mm/transhuge", needs="gpu"),
    AuditRule("memory.thp.defrag", "page faults do not wait for huge pages", defrag,
        "A page fault may stop a rank for milliseconds while the kernel moves memory together: jitter for all.",
        "echo madvise > /sys/kernel/mm/transparent_hugepage/defrag",
        "kernel Documentation/admin-guide/mm/transhuge, defrag", needs="gpu"),
)  # fmt: skip
