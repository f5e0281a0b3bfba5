"""GPUs as parts of a network: driver, GPUDirect, NVLink and its fabric."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from syncline.auditing.expect import Expect, gpu_part
from syncline.auditing.rule import AuditRule, CannotTell, Sight
from syncline.finding import Action, Severity
from syncline.host.gpu import NVLINK, HostGpu, parse_nvlink
from syncline.host.host import Host, version


def reported(host: Host) -> tuple[HostGpu, ...]:
    """Return the GPUs that nvidia-smi reports; CannotTell where it reports none."""
    if not host.smi.gpus:
        raise CannotTell("nvidia-smi reports no GPU")
    return tuple(gpu for gpu in host.gpus if gpu.smi)


def driver(host: Host, expect: Expect) -> Iterator[Sight]:
    for gpu in host.gpus:
        if gpu.pci.driver not in ("nvidia", "amdgpu"):
            bound = gpu.pci.driver or "none"
            yield Sight(gpu.label, f"driver {bound}", "nvidia or amdgpu", (f"{gpu.pci.folder}/driver",))


def lost(host: Host, expect: Expect) -> Iterator[Sight]:
    seen = reported(host)
    for gpu in host.gpus:
        if gpu.pci.vendor == 0x10DE and gpu not in seen and gpu.pci.driver in ("nvidia", ""):
            yield Sight(gpu.label, "not in nvidia-smi", "one entry for each GPU", ("nvidia-smi -q",))


def mismatch(host: Host, expect: Expect) -> Iterator[Sight]:
    text = host.root.text("proc/driver/nvidia/version") or ""
    loaded = re.search(r"(?:Kernel Module|Module for \S+)\s+(?:for \S+\s+)?(\d+\.\d+(?:\.\d+)?)", text)
    library = host.smi.head.get("Driver Version", "")
    if loaded and library and loaded.group(1) != library:
        evidence = ("proc/driver/nvidia/version", "nvidia-smi -q")
        yield Sight("driver", f"module {loaded.group(1)}, library {library}", "one version", evidence)


def direct(host: Host, expect: Expect) -> Iterator[Sight]:
    text = host.root.text("proc/driver/nvidia/version")
    kernel = version(host.sysctl("kernel.osrelease") or "")[:2]
    by_dmabuf = "Open Kernel Module" in (text or "") and kernel >= (5, 12)
    if host.modules & {"nvidia_peermem", "nv_peer_mem"} or by_dmabuf:
        return
    if text is None and not host.modules:
        raise CannotTell("neither the list of modules nor the driver's version can be read")
    why = "closed kernel module" if text and "Open" not in text else "kernel below 5.12 or no driver version"
    evidence = ("proc/modules", "proc/driver/nvidia/version")
    yield Sight("", f"no nvidia_peermem; {why}", "nvidia_peermem loaded, or DMA-BUF", evidence)


def fabric_state(host: Host, expect: Expect) -> Iterator[Sight]:
    for gpu in reported(host):
        state, status = gpu.value("Fabric/State"), gpu.value("Fabric/Status")
        if state and (state != "Completed" or status not in ("Success", "")):
            observed = f"Fabric {state}, {status or 'no status'}"
            yield Sight(gpu.label, observed, "Completed, Success", ("nvidia-smi -q: Fabric",))


def fabric_manager(host: Host, expect: Expect) -> Iterator[Sight]:
    state = host.service("nvidia-fabricmanager")
    if state is None:
        if any(gpu.value("Fabric/State") == "Completed" for gpu in host.gpus):
            return  # in a container systemd cannot be asked, but the fabric is up
        raise CannotTell("systemd cannot be asked, and nvidia-smi does not say that the fabric is up")
    if state != "active":
        yield Sight("nvidia-fabricmanager", state, "active", ("systemctl is-active nvidia-fabricmanager",))


def clique(host: Host, expect: Expect) -> Iterator[Sight]:
    cliques = {gpu.name: (gpu.value("Fabric/ClusterUUID"), gpu.value("Fabric/CliqueId")) for gpu in reported(host)}
    counts = Counter(pair for pair in cliques.values() if pair[1])
    if len(counts) > 1:
        usual = counts.most_common(1)[0][0]
        odd = ", ".join(name for name, pair in cliques.items() if pair != usual)
        yield Sight(odd, "another NVLink clique", f"clique {usual[1]}", ("nvidia-smi -q: Fabric",))


def nvlink(host: Host, expect: Expect) -> Iterator[Sight]:
    parts = [(gpu, part) for gpu in host.gpus if (part := gpu_part(gpu.pci.id)) and part.num_scale_up_links]
    text = host.root.command("nvidia-smi-nvlink", NVLINK) if parts else None
    if text is None:
        return
    links_of = parse_nvlink(text)
    if not links_of and host.virtual_by and len(host.gpus) == 1:
        return  # one GPU passed through alone has no NVLink to show
    for gpu, part in parts:
        links, inactive = links_of.get(gpu.index, (0, []))
        up = links - len(inactive)
        if up < part.num_scale_up_links:
            observed = f"{up} NVLinks up" + (f", inactive {', '.join(map(str, inactive[:6]))}" if inactive else "")
            yield Sight(gpu.label, observed, f"{part.num_scale_up_links} ({part.name})", ("nvidia-smi nvlink -s",))


RULES = (
    AuditRule("gpu.driver", "every GPU has a driver", driver,
        "The GPU is on the bus but nothing can use it.",
        "Load the driver (modprobe nvidia); look in the kernel log why it did not bind; reboot.",
        "kernel ABI sysfs-bus-pci driver", needs="gpu metal", severity=Severity.CRITICAL, action=Action.RESTART),
    AuditRule("gpu.lost", "nvidia-smi sees every GPU that is on the bus", lost,
        "The GPU fell off the bus or did not initialise: ranks on it fail.",
        "Look for Xid 79 in the kernel log; reset the GPU or reboot; if it comes back, replace it.",
        "NVIDIA Xid errors, 79", needs="nvidia", severity=Severity.CRITICAL, action=Action.RESTART),
    AuditRule("gpu.driver.mismatch", "kernel module and libraries of the driver are of one version", mismatch,
        "CUDA fails to initialise after the next start of a job.",
        "Reboot, or unload and load the nvidia modules, so that module and library match.",
        "NVML: Driver/library version mismatch", needs="nvidia", severity=Severity.CRITICAL, action=Action.RESTART),
    AuditRule("gpu.direct", "network cards may read GPU memory (nvidia_peermem or DMA-BUF)", direct,
        "GPUDirect RDMA is off: data goes through host memory, up to ten times slower.",
        "modprobe nvidia-peermem; or the open kernel module with a kernel of 5.12 or later (DMA-BUF).",
        "nccl #1676 #1537 #897", needs="nvidia rdma", severity=Severity.CRITICAL),
    AuditRule("gpu.fabric.state", "the NVLink fabric of every GPU is set up", fabric_state,
        "NVLink SHARP and NVLink across GPUs fail: CUDA error 401 or 802, or PCIe speed.",
        "systemctl restart nvidia-fabricmanager, then reset the GPUs (nvidia-smi -r) or reboot.",
        "nccl #1562 #1488; Fabric Manager guide", needs="nvidia", severity=Severity.CRITICAL, action=Action.RESTART),
    AuditRule("gpu.fabric.manager", "the fabric manager runs where there are NVSwitches", fabric_manager,
        "GPUs cannot talk over NVSwitch; CUDA does not initialise.",
        "systemctl enable --now nvidia-fabricmanager (of the driver's version).",
        "NVIDIA Fabric Manager user guide", needs="nvswitch", severity=Severity.CRITICAL, action=Action.RESTART),
    AuditRule("gpu.fabric.clique", "all GPUs of the host are in one NVLink domain", clique,
        "GPUs of different cliques cannot use NVLink between them.",
        "Check the fabric manager's partitions and, on NVL72, IMEX (nvidia-imex-ctl -N).",
        "nccl #2186", needs="nvidia", severity=Severity.CRITICAL, action=Action.ESCALATE),
    AuditRule("gpu.nvlink", "all NVLinks are up", nvlink,
        "The GPU has less than its bandwidth to its neighbours; NCCL may leave NVLink SHARP out.",
        "Reset the GPUs or reboot; look for Xid 74; if it stays, replace the GPU or its board.",
        "azurehpc-health-checks check_nvlink_status",
        needs="nvidia", severity=Severity.CRITICAL, action=Action.RESTART),
)  # fmt: skip
