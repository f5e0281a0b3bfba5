"""GPUs as stragglers and risks: clocks, power, memory errors, firmware, division."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from syncline.audit.checks.gpu import told
from syncline.audit.expect import Expect
from syncline.audit.rule import AuditRule, Sight
from syncline.finding import Action, Severity
from syncline.host.host import Host

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


def slowdown(host: Host, expect: Expect) -> Iterator[Sight]:
    for gpu in told(host):
        active = [r.rpartition("/")[2] for head in _REASONS for r in _SLOWDOWNS if gpu.value(f"{head}/{r}") == "Active"]
        if active:
            yield Sight(
                gpu.label,
                f"{', '.join(dict.fromkeys(active))} active",
                "none",
                ("nvidia-smi -q: Clocks Event Reasons",),
            )


def clock_lowered(host: Host, expect: Expect) -> Iterator[Sight]:
    for gpu in told(host):
        now, usual = gpu.number("Applications Clocks/Graphics"), gpu.number("Default Applications Clocks/Graphics")
        if now and usual and now < usual:
            yield Sight(
                gpu.label,
                f"application clock {now:.0f} MHz",
                f"{usual:.0f} MHz",
                ("nvidia-smi -q: Applications Clocks",),
            )


def power_lowered(host: Host, expect: Expect) -> Iterator[Sight]:
    for gpu in told(host):
        for head in ("GPU Power Readings", "Power Readings"):
            now = gpu.number(f"{head}/Current Power Limit") or gpu.number(f"{head}/Power Limit")
            usual = gpu.number(f"{head}/Default Power Limit")
            if now and usual and now < usual * 0.995:
                yield Sight(gpu.label, f"power limit {now:.0f} W", f"{usual:.0f} W", (f"nvidia-smi -q: {head}",))
                break


def ecc_off(host: Host, expect: Expect) -> Iterator[Sight]:
    for gpu in told(host):
        if gpu.value("ECC Mode/Current") == "Disabled":
            yield Sight(gpu.label, "ECC disabled", "enabled", ("nvidia-smi -q: ECC Mode",))


def ecc_uncorrectable(host: Host, expect: Expect) -> Iterator[Sight]:
    for gpu in told(host):
        bad = {
            k.rpartition("/")[2]: gpu.number(k)
            for k in gpu.smi
            if k.startswith("ECC Errors/Volatile/") and "Uncorrectable" in k
        }
        counted = {name: int(count) for name, count in bad.items() if count}
        if counted:
            yield Sight(
                gpu.label,
                ", ".join(f"{name} {count}" for name, count in counted.items()),
                "0",
                ("nvidia-smi -q: ECC Errors",),
            )


def rows(host: Host, expect: Expect) -> Iterator[Sight]:
    for gpu in told(host):
        bad = [k for k in ("Pending", "Remapping Failure Occurred") if gpu.value(f"Remapped Rows/{k}") == "Yes"]
        if bad:
            yield Sight(gpu.label, f"{', '.join(bad)}: Yes", "No", ("nvidia-smi -q: Remapped Rows",))


def recovery(host: Host, expect: Expect) -> Iterator[Sight]:
    for gpu in told(host):
        if (action := gpu.value("GPU Recovery Action")) not in ("", "None"):
            yield Sight(gpu.label, f"recovery action {action}", "None", ("nvidia-smi -q: GPU Recovery Action",))


def persistence(host: Host, expect: Expect) -> Iterator[Sight]:
    off = [gpu.name for gpu in told(host) if gpu.value("Persistence Mode") == "Disabled"]
    if off:
        yield Sight(", ".join(off), "persistence mode disabled", "enabled", ("nvidia-smi -q: Persistence Mode",))


def replays(host: Host, expect: Expect) -> Iterator[Sight]:
    for gpu in told(host):
        count = gpu.number("PCI/Replays Since Reset") or 0
        if count >= MAX_REPLAYS:
            yield Sight(gpu.label, f"{count:,.0f} PCIe replays", f"below {MAX_REPLAYS:,}", ("nvidia-smi -q: PCI",))


def vbios_mixed(host: Host, expect: Expect) -> Iterator[Sight]:
    found = {gpu.name: gpu.value("VBIOS Version") for gpu in told(host) if gpu.value("VBIOS Version")}
    counts = Counter(found.values())
    if len(counts) > 1:
        usual = counts.most_common(1)[0][0]
        odd = {name: value for name, value in found.items() if value != usual}
        yield Sight(
            ", ".join(odd), f"VBIOS {', '.join(sorted(set(odd.values())))}", usual, ("nvidia-smi -q: VBIOS Version",)
        )


def mig(host: Host, expect: Expect) -> Iterator[Sight]:
    on = [gpu.name for gpu in told(host) if gpu.value("MIG Mode/Current") == "Enabled"]
    if on:
        yield Sight(", ".join(on), "MIG enabled", "disabled", ("nvidia-smi -q: MIG Mode",))


RULES = (
    AuditRule("gpu.clock.slowdown", "no GPU is slowed down by heat or power", slowdown,
        "One slow GPU is a straggler: all ranks wait for it at every collective.",
        "Check fans, coolant, inlet temperature and power supplies of this host.",
        "azurehpc-health-checks check_gpu_clock_throttling", needs="nvidia", action=Action.INSPECT),
    AuditRule("gpu.clock.lowered", "application clocks are the default ones", clock_lowered,
        "The GPU computes slower than its neighbours and holds every collective up.",
        "nvidia-smi -rac (reset application clocks).",
        "azurehpc-health-checks check_app_gpu_clocks", needs="nvidia"),
    AuditRule("gpu.power.lowered", "power limits are the default ones", power_lowered,
        "The GPU throttles under load and becomes a straggler.",
        "nvidia-smi -pl DEFAULT, unless the site caps power on purpose (then cap all alike).",
        "nvidia-smi(1)", needs="nvidia"),
    AuditRule("gpu.ecc.off", "memory error correction is on", ecc_off,
        "Memory errors change results instead of being corrected or reported.",
        "nvidia-smi -e 1, then reset the GPU.",
        "NVIDIA GPU memory error management", needs="nvidia"),
    AuditRule("gpu.ecc.uncorrectable", "no uncorrectable memory errors since the driver was loaded", ecc_uncorrectable,
        "Data was lost; jobs on this GPU crash (Xid 48, 63, 94, 95).",
        "Drain the host, reset the GPU so that rows are remapped; replace it if errors return.",
        "NVIDIA GPU memory error management; gcm nvidia-smi ecc",
        needs="nvidia", severity=Severity.CRITICAL, action=Action.RESTART),
    AuditRule("gpu.rows", "no memory row waits to be remapped or could not be", rows,
        "Pending: the bad row is still in use until a reset. Failed: no spare rows are left.",
        "Pending: reset the GPU. Remapping failure: replace it.",
        "NVIDIA GPU memory error management, row remapping",
        needs="nvidia", severity=Severity.CRITICAL, action=Action.RESTART),
    AuditRule("gpu.recovery", "no GPU asks to be reset", recovery,
        "The driver itself says that the GPU needs a reset, a reboot or a drain.",
        "Do what it says: drain the host, then reset the GPU or reboot.",
        "nvidia-smi -q, GPU Recovery Action", needs="nvidia", severity=Severity.CRITICAL, action=Action.RESTART),
    AuditRule("gpu.persistence", "the driver keeps GPUs initialised", persistence,
        "GPUs initialise at each job's start: slow starts, lost counters and settings.",
        "systemctl enable --now nvidia-persistenced (or nvidia-smi -pm 1).",
        "NVIDIA driver persistence", needs="nvidia metal"),
    AuditRule("gpu.replays", "few PCIe replays", replays,
        "Packets between GPU and processor are sent again: a marginal PCIe link.",
        "Reseat the GPU or baseboard, check retimers; replace it if the count grows under load.",
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", needs="nvidia", action=Action.INSPECT),
    AuditRule("gpu.vbios.mixed", "GPUs of one kind run one VBIOS", vbios_mixed,
        "GPUs with different firmware have different limits and defects.",
        "Update the odd ones to the version of the others.",
        "azurehpc-health-checks check_vbios_version", needs="nvidia"),
    AuditRule("gpu.mig", "GPUs are not divided (MIG)", mig,
        "Instances of a divided GPU have no NVLink and no peer access: collectives go through host memory.",
        "nvidia-smi -mig 0 where the host is for training.",
        "NVIDIA MIG user guide, limitations", needs="nvidia", action=Action.RESTART),
)  # fmt: skip
