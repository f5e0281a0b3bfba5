"""Processors: clock governor, idle states, NUMA balancing, where interrupts land."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from syncline.auditing.expect import Expect
from syncline.auditing.rule import AuditRule, Sight
from syncline.host.host import Host

DEEP_IDLE_US = 100
"""Leaving an idle state slower than this shows in the latency of small collectives."""


def governor(host: Host, expect: Expect) -> Iterator[Sight]:
    names = [n for n in host.root.names("sys/devices/system/cpu") if re.fullmatch(r"cpu\d+", n)]
    found = Counter(host.root.text(f"sys/devices/system/cpu/{name}/cpufreq/scaling_governor") or "" for name in names)
    slow = {kind: count for kind, count in found.items() if kind and kind != "performance"}
    if slow:
        shown = ", ".join(f"{kind} on {count} of {len(names)} CPUs" for kind, count in slow.items())
        yield Sight("", shown, "performance", ("sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",))


def numa_balancing(host: Host, expect: Expect) -> Iterator[Sight]:
    value = host.sysctl("kernel.numa_balancing")
    if value is not None and value.strip() not in ("0", ""):
        yield Sight("", f"kernel.numa_balancing = {value}", "0", ("proc/sys/kernel/numa_balancing",))


def idle(host: Host, expect: Expect) -> Iterator[Sight]:
    base = "sys/devices/system/cpu/cpu0/cpuidle"
    deep = []
    for state in host.root.names(base):
        latency = host.root.number(f"{base}/{state}/latency") or 0
        if latency > DEEP_IDLE_US and host.root.number(f"{base}/{state}/disable") == 0:
            deep.append(f"{host.root.text(f'{base}/{state}/name') or state} ({latency} us)")
    if deep:
        yield Sight("", f"idle states {', '.join(deep)} are allowed", f"none slower than {DEEP_IDLE_US} us", (base,))


def irq(host: Host, expect: Expect) -> Iterator[Sight]:
    cpus = {
        int(n[4:]): _cpus(host.root.text(f"sys/devices/system/node/{n}/cpulist") or "")
        for n in host.root.names("sys/devices/system/node")
        if re.fullmatch(r"node\d+", n)
    }
    for interface in host.fabric_interfaces:
        device = host.pci.devices.get(interface.pci)
        if device is None:
            continue
        own, numbers = cpus.get(device.numa, set()), host.root.names(f"{device.folder}/msi_irqs")
        lists = {n: _cpus(host.root.text(f"proc/irq/{n}/smp_affinity_list") or "") for n in numbers}
        far = [n for n, served in lists.items() if served and own and not served & own]
        if far and len(far) > len(numbers) / 2:
            observed = f"{len(far)} of {len(numbers)} interrupts on another NUMA node"
            evidence = (f"proc/irq/{far[0]}/smp_affinity_list",)
            yield Sight(interface.name, observed, f"CPUs of node {device.numa}", evidence)


def _cpus(text: str) -> set[int]:
    """Read "0-3,8" as numbers."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if first.isdecimal() and (not dash or last.isdecimal()) and len(first) < 6 and len(last) < 6:
            found.update(range(int(first), int(last or first) + 1))
    return found


RULES = (
    AuditRule("cpu.governor", "processors run at full clock", governor,
        "Clocks ramp up late: jitter in launching kernels and in proxies of the network.",
        "cpupower frequency-set -g performance",
        "gcm frequency governor check", needs="metal"),
    AuditRule("cpu.numa_balancing", "the kernel does not move pages between sockets", numa_balancing,
        "Page faults and migrations while training: jitter on all ranks of the host.",
        "sysctl kernel.numa_balancing=0",
        "NVIDIA DGX tuning; NCCL troubleshooting", needs="numa"),
    AuditRule("cpu.idle", "processors do not fall into deep sleep", idle,
        "Waking up takes as long as a small collective.",
        "intel_idle.max_cstate=1 processor.max_cstate=1, or cpupower idle-set -D 10, or the BIOS performance profile.",
        "NVIDIA ConnectX performance tuning", needs="metal rdma"),
    AuditRule("cpu.irq", "interrupts of network cards are served on their own NUMA node", irq,
        "Every packet crosses the sockets: lower rate and jitter for socket traffic.",
        "Stop irqbalance and run set_irq_affinity.sh (mlnx_tools) for the card, or irqbalance with its NUMA hint.",
        "mlnx_tools set_irq_affinity", needs="numa interface"),
)  # fmt: skip
