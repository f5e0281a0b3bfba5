"""GPUs: driver, GPUDirect, NVLink and its fabric, clocks, power, memory errors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from syncline.audit.expect import Expect, gpu_part
from syncline.audit.gpu import NVLINK, Gpu, parse_nvlink
from syncline.audit.host import Host, version
from syncline.audit.rule import CannotTell, Seen, rule
from syncline.finding import Action, Severity

_SLOWDOWNS = (
    "HW Slowdown",
    "HW Slowdown/HW Thermal Slowdown",
    "HW Slowdown/HW Power Brake Slowdown",
    "SW Thermal Slowdown",
    "HW Thermal Slowdown",
    "HW Power Brake Slowdown",
)
_REASONS = ("Clocks Event Reasons", "Clocks Throttle Reasons")
MAX_REPLAYS = 1000


def told(host: Host) -> tuple[Gpu, ...]:
    """Return the NVIDIA GPUs that nvidia-smi speaks of; noted when it cannot be asked."""
    if not host.smi.gpus:
        raise CannotTell("nvidia-smi says nothing of the GPUs")
    return tuple(gpu for gpu in host.gpus if gpu.smi)


@rule(
    "gpu.driver",
    "every GPU has a driver",
    needs=("gpu", "metal"),
    severity=Severity.CRITICAL,
    action=Action.RESTART,
    meaning="The GPU is on the bus but nothing can use it.",
    fix="Load the driver (modprobe nvidia); look in the kernel log why it did not bind; reboot.",
    reference="kernel ABI sysfs-bus-pci driver",
)
def driver(host: Host, expect: Expect) -> Iterator[Seen]:
    for gpu in host.gpus:
        if gpu.pci.driver not in ("nvidia", "amdgpu"):
            yield Seen(
                gpu.label, f"driver {gpu.pci.driver or 'none'}", "nvidia or amdgpu", (f"{gpu.pci.folder}/driver",)
            )


@rule(
    "gpu.lost",
    "nvidia-smi sees every GPU that is on the bus",
    needs=("nvidia",),
    severity=Severity.CRITICAL,
    action=Action.RESTART,
    meaning="The GPU fell off the bus or did not initialise: ranks on it fail.",
    fix="Look for Xid 79 in the kernel log; reset the GPU or reboot; if it comes back, replace it.",
    reference="NVIDIA Xid errors, 79",
)
def lost(host: Host, expect: Expect) -> Iterator[Seen]:
    seen = told(host)
    for gpu in host.gpus:
        if gpu.pci.vendor == 0x10DE and gpu not in seen and gpu.pci.driver in ("nvidia", ""):
            yield Seen(gpu.label, "not in nvidia-smi", "one entry for each GPU", ("nvidia-smi -q",))


@rule(
    "gpu.driver.mismatch",
    "kernel module and libraries of the driver are of one version",
    needs=("nvidia",),
    severity=Severity.CRITICAL,
    action=Action.RESTART,
    meaning="CUDA fails to initialise after the next start of a job.",
    fix="Reboot, or unload and load the nvidia modules, so that module and library match.",
    reference="NVML: Driver/library version mismatch",
)
def mismatch(host: Host, expect: Expect) -> Iterator[Seen]:
    text = host.root.text("proc/driver/nvidia/version") or ""
    loaded = re.search(r"(?:Kernel Module|Module for \S+)\s+(?:for \S+\s+)?(\d+\.\d+(?:\.\d+)?)", text)
    library = host.smi.head.get("Driver Version", "")
    if loaded and library and loaded.group(1) != library:
        yield Seen(
            "driver",
            f"module {loaded.group(1)}, library {library}",
            "one version",
            ("proc/driver/nvidia/version", "nvidia-smi -q"),
        )


@rule(
    "gpu.direct",
    "network cards may read GPU memory (nvidia_peermem or DMA-BUF)",
    needs=("nvidia", "rdma"),
    severity=Severity.CRITICAL,
    meaning="GPUDirect RDMA is off: data goes through host memory, up to ten times slower.",
    fix="modprobe nvidia-peermem; or the open kernel module with a kernel of 5.12 or later (DMA-BUF).",
    reference="nccl #1676 #1537 #897",
)
def direct(host: Host, expect: Expect) -> Iterator[Seen]:
    peer = host.modules & {"nvidia_peermem", "nv_peer_mem"}
    text = host.root.text("proc/driver/nvidia/version")
    kernel = version(host.sysctl("kernel.osrelease") or "")[:2]
    by_dmabuf = "Open Kernel Module" in (text or "") and kernel >= (5, 12)
    if not peer and not by_dmabuf:
        if text is None and not host.modules:
            raise CannotTell("neither the list of modules nor the driver's version can be read")
        why = "no nvidia_peermem; " + (
            "closed kernel module" if text and "Open" not in text else "kernel below 5.12 or no driver version"
        )
        yield Seen("", why, "nvidia_peermem loaded, or DMA-BUF", ("proc/modules", "proc/driver/nvidia/version"))


@rule(
    "gpu.fabric.state",
    "the NVLink fabric of every GPU is set up",
    needs=("nvidia",),
    severity=Severity.CRITICAL,
    action=Action.RESTART,
    meaning="NVLink SHARP and NVLink across GPUs fail: CUDA error 401 or 802, or PCIe speed.",
    fix="systemctl restart nvidia-fabricmanager, then reset the GPUs (nvidia-smi -r) or reboot.",
    reference="nccl #1562 #1488; Fabric Manager guide",
)
def fabric_state(host: Host, expect: Expect) -> Iterator[Seen]:
    for gpu in told(host):
        state, status = gpu.value("Fabric/State"), gpu.value("Fabric/Status")
        if state and (state != "Completed" or status not in ("Success", "")):
            yield Seen(
                gpu.label, f"Fabric {state}, {status or 'no status'}", "Completed, Success", ("nvidia-smi -q: Fabric",)
            )


@rule(
    "gpu.fabric.manager",
    "the fabric manager runs where there are NVSwitches",
    needs=("nvswitch",),
    severity=Severity.CRITICAL,
    action=Action.RESTART,
    meaning="GPUs cannot talk over NVSwitch; CUDA does not initialise.",
    fix="systemctl enable --now nvidia-fabricmanager (of the driver's version).",
    reference="NVIDIA Fabric Manager user guide",
)
def fabric_manager(host: Host, expect: Expect) -> Iterator[Seen]:
    state = host.service("nvidia-fabricmanager")
    if state is None:
        if any(gpu.value("Fabric/State") == "Completed" for gpu in host.gpus):
            return  # in a container systemd cannot be asked, but the fabric is up
        raise CannotTell("systemd cannot be asked, and nvidia-smi does not say that the fabric is up")
    if state != "active":
        yield Seen("nvidia-fabricmanager", state, "active", ("systemctl is-active nvidia-fabricmanager",))


@rule(
    "gpu.fabric.clique",
    "all GPUs of the host are in one NVLink domain",
    needs=("nvidia",),
    severity=Severity.CRITICAL,
    action=Action.ESCALATE,
    meaning="GPUs of different cliques cannot use NVLink between them.",
    fix="Check the fabric manager's partitions and, on NVL72, IMEX (nvidia-imex-ctl -N).",
    reference="nccl #2186",
)
def clique(host: Host, expect: Expect) -> Iterator[Seen]:
    pairs = Counter(
        (g.value("Fabric/ClusterUUID"), g.value("Fabric/CliqueId")) for g in told(host) if g.value("Fabric/CliqueId")
    )
    if len(pairs) > 1:
        usual = pairs.most_common(1)[0][0]
        odd = [g.name for g in told(host) if (g.value("Fabric/ClusterUUID"), g.value("Fabric/CliqueId")) != usual]
        yield Seen(", ".join(odd), "another NVLink clique", f"clique {usual[1]}", ("nvidia-smi -q: Fabric",))


@rule(
    "gpu.nvlink",
    "all NVLinks are up",
    needs=("nvidia",),
    severity=Severity.CRITICAL,
    action=Action.RESTART,
    meaning="The GPU has less than its bandwidth to its neighbours; NCCL may leave NVLink SHARP out.",
    fix="Reset the GPUs or reboot; look for Xid 74; if it stays, replace the GPU or its board.",
    reference="azurehpc-health-checks check_nvlink_status",
)
def nvlink(host: Host, expect: Expect) -> Iterator[Seen]:
    parts = [gpu_part(gpu.pci.id) for gpu in host.gpus]
    if not any(part and part.num_scale_up_links for part in parts):
        return
    text = host.root.command("nvidia-smi-nvlink", NVLINK)
    if text is None:
        return
    found = parse_nvlink(text)
    for gpu, part in zip(host.gpus, parts, strict=True):
        if part is None or not part.num_scale_up_links:
            continue
        links, inactive = found.get(gpu.index, (0, []))
        if not found and host.virtual_by and len(host.gpus) == 1:
            return  # one GPU passed through alone has no NVLink to show
        up = links - len(inactive)
        if up < part.num_scale_up_links:
            yield Seen(
                gpu.label,
                f"{up} NVLinks up" + (f", inactive {', '.join(map(str, inactive[:6]))}" if inactive else ""),
                f"{part.num_scale_up_links} ({part.name})",
                ("nvidia-smi nvlink -s",),
            )


@rule(
    "gpu.clock.slowdown",
    "no GPU is slowed down by heat or power",
    needs=("nvidia",),
    action=Action.INSPECT,
    meaning="One slow GPU is a straggler: all ranks wait for it at every collective.",
    fix="Check fans, coolant, inlet temperature and power supplies of this host.",
    reference="azurehpc-health-checks check_gpu_clock_throttling",
)
def slowdown(host: Host, expect: Expect) -> Iterator[Seen]:
    for gpu in told(host):
        active = [r.rpartition("/")[2] for head in _REASONS for r in _SLOWDOWNS if gpu.value(f"{head}/{r}") == "Active"]
        if active:
            yield Seen(
                gpu.label,
                f"{', '.join(dict.fromkeys(active))} active",
                "none",
                ("nvidia-smi -q: Clocks Event Reasons",),
            )


@rule(
    "gpu.clock.lowered",
    "application clocks are the default ones",
    needs=("nvidia",),
    meaning="The GPU computes slower than its neighbours and holds every collective up.",
    fix="nvidia-smi -rac (reset application clocks).",
    reference="azurehpc-health-checks check_app_gpu_clocks",
)
def clock_lowered(host: Host, expect: Expect) -> Iterator[Seen]:
    for gpu in told(host):
        now, usual = gpu.number("Applications Clocks/Graphics"), gpu.number("Default Applications Clocks/Graphics")
        if now and usual and now < usual:
            yield Seen(
                gpu.label,
                f"application clock {now:.0f} MHz",
                f"{usual:.0f} MHz",
                ("nvidia-smi -q: Applications Clocks",),
            )


@rule(
    "gpu.power.lowered",
    "power limits are the default ones",
    needs=("nvidia",),
    meaning="The GPU throttles under load and becomes a straggler.",
    fix="nvidia-smi -pl DEFAULT, unless the site caps power on purpose (then cap all alike).",
    reference="nvidia-smi(1)",
)
def power_lowered(host: Host, expect: Expect) -> Iterator[Seen]:
    for gpu in told(host):
        for head in ("GPU Power Readings", "Power Readings"):
            now = gpu.number(f"{head}/Current Power Limit") or gpu.number(f"{head}/Power Limit")
            usual = gpu.number(f"{head}/Default Power Limit")
            if now and usual and now < usual * 0.995:
                yield Seen(gpu.label, f"power limit {now:.0f} W", f"{usual:.0f} W", (f"nvidia-smi -q: {head}",))
                break


@rule(
    "gpu.ecc.off",
    "memory error correction is on",
    needs=("nvidia",),
    meaning="Memory errors change results instead of being corrected or reported.",
    fix="nvidia-smi -e 1, then reset the GPU.",
    reference="NVIDIA GPU memory error management",
)
def ecc_off(host: Host, expect: Expect) -> Iterator[Seen]:
    for gpu in told(host):
        if gpu.value("ECC Mode/Current") == "Disabled":
            yield Seen(gpu.label, "ECC disabled", "enabled", ("nvidia-smi -q: ECC Mode",))


@rule(
    "gpu.ecc.uncorrectable",
    "no uncorrectable memory errors since the driver was loaded",
    needs=("nvidia",),
    severity=Severity.CRITICAL,
    action=Action.RESTART,
    meaning="Data was lost; jobs on this GPU crash (Xid 48, 63, 94, 95).",
    fix="Drain the host, reset the GPU so that rows are remapped; replace it if errors return.",
    reference="NVIDIA GPU memory error management; gcm nvidia-smi ecc",
)
def ecc_uncorrectable(host: Host, expect: Expect) -> Iterator[Seen]:
    for gpu in told(host):
        bad = {
            k.rpartition("/")[2]: gpu.number(k)
            for k in gpu.smi
            if k.startswith("ECC Errors/Volatile/") and "Uncorrectable" in k
        }
        counted = {name: int(count) for name, count in bad.items() if count}
        if counted:
            yield Seen(
                gpu.label,
                ", ".join(f"{name} {count}" for name, count in counted.items()),
                "0",
                ("nvidia-smi -q: ECC Errors",),
            )


@rule(
    "gpu.rows",
    "no memory row waits to be remapped or could not be",
    needs=("nvidia",),
    severity=Severity.CRITICAL,
    action=Action.RESTART,
    meaning="Pending: the bad row is still in use until a reset. Failed: no spare rows are left.",
    fix="Pending: reset the GPU. Remapping failure: replace it.",
    reference="NVIDIA GPU memory error management, row remapping",
)
def rows(host: Host, expect: Expect) -> Iterator[Seen]:
    for gpu in told(host):
        bad = [k for k in ("Pending", "Remapping Failure Occurred") if gpu.value(f"Remapped Rows/{k}") == "Yes"]
        if bad:
            yield Seen(gpu.label, f"{', '.join(bad)}: Yes", "No", ("nvidia-smi -q: Remapped Rows",))


@rule(
    "gpu.recovery",
    "no GPU asks to be reset",
    needs=("nvidia",),
    severity=Severity.CRITICAL,
    action=Action.RESTART,
    meaning="The driver itself says that the GPU needs a reset, a reboot or a drain.",
    fix="Do what it says: drain the host, then reset the GPU or reboot.",
    reference="nvidia-smi -q, GPU Recovery Action",
)
def recovery(host: Host, expect: Expect) -> Iterator[Seen]:
    for gpu in told(host):
        if (action := gpu.value("GPU Recovery Action")) not in ("", "None"):
            yield Seen(gpu.label, f"recovery action {action}", "None", ("nvidia-smi -q: GPU Recovery Action",))


@rule(
    "gpu.persistence",
    "the driver keeps GPUs initialised",
    needs=("nvidia", "metal"),
    meaning="GPUs initialise at each job's start: slow starts, lost counters and settings.",
    fix="systemctl enable --now nvidia-persistenced (or nvidia-smi -pm 1).",
    reference="NVIDIA driver persistence",
)
def persistence(host: Host, expect: Expect) -> Iterator[Seen]:
    off = [gpu.name for gpu in told(host) if gpu.value("Persistence Mode") == "Disabled"]
    if off:
        yield Seen(", ".join(off), "persistence mode disabled", "enabled", ("nvidia-smi -q: Persistence Mode",))


@rule(
    "gpu.replays",
    "few PCIe replays",
    needs=("nvidia",),
    action=Action.INSPECT,
    meaning="Packets between GPU and processor are sent again: a marginal PCIe link.",
    fix="Reseat the GPU or baseboard, check retimers; replace it if the count grows under load.",
    reference="DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
)
def replays(host: Host, expect: Expect) -> Iterator[Seen]:
    for gpu in told(host):
        count = gpu.number("PCI/Replays Since Reset") or 0
        if count >= MAX_REPLAYS:
            yield Seen(gpu.label, f"{count:,.0f} PCIe replays", f"below {MAX_REPLAYS:,}", ("nvidia-smi -q: PCI",))


@rule(
    "gpu.vbios.mixed",
    "GPUs of one kind run one VBIOS",
    needs=("nvidia",),
    meaning="GPUs with different firmware have different limits and defects.",
    fix="Update the odd ones to the version of the others.",
    reference="azurehpc-health-checks check_vbios_version",
)
def vbios_mixed(host: Host, expect: Expect) -> Iterator[Seen]:
    found = {gpu.name: gpu.value("VBIOS Version") for gpu in told(host) if gpu.value("VBIOS Version")}
    counts = Counter(found.values())
    if len(counts) > 1:
        usual = counts.most_common(1)[0][0]
        odd = {name: value for name, value in found.items() if value != usual}
        yield Seen(
            ", ".join(odd), f"VBIOS {', '.join(sorted(set(odd.values())))}", usual, ("nvidia-smi -q: VBIOS Version",)
        )


@rule(
    "gpu.mig",
    "GPUs are not divided (MIG)",
    needs=("nvidia",),
    action=Action.RESTART,
    meaning="Instances of a divided GPU have no NVLink and no peer access: collectives go through host memory.",
    fix="nvidia-smi -mig 0 where the host is for training.",
    reference="NVIDIA MIG user guide, limitations",
)
def mig(host: Host, expect: Expect) -> Iterator[Seen]:
    on = [gpu.name for gpu in told(host) if gpu.value("MIG Mode/Current") == "Enabled"]
    if on:
        yield Seen(", ".join(on), "MIG enabled", "disabled", ("nvidia-smi -q: MIG Mode",))
