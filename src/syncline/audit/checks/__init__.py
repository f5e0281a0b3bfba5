"""The rules, by subject; importing this package registers all of them in `syncline.audit.rule.RULES`."""

from __future__ import annotations

from syncline.audit.checks import (
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
    name_and_time,
    network,
    pcie,
    rdma,
    roce,
    sockets,
)

__all__ = [
    "counters", "cpu", "environment", "gpu", "gpu_health", "imex", "inventory", "kernel_log", "limits", "memory",
    "name_and_time", "network", "pcie", "rdma", "roce", "sockets",
]  # fmt: skip
