"""Outputs of commands in the tools' own words, from what a draft holds."""

from __future__ import annotations

import re
from typing import Any, Protocol


class CommandSubject(Protocol):
    """What commands say something about: a draft of a host."""

    host: str
    driver_version: str
    smi: dict[str, dict[str, str]]
    nvlinks: dict[str, list[str]]
    qos: dict[str, dict[str, Any]]


# What `nvidia-smi -q` says of a healthy H100 on an NVSwitch board, by path; a draft's `smi` changes it.
GPU = {
    "Product Name": "NVIDIA H100 80GB HBM3",
    "Product Brand": "NVIDIA",
    "Product Architecture": "Hopper",
    "Persistence Mode": "Enabled",
    "Addressing Mode": "HMM",
    "MIG Mode/Current": "Disabled",
    "MIG Mode/Pending": "Disabled",
    "VBIOS Version": "96.00.A5.00.01",
    "GPU Recovery Action": "None",
    "GPU C2C Mode": "Disabled",
    "PCI/Bus Id": "",
    "PCI/GPU Link Info/PCIe Generation/Max": "5",
    "PCI/GPU Link Info/PCIe Generation/Current": "5",
    "PCI/GPU Link Info/Link Width/Max": "16x",
    "PCI/GPU Link Info/Link Width/Current": "16x",
    "PCI/Replays Since Reset": "0",
    "Performance State": "P0",
    "Clocks Event Reasons/Idle": "Active",
    "Clocks Event Reasons/Applications Clocks Setting": "Not Active",
    "Clocks Event Reasons/SW Power Cap": "Not Active",
    "Clocks Event Reasons/HW Slowdown": "Not Active",
    "Clocks Event Reasons/HW Slowdown/HW Thermal Slowdown": "Not Active",
    "Clocks Event Reasons/HW Slowdown/HW Power Brake Slowdown": "Not Active",
    "Clocks Event Reasons/SW Thermal Slowdown": "Not Active",
    "ECC Mode/Current": "Enabled",
    "ECC Mode/Pending": "Enabled",
    "ECC Errors/Volatile/SRAM Correctable": "0",
    "ECC Errors/Volatile/SRAM Uncorrectable Parity": "0",
    "ECC Errors/Volatile/DRAM Uncorrectable": "0",
    "ECC Errors/Aggregate/SRAM Correctable": "5457",
    "ECC Errors/Aggregate/DRAM Uncorrectable": "0",
    "Remapped Rows/Correctable Error": "0",
    "Remapped Rows/Uncorrectable Error": "0",
    "Remapped Rows/Pending": "No",
    "Remapped Rows/Remapping Failure Occurred": "No",
    "GPU Power Readings/Average Power Draw": "78.45 W",
    "GPU Power Readings/Current Power Limit": "700.00 W",
    "GPU Power Readings/Default Power Limit": "700.00 W",
    "Applications Clocks/Graphics": "1980 MHz",
    "Default Applications Clocks/Graphics": "1980 MHz",
    "Max Clocks/Graphics": "1980 MHz",
    "Fabric/State": "Completed",
    "Fabric/Status": "Success",
    "Fabric/CliqueId": "0",
    "Fabric/ClusterUUID": "00000000-0000-0000-0000-000000000000",
}


def outputs(draft: CommandSubject) -> dict[str, str]:
    """Return every command's output."""
    found = {key: getent(draft.host, "10.20.0.11") for key in ("getent-hosts", "getent-dns")}
    if draft.smi:
        found["nvidia-smi-q"] = smi_text(draft)
    if draft.nvlinks:
        found["nvidia-smi-nvlink"] = nvlink_text(draft)
    found |= {f"mlnx_qos-{name}": qos_text(**settings) for name, settings in draft.qos.items()}
    return found


def getent(name: str, address: str) -> str:
    """Return `getent ahosts NAME`."""
    return f"{address:<15} STREAM {name}\n{address:<15} DGRAM\n{address:<15} RAW\n"


def smi_text(draft: CommandSubject) -> str:
    """Return `nvidia-smi -q`."""
    lines = ["", "==============NVSMI LOG==============", "", f"{'Driver Version':<55}: {draft.driver_version}"]
    lines += [f"{'CUDA Version':<55}: 12.4", "", f"{'Attached GPUs':<55}: {len(draft.smi)}"]
    for address, changes in sorted(draft.smi.items()):
        lines.append(f"GPU 0000{address.upper()}")
        lines += _indented(GPU | {"PCI/Bus Id": f"0000{address.upper()}"} | changes)
    return "\n".join(lines) + "\n"


def _indented(values: dict[str, str]) -> list[str]:
    lines: list[str] = []
    shown: set[str] = set()
    for path, value in values.items():
        parts = path.split("/") if path.count("/") else [path]
        for depth in range(1, len(parts)):
            head = "/".join(parts[:depth])
            if head not in shown and head not in values:
                lines.append("    " * depth + parts[depth - 1])
            shown.add(head)
        lines.append(f"{'    ' * len(parts) + parts[-1]:<55}: {value}")
    return lines


def nvlink_text(draft: CommandSubject) -> str:
    """Return `nvidia-smi nvlink -s`."""
    lines = []
    for index, (address, links) in enumerate(sorted(draft.nvlinks.items())):
        name = draft.smi.get(address, {}).get("Product Name", GPU["Product Name"])
        lines.append(f"GPU {index}: {name}")
        lines += [f"\t Link {number}: {state}" for number, state in enumerate(links)]
    return "\n".join(lines) + "\n"


def qos_text(trust: str = "dscp", pfc: str = "00010000") -> str:
    """Return `mlnx_qos -i IF`."""
    rows = [f"\tprio:{p} dscp:{','.join(f'{d:02d}' for d in range(8 * p + 7, 8 * p - 1, -1))}," for p in range(8)]
    bits = "   ".join(pfc)
    return "\n".join(
        (
            "DCBX mode: OS controlled", f"Priority trust state: {trust}", "dscp2prio mapping:", *rows,
            "Receive buffer size (bytes): 19872,243072,0,0,0,0,0,0,total_size=262016", "Cable len: 7",
            "PFC configuration:", "\tpriority    0   1   2   3   4   5   6   7", f"\tenabled     {bits}   ",
            f"\tbuffer      {bits}   ", "tc: 0 ratelimit: unlimited, tsa: vendor", "\t priority:  1", "",
        )
    )  # fmt: skip


def ethtool_features(**changes: str) -> str:
    """Return the head of `ethtool -k IF`."""
    rows = {
        "rx-checksumming": "on", "tx-checksumming": "on", "scatter-gather": "on", "tcp-segmentation-offload": "on",
        "generic-segmentation-offload": "on", "generic-receive-offload": "on", "large-receive-offload": "off [fixed]",
    }  # fmt: skip
    rows |= {re.sub("_", "-", name): value for name, value in changes.items()}
    return "Features for eth0:\n" + "".join(f"{name}: {value}\n" for name, value in rows.items())


def ethtool_rings(largest: int, current: int) -> str:
    """Return `ethtool -g IF`."""
    block = "RX:\t\t{0}\nRX Mini:\tn/a\nRX Jumbo:\tn/a\nTX:\t\t{0}\n"
    rows = (f"Pre-set maximums:\n{block.format(largest)}", f"Current hardware settings:\n{block.format(current)}")
    return "Ring parameters for eth0:\n" + "".join(rows)


def ethtool_statistics(**changes: int) -> str:
    """Return the part of `ethtool -S IF` that tells of priorities and pauses."""
    rows = {f"{way}_prio{p}_{what}": 0 for p in range(8) for way in ("rx", "tx") for what in ("packets", "pause")}
    rows |= {"rx_prio3_packets": 900_000_000, "tx_prio3_packets": 900_000_000, "rx_prio3_pause": 4100}
    rows |= {"rx_global_pause": 0, "tx_global_pause": 0} | changes
    return "NIC statistics:\n" + "".join(f"     {name}: {value}\n" for name, value in rows.items())


def imex(
    addresses: tuple[str, ...], *, state: str = "UP", node: str = "READY", cell: str = "C", version: str = "570.172"
) -> str:
    """Return `nvidia-imex-ctl -N`: the words of its third node and of the way from the first to it can be changed."""
    odd = 2
    heads = "".join(f"{n:<4}" for n in range(len(addresses)))
    lines = [
        "Connectivity Table Legend:",
        "C - Connected - Ready for operation",
        "",
        "11/15/2026 08:00:10.580",
        "Nodes:",
    ]
    for n, address in enumerate(addresses):
        said = (node, version) if n == odd else ("READY", "570.172")
        lines.append(f"Node #{n:<3} - {address:<15} - {said[0]:<20} - Version: {said[1]}")
    lines += ["", f" Nodes From\\To  {heads}"]
    for a in range(len(addresses)):
        cells = "".join(f"{cell if {a, b} == {0, odd} else 'C':<4}" for b in range(len(addresses)))
        lines.append(f"       {a:<9}{cells}")
    return "\n".join([*lines, f"Domain State: {state}", ""])


def devinfo(ports: dict[str, int]) -> str:
    """Return the part of `ibv_devinfo -v` that tells the MTU of each device."""
    blocks = [
        f"hca_id:\t{name}\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t28.42.1000\n\t\tport:\t1\n"
        "\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tmax_mtu:\t\t4096 (5)\n"
        f"\t\t\tactive_mtu:\t\t{mtu} ({mtu.bit_length() - 8})\n"
        for name, mtu in ports.items()
    ]
    return "\n".join(blocks)
