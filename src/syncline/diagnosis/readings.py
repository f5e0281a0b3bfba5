"""What a host's own tools say, out of their saved output: ports, rates, PCIe links, counters, GPUs.

A folder of an incident holds whatever somebody could get: each file is asked for what it is by what stands in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from syncline.describe import units

MAX_BYTES = 4 << 20


@dataclass(frozen=True)
class PortReading:
    """One port of a NIC as a tool of its host shows it."""

    host: str
    name: str
    is_up: bool | None = None
    rate_Bps: float | None = None
    line: str = ""
    pci: str = ""


@dataclass(frozen=True)
class PcieReading:
    """The PCIe link of one device: what it has and what it could have."""

    host: str
    pci: str
    rate_Bps: float
    best_Bps: float
    line: str


@dataclass(frozen=True)
class CounterReading:
    """One counter of one port."""

    host: str
    name: str
    counter: str
    value: int
    line: str


@dataclass(frozen=True)
class GpuReading:
    """The GPUs that a host lists, and what is wrong with one by its own word."""

    host: str
    count: int
    faults: tuple[tuple[str, str, str], ...] = ()
    """Of each: which GPU, what is wrong, the line."""


Reading = PortReading | PcieReading | CounterReading | GpuReading

_CA = re.compile(r"^CA '(\w+)'")
_IB = re.compile(r"^\s+(State|Rate|Physical state): *(\S+)")
_ETHTOOL = re.compile(r"^Settings for (\S+):")
_SPEED = re.compile(r"^\s*Speed: (\d+)Mb/s")
_DETECTED = re.compile(r"^\s*Link detected: (yes|no)")
_IP = re.compile(r"^(?:\d+: )?((?:en|eth|ib|rdma|roce|bond|mlx)\w*)(?:@\w+)?:? .*(?:state )?\b(UP|DOWN)\b")
_COUNTER = re.compile(r"^\s+(\w+): (\d+)$")
_LIMITED = re.compile(
    r"(?P<pci>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d): (?P<rate>[\d.]+) Gb/s available PCIe bandwidth, limited by "
    r".{0,80}?\(capable of (?P<best>[\d.]+) Gb/s"
)
_AVAILABLE = re.compile(r"(?P<pci>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d): [\d.]+ Gb/s available PCIe bandwidth")
_LSPCI = re.compile(r"^(?P<pci>(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d) (?P<what>.*)")
_LINK = re.compile(r"Lnk(Cap|Sta):.*?Speed ([\d.]+)GT/s.*?Width x(\d+)")
_GTPS_BITS = {2.5: 0.8, 5.0: 0.8}  # encoding below 8 GT/s
_SMI_ROW = re.compile(r"^\|\s+(\d+)\s+(?:NVIDIA|Tesla|GeForce|Quadro|[AHBL]\d{2,3})")
_SMI_LIST = re.compile(r"^GPU (\d+): ")
_BAD_COUNTERS = re.compile(
    r"^(?:rx_crc_errors_phy|rx_symbol_err_phy|rx_pcs_symbol_err_phy|link_down_events_phy|rx_discards_phy|rx_out_of_buffer|"
    r"tx_timeout|rx_errors|SymbolErrorCounter|LinkDownedCounter|LinkErrorRecoveryCounter|PortRcvErrors|"
    r"LocalLinkIntegrityErrors|symbol_error|link_downed|port_rcv_errors|out_of_sequence|packet_seq_err|"
    r"local_ack_timeout_err|roce_adp_retrans|rx_corrected_bits_phy_uncorrectable|rx_prio\d_discards)$"
)
_PERFQUERY = re.compile(r"^(\w+):\.{2,}(\d+)$")


def pcie_Bps(speed_GTps: float, width: int) -> float:
    """Return what a PCIe link of so many lanes carries, in bytes per second."""
    return speed_GTps * 1e9 * width * _GTPS_BITS.get(speed_GTps, 128 / 130) / 8


def read(text: str, host: str) -> Iterator[Reading]:
    """Yield what a tool's output says; nothing where it is none of those known here."""
    lines = text.splitlines()
    yield from _ibstat(lines, host)
    yield from _ethtool(lines, host)
    yield from _links(lines, host)
    yield from _pcie(lines, host)
    yield from _lspci(lines, host)
    yield from _gpus(lines, host)


def _ibstat(lines: list[str], host: str) -> Iterator[Reading]:
    name, state, rate, first = "", "", "", ""
    for line in (*lines, "CA 'end'"):
        if found := _CA.match(line):
            if name and state:
                up = state in ("Active", "Initializing", "Armed")
                speed = units.rate(f"{rate}Gbps") if rate and rate.replace(".", "").isdigit() else None
                yield PortReading(host, name, up, speed, first)
            name, state, rate, first = found[1], "", "", ""
        elif name and (found := _IB.match(line)):
            if found[1] == "State" and not state:
                state, first = found[2].rstrip(":"), f"{name}: {line.strip()}"
            elif found[1] == "Rate" and not rate:
                rate, first = found[2], f"{first}, {line.strip()}"


def _ethtool(lines: list[str], host: str) -> Iterator[Reading]:
    name, rate, up = "", None, None
    for line in (*lines, "Settings for end:"):
        if found := _ETHTOOL.match(line):
            if name:
                speed = f"Speed {units.show_rate(rate)}" if rate else "no speed"
                yield PortReading(host, name, up, rate, f"{name}: {speed}, link {'up' if up else 'down'}")
            name, rate, up = found[1], None, None
        elif found := _SPEED.match(line):
            rate = int(found[1]) * 1e6 / 8
        elif found := _DETECTED.match(line):
            up = found[1] == "yes"
    is_statistics = any(
        line.startswith(("NIC statistics:", "# Port extended counters", "# Port counters")) for line in lines
    )
    for line in lines if is_statistics else ():
        found = _COUNTER.match(line) or _PERFQUERY.match(line.strip())
        if found and int(found[2]) > 0 and _BAD_COUNTERS.match(found[1]):
            yield CounterReading(host, "", found[1], int(found[2]), line.strip())


def _links(lines: list[str], host: str) -> Iterator[Reading]:
    """Yield the state of interfaces as `ip -br link` and `ip link` show it."""
    rows = [(found, line) for line in lines if (found := _IP.match(line))]
    if len(rows) >= max(1, len([line for line in lines if line.strip()]) // 4):
        for found, line in rows:
            yield PortReading(host, found[1], found[2] == "UP", None, line.strip()[:120])


def _pcie(lines: list[str], host: str) -> Iterator[Reading]:
    for line in lines:
        if found := _LIMITED.search(line):
            rate, best = float(found["rate"]) * 1e9 / 8, float(found["best"]) * 1e9 / 8
            yield PcieReading(host, found["pci"], rate, best, line.strip())


_LISTED_NIC = re.compile(
    r"^((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d) (?:Infiniband|Ethernet) controller(?: \[\w+\])?: (.+)$",
    re.MULTILINE,
)


def nic_addresses(text: str) -> list[str]:
    """Return the PCI addresses of the NICs that a kernel log or lspci names, in the order of the bus.

    Of those that lspci lists only the model of which a host has most: the others are no rails.
    """
    named = {found["pci"] for line in text.splitlines() if (found := _AVAILABLE.search(line))}
    named |= set(re.findall(r"\b(?:mlx5_core|bnxt_en|ice|irdma|efa) ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d)\b", text))
    listed = _LISTED_NIC.findall(text)
    usual = Counter(model for _, model in listed).most_common(1)
    named |= {pci if pci.count(":") == 2 else f"0000:{pci}" for pci, model in listed if model == usual[0][0]}
    return sorted(named)


def interface_addresses(text: str) -> dict[str, str]:
    """Return the PCI address of every interface that a kernel log names beside it."""
    return {
        name: pci for pci, name in re.findall(r"\b(?:mlx5_core|bnxt_en|ice) ([0-9a-f:.]{12}) (\w+)(?= ?[:(])", text)
    }


def _lspci(lines: list[str], host: str) -> Iterator[Reading]:
    pci, what = "", ""
    best: tuple[float, int] | None = None
    for line in lines:
        if found := _LSPCI.match(line):
            pci, what, best = found["pci"], found["what"], None
            pci = pci if pci.count(":") == 2 else f"0000:{pci}"
        elif (
            pci
            and (found := _LINK.search(line))
            and re.search(r"Mellanox|ConnectX|Ethernet|Infiniband|NVIDIA|AMD", what)
        ):
            link = float(found[2]), int(found[3])
            if found[1] == "Cap":
                best = link
            elif best and (link[0] < best[0] or link[1] < best[1]):
                yield PcieReading(host, pci, pcie_Bps(*link), pcie_Bps(*best), f"{pci} {line.strip()}")


def _gpus(lines: list[str], host: str) -> Iterator[Reading]:
    rows = [line for line in lines if _SMI_ROW.match(line) or _SMI_LIST.match(line)]
    faults = []
    for at, line in enumerate(lines):
        if "ERR!" in line or "Unable to determine the device handle" in line or "GPU is lost" in line:
            number = next((found[1] for row in reversed(lines[: at + 1]) if (found := _SMI_ROW.match(row))), "?")
            faults.append((f"gpu-{number}", "does not answer", line.strip()))
        elif re.search(r"(?:HW (?:Thermal |Power Brake )?Slowdown|Uncorrectable.*) +: (?:Active|[1-9]\d*)$", line):
            index = sum(row.startswith("GPU 0000") for row in lines[: at + 1]) - 1
            faults.append((f"gpu-{max(index, 0)}", line.split(":")[0].strip(), line.strip()))
    header = [line for line in lines if line.startswith("GPU 0000")]
    if rows or header or faults:
        yield GpuReading(host, len(rows) or len(header), tuple(faults))
