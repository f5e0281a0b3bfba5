"""Does the host have what the cluster description says, and one of each library?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from syncline.auditing.expect import Expect
from syncline.auditing.rule import AuditRule, Sight
from syncline.finding import Action, Severity
from syncline.host.host import Host


def gpu_count(host: Host, expect: Expect) -> Iterator[Sight]:
    if expect.num_gpus is not None and len(host.gpus) != expect.num_gpus:
        expected = f"{expect.num_gpus} ({expect.source})"
        yield Sight("", f"{len(host.gpus)} GPUs", expected, ("sys/bus/pci/devices/*/class",))


_GPUS_OF = (
    (re.compile(r"DGX[- ]?2"), 16),
    (re.compile(r"DGX[- ]?Station"), 4),
    (re.compile(r"DGX[- ]?(?:1|A100|H100|H200|B100|B200|B300)"), 8),
    (re.compile(r"^(?:p4de?\.24xlarge|p5(?:e|en)?\.48xlarge|p6-b[23]00\.48xlarge)$"), 8),
)
"""How many GPUs a model has, by the product name in its firmware (on EC2 that is the instance type)."""


def gpu_count_of_model(host: Host, expect: Expect) -> Iterator[Sight]:
    if expect.num_gpus is not None:  # the description is asked instead
        return
    product = (host.root.text("sys/class/dmi/id/product_name") or "").strip()
    wanted = next((count for pattern, count in _GPUS_OF if pattern.search(product)), None)
    if wanted is not None and len(host.gpus) < wanted:
        where = ("sys/class/dmi/id/product_name", "sys/bus/pci/devices/*/class")
        yield Sight("", f"{len(host.gpus)} GPUs", f"{wanted} ({product})", where)


def nic_count(host: Host, expect: Expect) -> Iterator[Sight]:
    if expect.num_nics is None:
        return
    wanted = expect.num_nics * expect.ports_per_nic
    if host.ports or expect.is_rdma:
        found, source = len(host.fabric_ports), "sys/class/infiniband"
        what = "RDMA ports for training"
    else:
        cards = [i for i in host.interfaces if not i.is_loopback and not i.is_virtual_plumbing and i.is_up]
        found, source, what = len(cards), "sys/class/net", "network interfaces up"
    short = found < wanted if not host.ports else found != wanted
    if short:
        yield Sight("", f"{found} {what}", f"{wanted} ({expect.source})", (source,))


def rdma_missing(host: Host, expect: Expect) -> Iterator[Sight]:
    cards = [d for d in host.pci if d.is_network and d.vendor == 0x15B3 and not d.is_virtual_function]
    if not host.ports and cards:
        observed, expected = f"{len(cards)} ConnectX cards but no RDMA device", "mlx5_0 and on in class/infiniband"
        yield Sight("", observed, expected, ("sys/class/infiniband", *(card.folder for card in cards[:2])))


def nccl_several(host: Host, expect: Expect) -> Iterator[Sight]:
    if len(host.nccl_versions) > 1:
        yield Sight("libnccl", ", ".join(host.nccl_versions), "one version", ("usr/lib/*/libnccl.so.*",))


RULES = (
    AuditRule("gpu.count", "the host has as many GPUs as described", gpu_count,
        "A job that asks for all GPUs of a host fails or hangs.",
        "Look for a GPU that fell off the bus (Xid 79); reboot; replace it.",
        "azurehpc-health-checks check_gpu_count", needs="described", severity=Severity.CRITICAL, action=Action.RESTART),
    AuditRule("gpu.count.model", "the machine shows all GPUs that its model has", gpu_count_of_model,
        "A GPU is off the bus or did not start: jobs that ask for all GPUs of the host fail.",
        "Look for Xid 79 and RmInitAdapter in the kernel log; power-cycle; replace the GPU.",
        "NVIDIA DGX user guides; AWS accelerated computing instances",
        needs="gpu", severity=Severity.CRITICAL, action=Action.RESTART),
    AuditRule("net.nic.count", "the host has as many fabric ports as described", nic_count,
        "NCCL warns of mixed device counts and uses fewer channels, or crosses rails.",
        "Look for a card that is off the bus, has no driver, or is left out by NCCL_IB_HCA or NCCL_SOCKET_IFNAME.",
        "NCCL 2.30: Detected mixed local Net device counts across ranks",
        needs="described", severity=Severity.CRITICAL, action=Action.INSPECT),
    AuditRule("net.rdma.missing", "RDMA devices are there where the fabric has RDMA", rdma_missing,
        "NCCL falls back to sockets: several times slower.",
        "Load the card's RDMA driver (mlx5_ib, bnxt_re, irdma, efa); in a container pass /dev/infiniband and sysfs.",
        "nccl #952 #226", needs="interface", severity=Severity.CRITICAL),
    AuditRule("software.nccl.several", "one version of NCCL is installed", nccl_several,
        "Which one a job loads depends on its library path: ranks with different versions fail or hang.",
        "Keep one; check LD_LIBRARY_PATH and the version that NCCL_DEBUG=VERSION prints.",
        "nccl-tests #188 #294; NCCL: Mismatched NCCL version detected", needs="gpu"),
)  # fmt: skip
