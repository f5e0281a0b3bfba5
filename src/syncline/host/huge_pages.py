"""Huge pages that are set aside: how many of each size, how many are free, and on which NUMA nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from syncline.host.root import Root

_NODES = "sys/devices/system/node"


@dataclass(frozen=True)
class HugePages:
    """The pages of one size; `by_node` counts those of each NUMA node that has processors."""

    size_bytes: int
    total: int
    free: int
    by_node: dict[str, int]


def read_huge_pages(root: Root) -> tuple[HugePages, ...]:
    """Read every size the kernel offers; /proc/meminfo tells the default one where sysfs does not."""
    base = "sys/kernel/mm/hugepages"
    names = [name for name in root.names(base) if re.fullmatch(r"hugepages-\d+kB", name)]
    if not names:
        return _from_meminfo(root)
    return tuple(_pages(root, base, name) for name in sorted(names, key=_size_bytes))


def meminfo(root: Root, name: str) -> int | None:
    """Return a figure of /proc/meminfo as it stands there: kB, or pages."""
    match = re.search(rf"^{name}:\s+(\d+)", root.text("proc/meminfo") or "", re.MULTILINE)
    return int(match.group(1)) if match else None


def _pages(root: Root, base: str, name: str) -> HugePages:
    nodes = [node for node in root.names(_NODES) if re.fullmatch(r"node\d+", node)]
    # Memory of GPUs (Grace) and of expanders is a node without processors.
    nodes = [node for node in nodes if root.text(f"{_NODES}/{node}/cpulist")]
    counts = {node: root.number(f"{_NODES}/{node}/hugepages/{name}/nr_hugepages") for node in nodes}
    return HugePages(
        _size_bytes(name),
        root.number(f"{base}/{name}/nr_hugepages") or 0,
        root.number(f"{base}/{name}/free_hugepages") or 0,
        {node: count for node, count in counts.items() if count is not None},
    )


def _from_meminfo(root: Root) -> tuple[HugePages, ...]:
    total = meminfo(root, "HugePages_Total")
    if total is None:
        return ()
    size = (meminfo(root, "Hugepagesize") or 2048) * 1024
    return (HugePages(size, total, meminfo(root, "HugePages_Free") or 0, {}),)


def _size_bytes(name: str) -> int:
    return int(name[len("hugepages-") : -len("kB")]) * 1024
