"""Folders of made incidents as an operator gathers them: dmesg, ibstat, nvidia-smi, nccl-tests of sixteen hosts.

Bandwidths follow a rule of thumb that is not ours to predict: a ring over eight NICs a host runs at eight times its
slowest NIC, of which nccl-tests see 92 %.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from syncline.describe.own_data import parsed

CLUSTER = {"hosts": 16, "host": "8 x H100", "host_names": "gpu[00-15]", "network": "rail-optimized NDR"}
HOSTS = [f"gpu{number:02d}" for number in range(16)]
BUSES = ("18", "40", "4f", "5e", "9a", "c0", "ce", "dc")
LINE_GBPS = 400.0
_LANE_GBPS = {"8.0": 7.8768, "16.0": 15.7536, "32.0": 31.5072}
_HEADER = """# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
"""
_COLUMNS = """#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""


def incidents() -> list[dict[str, Any]]:
    """Return the incidents as they are described."""
    found = parsed(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    assert isinstance(found, list)
    return found


def write(incident: dict[str, Any], folder: Path) -> Path:
    """Write the folder of one incident."""
    folder.mkdir(parents=True)
    pcie = {(host, nic): (speed, lanes) for host, nic, speed, lanes in incident.get("pcie", ())}
    rates = {(host, nic): rate for host, nic, rate in incident.get("rates", ())}
    down = {(host, nic) for host, nic in incident.get("down", ())}
    for host in HOSTS:
        kernel = [*_kernel(host, pcie), *incident.get("dmesg", {}).get(host, ())]
        (folder / f"dmesg-{host}.txt").write_text("\n".join(kernel) + "\n")
        (folder / f"ibstat.{host}").write_text("".join(_ibstat(host, rates, down)))
        gpus = range(incident.get("gpus", {}).get(host, 8))
        (folder / f"nvidia-smi_{host}.txt").write_text("".join(f"GPU {i}: NVIDIA H100 80GB HBM3\n" for i in gpus))
        if "symbol_errors" in incident:
            errors = incident["symbol_errors"].get(host, 2)
            text = f"NIC statistics:\n     rx_symbol_err_phy: {errors}\n"
            (folder / f"ethtool-S_{host}_ibs6.txt").write_text(text)
    for name, text in incident.get("files", {}).items():
        (folder / name).write_text(text)
    if not incident.get("fails"):
        slowest = min([LINE_GBPS, *rates.values(), *(_LANE_GBPS[speed] * lanes for speed, lanes in pcie.values())])
        (folder / "all_reduce_perf.log").write_text(_table(0.92 * slowest))
    return folder


def _kernel(host: str, pcie: dict[tuple[str, int], tuple[str, int]]) -> Iterator[str]:
    yield "[    0.000000] Linux version 5.15.0-105-generic (buildd@lcy02) #115-Ubuntu SMP"
    for nic, bus in enumerate(BUSES):
        at = f"mlx5_core 0000:{bus}:00.0"
        yield f"[   {10 + nic}.120001] {at}: firmware version: 28.39.3004"
        if (host, nic) in pcie:
            speed, lanes = pcie[host, nic]
            rate, port = _LANE_GBPS[speed] * lanes, f"0000:{bus[0]}0:01.0"
            yield (f"[   {10 + nic}.120044] {at}: {rate:.3f} Gb/s available PCIe bandwidth, limited by {speed} GT/s "
                   f"PCIe x{lanes} link at {port} (capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)")  # fmt: skip
        else:
            yield f"[   {10 + nic}.120044] {at}: 504.112 Gb/s available PCIe bandwidth (32.0 GT/s PCIe x16 link)"
        yield f"[   {30 + nic}.500000] {at} ibs{nic}: Link up"


def _ibstat(host: str, rates: dict[tuple[str, int], float], down: set[tuple[str, int]]) -> Iterator[str]:
    for nic in range(8):
        is_down = (host, nic) in down
        rate = 10 if is_down else rates.get((host, nic), LINE_GBPS)
        state, physical = ("Down", "Polling") if is_down else ("Active", "LinkUp")
        yield f"CA 'mlx5_{nic}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: 28.39.3004\n\tPort 1:\n"
        yield f"\t\tState: {state}\n\t\tPhysical state: {physical}\n\t\tRate: {rate:.0f}\n\t\tLink layer: InfiniBand\n"


def _table(busbw_GBps: float) -> str:
    text = _HEADER
    for number, host in enumerate(HOSTS):
        for gpu in range(8):
            rank, bus = 8 * number + gpu, BUSES[gpu]
            text += (
                f"#  Rank {rank:3d} Group  0 Pid {1000 + gpu} on {host} device  {gpu} [0x{bus}] NVIDIA H100 80GB HBM3\n"
            )
    text += _COLUMNS
    for size, share in ((1 << 30, 0.93), (1 << 31, 0.97), (1 << 33, 1.0)):
        rate = busbw_GBps * share
        algbw = rate / (2 * 127 / 128)
        half = f"{size / algbw / 1e3:9.1f} {algbw:7.2f} {rate:7.2f}      0"
        text += f"{size:12d} {size // 4:13d}     float     sum      -1 {half} {half}\n"
    return f"{text}# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {busbw_GBps:.3f}\n"
