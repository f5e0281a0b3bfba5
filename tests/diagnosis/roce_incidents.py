"""Folders of made incidents on a RoCE cluster, gathered otherwise than those of `incidents`: a folder for every host.

Each is written from what was done to the cluster, never from what a rule looks for. Lines are those of the kernel, of
ethtool, lspci, iproute2 and SONiC. Bandwidth: eight times the slowest NIC of a host, of which nccl-tests see 92 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

CLUSTER = {"hosts": 12, "host": "8 x H200", "host_names": "node[01-12]", "network": "rail-optimized 400GbE"}
HOSTS = [f"node{number:02d}" for number in range(1, 13)]
BUSES = ("1a", "3c", "4d", "5d", "9b", "bc", "cb", "dc")
NICS = tuple(f"enp{int(bus, 16)}s0np0" for bus in BUSES)
COUNTED = (2, 5)
"""NICs of which somebody thought to save the counters."""
LINE_GBPS, LANE_GBPS = 400.0, {8: 7.877, 16: 15.754, 32: 31.508}
WATCHDOG = (
    "[rank{rank}]:[E1118 02:14:29.224103812 ProcessGroupNCCL.cpp:684] [Rank {rank}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) "
    "ran for 600012 milliseconds before timing out.\n"
)


@dataclass(frozen=True)
class RoceIncident:
    """What was done: `first` must be named first (several where either may be), and nothing where it is empty."""

    name: str
    first: tuple[tuple[str, str], ...]
    pcie: Mapping[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    speed: Mapping[tuple[str, int], int] = field(default_factory=dict)
    down: frozenset[tuple[str, int]] = frozenset()
    counters: Mapping[tuple[str, int], dict[str, int]] = field(default_factory=dict)
    kernel: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gpus: Mapping[str, int] = field(default_factory=dict)
    switch: tuple[str, ...] = ()
    job: str = ""
    by_pdsh: bool = False
    """Kernel logs of all hosts in one file, as pdsh gathers them."""


_XID = "NVRM: Xid (PCI:0000:5d:00): 79, pid=4242, name=python3, GPU has fallen off the bus."
_ECC = "[64000.100000] NVRM: Xid (PCI:0000:9b:00): 94, pid=777, name=python3, Contained: SM (0x1). RST: No"
_STORM = (
    "Nov 18 02:04:{second:02d}.100000 leaf-2 NOTICE swss#orchagent: :- startWdActionOnQueue: PFC Watchdog detected "
    "PFC storm on port Ethernet48, queue index 3, queue id 0x150000000004e9 and port id 0x10000000004e2."
)
_CRC = {"rx_crc_errors_phy": 88211, "rx_symbol_err_phy": 91777}
_HUNG = WATCHDOG.format(rank=3) + WATCHDOG.format(rank=40) + WATCHDOG.format(rank=77)


def _link(at_s: float, nic: int, word: str) -> str:
    return f"[{at_s:12.6f}] mlx5_core 0000:{BUSES[nic]}:00.0 {NICS[nic]}: Link {word}"


def roce_incidents() -> list[RoceIncident]:
    """Return seven incidents with one fault, ten with two and three with none."""
    narrow, slow, lost = {("node05", 3): (32, 8)}, {("node07", 0): 100_000}, frozenset({("node02", 6)})
    crc = {("node09", 2): _CRC}
    fell = {"node11": (f"[81234.100000] {_XID}",)}
    storm = tuple(_STORM.format(second=second) for second in (1, 7, 31))
    oom = "[70000.100000] Out of memory: Killed process 31337 (python3) total-vm:1994241024kB, anon-rss:1893419520kB"
    hung = (
        "[80000.100000] nfs: server filer-1 not responding, still trying",
        "[80130.100000] INFO: task python3:31337 blocked for more than 120 seconds.",
    )
    manager = (
        "[   99.100] nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error",
    )
    notready = (
        "[rank88]: RuntimeError: CUDA error: system not yet initialized\n"
        "node12:991:991 [0] init.cc:1890 NCCL WARN Cuda failure 802 'system not yet initialized'\n"
    )
    boot = {"node03": (_link(31.0, 1, "down"), _link(33.5, 1, "up"))}
    storage = {(host, 0): 100_000 for host in HOSTS}
    down6 = {"node02": (_link(9000.1, 6, "down"),)}
    return [
        RoceIncident("narrow-by-lspci", (("node05", "nic-3"),), pcie=narrow),
        RoceIncident("slow-by-ethtool", (("node07", "nic-0"),), speed=slow),
        RoceIncident("down", (("node02", "nic-6"),), down=lost, kernel=down6, job=_HUNG),
        RoceIncident("crc", (("node09", "nic-2"),), counters=crc, job=_HUNG),
        RoceIncident("fell-off", (("node11", ""),), kernel=fell, job=_HUNG, by_pdsh=True),
        RoceIncident("storm", (("leaf-2", "Ethernet48"),), switch=storm, job=_HUNG),
        RoceIncident("contained-ecc", (("node03", ""),), job=_HUNG, by_pdsh=True, kernel={"node03": (_ECC,)}),
        RoceIncident("narrow-and-slow", (("node07", "nic-0"),), pcie=narrow, speed=slow),
        RoceIncident("down-and-crc", (("node02", "nic-6"),), down=lost, kernel=down6, counters=crc, job=_HUNG),
        RoceIncident("fell-off-and-narrow", (("node11", ""),), kernel=fell, pcie=narrow, job=_HUNG),
        RoceIncident("x8-and-x4", (("node04", "nic-7"),), pcie={("node01", 1): (32, 8), ("node04", 7): (32, 4)}),
        RoceIncident("missing-and-crc", (("node06", ""),), gpus={"node06": 7}, counters=crc, job=_HUNG),
        RoceIncident("half-rate-and-old-flap", (("node10", "nic-5"),), speed={("node10", 5): 200_000}, kernel={
            "node03": tuple(_link(900.0 + 40 * n, 1, word) for n in range(4) for word in ("down", "up"))}),
        RoceIncident("memory-and-storage-nic", (("node08", ""),), kernel={"node08": (oom,)}, speed=storage, job=_HUNG),
        RoceIncident("storm-and-crc", (("leaf-2", "Ethernet48"), ("node09", "nic-2")), switch=storm, counters=crc,
                     job=_HUNG),
        RoceIncident("filer-and-narrow", (("node04", ""),), kernel={"node04": hung}, pcie=narrow, job=_HUNG),
        RoceIncident("nvswitch-and-slow", (("node12", ""),), kernel={"node12": manager}, speed=slow, job=notready),
        RoceIncident("healthy", ()),
        RoceIncident("healthy-by-design", (), pcie={(host, 0): (16, 16) for host in HOSTS}),
        RoceIncident("healthy-boot", (), kernel=boot),
    ]  # fmt: skip


def write(incident: RoceIncident, folder: Path) -> Path:
    """Write the folder of one incident."""
    folder.mkdir(parents=True)
    kernels = {host: list(_kernel(host, incident)) for host in HOSTS}
    for host in HOSTS:
        own = folder / host
        own.mkdir()
        if not incident.by_pdsh:
            (own / "dmesg").write_text("\n".join(kernels[host]) + "\n")
        (own / "lspci-vvv.txt").write_text("".join(_lspci(host, incident)))
        (own / "ip-br-link.txt").write_text("".join(_links(host, incident)))
        (own / "nvidia-smi.txt").write_text("".join(_smi(incident.gpus.get(host, 8))))
        (own / "ethtool.txt").write_text("".join(_ethtool(host, nic, incident) for nic in range(len(NICS))))
        for nic, name in ((nic, NICS[nic]) for nic in COUNTED):
            errors = {"rx_crc_errors_phy": 0, "rx_symbol_err_phy": 3, **incident.counters.get((host, nic), {})}
            text = "NIC statistics:\n" + "".join(f"     {key}: {value}\n" for key, value in errors.items())
            (own / f"ethtool-S_{name}.txt").write_text(text)
    if incident.by_pdsh:
        (folder / "dmesg.all").write_text("".join(f"{h}: {line}\n" for h in HOSTS for line in kernels[h]))
    if incident.switch:
        (folder / "leaf-2.syslog").write_text("\n".join(incident.switch) + "\n")
    if incident.job:
        (folder / "train.out").write_text(incident.job)
    else:
        rates = [rate / 1000 for rate in incident.speed.values()]
        slowest = min([LINE_GBPS, *rates, *(LANE_GBPS[speed] * lanes for speed, lanes in incident.pcie.values())])
        if incident.name == "healthy-by-design":
            slowest = 252.0
        (folder / "nccl-tests.out").write_text(_table(0.92 * slowest))
    return folder


def _kernel(host: str, incident: RoceIncident) -> Iterator[str]:
    yield "[    0.000000] Linux version 6.8.0-60-generic (buildd@lcy02) #63-Ubuntu SMP PREEMPT_DYNAMIC"
    for nic, bus in enumerate(BUSES):
        yield f"[{11 + nic:5d}.130001] mlx5_core 0000:{bus}:00.0: firmware version: 28.43.2026"
        yield _link(41.0 + nic, nic, "up")
    yield from incident.kernel.get(host, ())


def _lspci(host: str, incident: RoceIncident) -> Iterator[str]:
    for nic, bus in enumerate(BUSES):
        speed, lanes = incident.pcie.get((host, nic), (32, 16))
        state = ", ".join(f"{word}" for word in (f"Speed {speed}GT/s", f"Width x{lanes}"))
        worse = " (downgraded)" if (speed, lanes) != (32, 16) else ""
        yield f"{bus}:00.0 Ethernet controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n"
        yield "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported\n"
        yield f"\t\tLnkSta:\t{state}{worse}\n\t\t\tTrErr- Train- SlotClk+ DLActive- BWMgmt- ABWMgmt-\n"


def _links(host: str, incident: RoceIncident) -> Iterator[str]:
    yield "lo               UNKNOWN        00:00:00:00:00:00 <LOOPBACK,UP,LOWER_UP> \n"
    for nic, name in enumerate(NICS):
        state = "DOWN" if (host, nic) in incident.down else "UP"
        flags = "<NO-CARRIER,BROADCAST,MULTICAST,UP>" if state == "DOWN" else "<BROADCAST,MULTICAST,UP,LOWER_UP>"
        yield f"{name:<16} {state:<14} b8:3f:d2:00:00:{nic:02x} {flags} \n"


def _ethtool(host: str, nic: int, incident: RoceIncident) -> str:
    down = (host, nic) in incident.down
    speed = "Unknown!" if down else f"{incident.speed.get((host, nic), 400_000)}Mb/s"
    detected = "no" if down else "yes"
    return f"Settings for {NICS[nic]}:\n\tSpeed: {speed}\n\tDuplex: Full\n\tLink detected: {detected}\n"


def _smi(count: int) -> Iterator[str]:
    yield "| NVIDIA-SMI 570.124.06             Driver Version: 570.124.06     CUDA Version: 12.8     |\n"
    for gpu in range(count):
        bus = BUSES[gpu].upper()
        yield f"|   {gpu}  NVIDIA H200                    On  |   00000000:{bus}:00.0 Off |                    0 |\n"
        yield "| N/A   31C    P0             76W /  700W |       1MiB / 143771MiB |      0%      Default |\n"


def _table(busbw_GBps: float) -> str:
    text = "# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20\n#\n"
    text += "# Using devices\n"
    for number, host in enumerate(HOSTS):
        for gpu in range(8):
            rank, bus = 8 * number + gpu, BUSES[gpu]
            text += f"#  Rank {rank:3d} Group  0 Pid {900 + gpu} on {host} device  {gpu} [0x{bus}] NVIDIA H200\n"
    half = "  time   algbw   busbw #wrong  "
    text += f"#       size         count      type   redop    root   {half} {half}\n"
    for size, share in ((1 << 30, 0.92), (1 << 33, 1.0)):
        rate = busbw_GBps * share
        algbw = rate / (2 * 95 / 96)
        half = f"{size / algbw / 1e3:9.1f} {algbw:7.2f} {rate:7.2f}      0"
        text += f"{size:12d} {size // 4:13d}     float     sum      -1 {half} {half}\n"
    return f"{text}# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {busbw_GBps:.3f}\n"
