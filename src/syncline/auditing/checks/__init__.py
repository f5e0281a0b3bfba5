"""The rules that read a host, by subject."""

from __future__ import annotations

from syncline.auditing.checks import (
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

_SUBJECTS = (
    clock, counters, cpu, environment, gpu, gpu_health, imex, inventory, kernel_log, limits, memory, names, network,
    pcie, rdma, roce, sockets,
)  # fmt: skip
RULES = {rule.id: rule for subject in _SUBJECTS for rule in subject.RULES}
