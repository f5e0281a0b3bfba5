"""The rules, by subject; importing this package registers all of them in `syncline.audit.rule.RULES`."""

from __future__ import annotations

from syncline.audit.checks import (
    clock,
    counters,
    cpu,
    environment,
    gpu,
    gpu_health,
    imex,
    inventory,
    kernel_log,
    limits,
    memory,
    names,
    network,
    pcie,
    rdma,
    roce,
    sockets,
)

__all__ = [
    "clock", "counters", "cpu", "environment", "gpu", "gpu_health", "imex", "inventory", "kernel_log", "limits",
    "memory", "names", "network", "pcie", "rdma", "roce", "sockets",
]  # fmt: skip
