"""What may leave a host in a report or a capture: allow lists, applied where things are read.

Nothing that these functions drop is ever held by a `Root`, so no report, capture or JSON can leak it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_VARIABLES = re.compile(
    r"(NCCL|RCCL|GLOO|UCX|UCC|FI|OFI_NCCL|OMPI_MCA|TORCH_NCCL|TORCH_DISTRIBUTED|TORCH_GLOO|RDMAV|MLX5|MLX4|IBV|PSM2|PSM3|SHARP)"
    r"_[A-Z0-9_]+|(OMPI_MCA)_\w+|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|CUDA_DEVICE_MAX_CONNECTIONS|NVIDIA_VISIBLE_DEVICES"
    r"|MASTER_ADDR|MASTER_PORT|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK"
    r"|SLURM_(JOB_ID|PROCID|LOCALID|NTASKS|NNODES|NODEID|JOB_NODELIST|NODELIST)|OMPI_COMM_WORLD_(RANK|SIZE|LOCAL_RANK|LOCAL_SIZE)"
    r"|PMI_RANK|PMI_SIZE|SYNCLINE_LAB_SCALE|SYNCLINE_LAB_HOST|OMP_NUM_THREADS|CUDA_LAUNCH_BLOCKING"
)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|PRIVATE|SIGNATURE", re.IGNORECASE)
_KERNEL_OPTIONS = re.compile(
    r"(iommu(\.\w+)?|intel_iommu|amd_iommu|iommu\.passthrough|pci|pcie_acs_override|pcie_aspm(\.policy)?|pcie_port_pm"
    r"|intel_idle\.max_cstate|processor\.max_cstate|idle|cpuidle\.off|intel_pstate|amd_pstate|isolcpus|nohz_full|rcu_nocbs"
    r"|hugepages|hugepagesz|default_hugepagesz|transparent_hugepage|numa_balancing|numa|nosmt|mitigations|tsc|clocksource"
    r"|nvidia\S*|mlx5_core\.\S+|nomodeset|skew_tick|swiotlb|cgroup_no_v1|systemd\.unified_cgroup_hierarchy)(=\S*)?"
)
_LOG_LINES = re.compile(
    r"NVRM|SXid|nvidia|nvlink|nvswitch|amdgpu|mlx5|mlx4|bnxt|\bice\b|irdma|\befa\b|infiniband|\bib\d"
    r"|lost carrier|[Ll]ink is (Down|Up)"
    r"|[Ll]ink (down|up)|insufficient power|limited PCIe bandwidth|available PCIe bandwidth|AER:|PCIe Bus Error"
    r"|High Temperature|[Oo]ut of memory|DMAR|AMD-Vi|iommu|peermem|nv_peer_mem|NETDEV WATCHDOG|MCE"
    r"|[Hh]ardware [Ee]rror|segfault.*libnccl|blocked for more than|EDAC|lockup|rcu: .*stall|\bBUG:|Oops|panic"
    r"|WARNING: CPU|Call Trace|throttled|critical temperature"
    r"|hw csum|transmit queue|BAR \d+: |failed to assign|I/O error"
    r"|nvme|cxi|hfi1|\bqed|i40e|ixgbe|\bena\b|\bgve\b"
    r"|conntrack|oom-kill|oom_reaper|[Uu]ncorrect|page allocation failure"
)
_SMI_PRIVATE = re.compile(r"^\s*(Serial Number|Chassis Serial Number|GPU UUID|GPU PDI|GPU Fabric GUID|Board Serial)\b")


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that steer collectives, and no others."""
    return {
        name: value.replace("\n", " ")[:500]
        for name, value in sorted(variables.items())
        if _VARIABLES.fullmatch(name) and not _SECRET.search(name)
    }


def kernel_options(text: str) -> str:
    """Return the options of a kernel command line that the rules look at, in their order."""
    own = text.split(" -- ", 1)[0]
    return " ".join(word for word in own.split() if _KERNEL_OPTIONS.fullmatch(word)) + "\n"


def log_lines(text: str) -> str:
    """Return the last 2,000 kernel log lines about network, GPU, PCIe and memory."""
    return "\n".join([line for line in text.splitlines() if _LOG_LINES.search(line)][-2000:]) + "\n"


def smi_text(text: str) -> str:
    """Return the output of `nvidia-smi -q` without serial numbers and without the processes of users."""
    kept, process_indent = [], None
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if process_indent is not None and line.strip() and indent > process_indent:
            continue
        process_indent = indent if re.match(r"\s*Processes\b", line) else None
        if process_indent is None and not _SMI_PRIVATE.match(line):
            kept.append(line)
    return "\n".join(kept) + "\n"


def nvlink_text(text: str) -> str:
    """Return the output of `nvidia-smi nvlink -s` without the serial ids of the GPUs."""
    return re.sub(r"\s*\(UUID: [^)]*\)", "", text)


def nccl_options(text: str) -> str:
    """Return the lines of an NCCL configuration file that set variables which steer collectives."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    kept = environment({name.strip(): value.strip() for name, value in pairs})
    return "".join(f"{name}={value}\n" for name, value in kept.items())


def without_comments(text: str) -> str:
    """Return a file of names and addresses without what people wrote beside them."""
    lines = (re.split(r"[#;]", line, maxsplit=1)[0].rstrip() for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def name_order(text: str) -> str:
    """Return the line of nsswitch.conf about hosts; where users and passwords are looked up is nobody's business."""
    return "".join(f"{line}\n" for line in without_comments(text).splitlines() if line.startswith("hosts:"))


FILE_FILTERS: Mapping[str, Callable[[str], str]] = {
    "proc/cmdline": kernel_options,
    "nccl.conf": nccl_options,
    "etc/hosts": without_comments,
    "etc/resolv.conf": without_comments,
    "etc/nsswitch.conf": name_order,
}
"""By path, or by the end of one."""
COMMAND_FILTERS: Mapping[str, Callable[[str], str]] = {
    "nvidia-smi-q": smi_text,
    "nvidia-smi-nvlink": nvlink_text,
    "dmesg": log_lines,
}
