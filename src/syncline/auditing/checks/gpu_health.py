"""GPUs as stragglers and risks: clocks, power, memory errors, firmware, division."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from syncline.auditing.checks.gpu import reported
from syncline.auditing.expect import Expect
from syncline.auditing.rule import AuditRule, Check, Sight, odd_ones
from syncline.finding import Action, Severity
from syncline.host.gpu import HostGpu
from syncline.host.host import Host

_SLOWDOWNS = (
    "HW Slowdown", "HW Slowdown/HW Thermal Slowdown", "HW Slowdown/HW Power Brake Slowdown", "SW Thermal Slowdown",
    "HW Thermal Slowdown", "HW Power Brake Slowdown",
)  # fmt: skip
_REASONS = ("Clocks Event Reasons", "Clocks Throttle Reasons")
MAX_REPLAYS = 1000


def each(look: Callable[[HostGpu], str], expected: str, heading: str) -> Check:
    """Return a check of every GPU: `look` returns what is wrong under a heading of nvidia-smi, "" where nothing is."""

    def check(host: Host, expect: Expect) -> Iterator[Sight]:
        for gpu in reported(host):
            if observed := look(gpu):
                yield Sight(gpu.label, observed, expected, (f"nvidia-smi -q: {heading}",))

    return check


def together(path: str, value: str, observed: str, expected: str) -> Check:
    """Return a check that names all GPUs with that value at once."""

    def check(host: Host, expect: Expect) -> Iterator[Sight]:
        names = [gpu.name for gpu in reported(host) if gpu.value(path) == value]
        if names:
            yield Sight(", ".join(names), observed, expected, (f"nvidia-smi -q: {path.partition('/')[0]}",))

    return check


def slowdown(gpu: HostGpu) -> str:
    active = [r.rpartition("/")[2] for head in _REASONS for r in _SLOWDOWNS if gpu.value(f"{head}/{r}") == "Active"]
    return f"{', '.join(dict.fromkeys(active))} active" if active else ""


def clock_lowered(host: Host, expect: Expect) -> Iterator[Sight]:
    for gpu in reported(host):
        now, usual = (gpu.number(f"{head}Applications Clocks/Graphics") for head in ("", "Default "))
        if now and usual and now < usual:
            observed, evidence = f"application clock {now:.0f} MHz", ("nvidia-smi -q: Applications Clocks",)
            yield Sight(gpu.label, observed, f"{usual:.0f} MHz", evidence)


def power_lowered(host: Host, expect: Expect) -> Iterator[Sight]:
    for gpu in reported(host):
        for head in ("GPU Power Readings", "Power Readings"):
            now = gpu.number(f"{head}/Current Power Limit") or gpu.number(f"{head}/Power Limit")
            usual = gpu.number(f"{head}/Default Power Limit")
            if now and usual and now < usual * 0.995:
                yield Sight(gpu.label, f"power limit {now:.0f} W", f"{usual:.0f} W", (f"nvidia-smi -q: {head}",))
                break


def ecc_uncorrectable(gpu: HostGpu) -> str:
    names = [name for name in gpu.smi if name.startswith("ECC Errors/Volatile/") and "Uncorrectable" in name]
    counts = {name.rpartition("/")[2]: int(gpu.number(name) or 0) for name in names}
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)


def rows(gpu: HostGpu) -> str:
    bad = [k for k in ("Pending", "Remapping Failure Occurred") if gpu.value(f"Remapped Rows/{k}") == "Yes"]
    return f"{', '.join(bad)}: Yes" if bad else ""


def recovery(gpu: HostGpu) -> str:
    action = gpu.value("GPU Recovery Action")
    return "" if action in ("", "None") else f"recovery action {action}"


def replays(gpu: HostGpu) -> str:
    count = gpu.number("PCI/Replays Since Reset") or 0
    return f"{count:,.0f} PCIe replays" if count >= MAX_REPLAYS else ""


def vbios_mixed(host: Host, expect: Expect) -> Iterator[Sight]:
    usual, odd = odd_ones({gpu.name: v for gpu in reported(host) if (v := gpu.value("VBIOS Version"))})
    if odd:
        versions = ", ".join(sorted(set(odd.values())))
        yield Sight(", ".join(odd), f"VBIOS {versions}", usual, ("nvidia-smi -q: VBIOS Version",))


RULES = (
    AuditRule("gpu.clock.slowdown", "no GPU is slowed down by heat or power",
        each(slowdown, "none", "Clocks Event Reasons"),
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
    AuditRule("gpu.ecc.off", "memory error correction is on",
        each(lambda gpu: "ECC disabled" if gpu.value("ECC Mode/Current") == "Disabled" else "", "enabled", "ECC Mode"),
        "Memory errors change results instead of being corrected or reported.",
        "nvidia-smi -e 1, then reset the GPU.",
        "NVIDIA GPU memory error management", needs="nvidia"),
    AuditRule("gpu.ecc.uncorrectable", "no uncorrectable memory errors since the driver was loaded",
        each(ecc_uncorrectable, "0", "ECC Errors"),
        "Data was lost; jobs on this GPU crash (Xid 48, 63, 94, 95).",
        "Drain the host, reset the GPU so that rows are remapped; replace it if errors return.",
        "NVIDIA GPU memory error management; gcm nvidia-smi ecc",
        needs="nvidia", severity=Severity.CRITICAL, action=Action.RESTART),
    AuditRule("gpu.rows", "no memory row waits to be remapped or could not be",
        each(rows, "No", "Remapped Rows"),
        "Pending: the bad row is still in use until a reset. Failed: no spare rows are left.",
        "Pending: reset the GPU. Remapping failure: replace it.",
        "NVIDIA GPU memory error management, row remapping",
        needs="nvidia", severity=Severity.CRITICAL, action=Action.RESTART),
    AuditRule("gpu.recovery", "no GPU asks to be reset",
        each(recovery, "None", "GPU Recovery Action"),
        "The driver itself says that the GPU needs a reset, a reboot or a drain.",
        "Do what it says: drain the host, then reset the GPU or reboot.",
        "nvidia-smi -q, GPU Recovery Action", needs="nvidia", severity=Severity.CRITICAL, action=Action.RESTART),
    AuditRule("gpu.persistence", "the driver keeps GPUs initialised",
        together("Persistence Mode", "Disabled", "persistence mode disabled", "enabled"),
        "GPUs initialise at each job's start: slow starts, lost counters and settings.",
        "systemctl enable --now nvidia-persistenced (or nvidia-smi -pm 1).",
        "NVIDIA driver persistence", needs="nvidia metal"),
    AuditRule("gpu.replays", "few PCIe replays",
        each(replays, f"below {MAX_REPLAYS:,}", "PCI"),
        "Packets between GPU and processor are sent again: a marginal PCIe link.",
        "Reseat the GPU or baseboard, check retimers; replace it if the count grows under load.",
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", needs="nvidia", action=Action.INSPECT),
    AuditRule("gpu.vbios.mixed", "GPUs of one kind run one VBIOS", vbios_mixed,
        "GPUs with different firmware have different limits and defects.",
        "Update the odd ones to the version of the others.",
        "azurehpc-health-checks check_vbios_version", needs="nvidia"),
    AuditRule("gpu.mig", "GPUs are not divided (MIG)",
        together("MIG Mode/Current", "Enabled", "MIG enabled", "disabled"),
        "Instances of a divided GPU have no NVLink and no peer access: collectives go through host memory.",
        "nvidia-smi -mig 0 where the host is for training.",
        "NVIDIA MIG user guide, limitations", needs="nvidia", action=Action.RESTART),
)  # fmt: skip
