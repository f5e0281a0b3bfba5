"""Folders of made incidents, gathered otherwise than the others: one file for every command, its hosts grouped by equal
output as `dshbak -c` prints them, and one central syslog of all hosts.

Each is written from what was done to the cluster, never from what a rule looks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

CLUSTER = {"hosts": 8, "host": "8 x H100", "host_names": "gpu[01-08]", "network": "rail-optimized 400GbE"}
HOSTS = tuple(f"gpu{number:02d}" for number in range(1, 9))
BUSES = ("18", "2a", "3a", "5d", "9a", "ab", "ba", "db")
_RULE = "-" * 16


@dataclass(frozen=True)
class GatheredIncident:
    """What was done; one of `first` (host and part, or a host alone) must be named first, nothing where it is empty."""

    name: str
    first: tuple[tuple[str, str], ...] = ()
    down: frozenset[tuple[str, int]] = frozenset()
    gbps: Mapping[tuple[str, int], int] = field(default_factory=dict)
    lanes: Mapping[tuple[str, int], int] = field(default_factory=dict)
    gpus: Mapping[str, int] = field(default_factory=dict)
    ecc: Mapping[tuple[str, int], int] = field(default_factory=dict)
    syslog: tuple[str, ...] = ()
    job: str = ""


_WATCHDOG = (
    "[rank{0}]:[E1118 02:14:29.224103812 ProcessGroupNCCL.cpp:684] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 "
    "milliseconds before timing out.\n"
)
_HUNG = "".join(_WATCHDOG.format(rank) for rank in (3, 24, 51))


def gathered_incidents() -> list[GatheredIncident]:
    """Return seven incidents with one fault, one with two and two with none."""
    return [
        GatheredIncident("port-down", (("gpu03", "nic-2"),), down=frozenset({("gpu03", 2)}), job=_HUNG),
        GatheredIncident("port-at-half-rate", (("gpu05", "nic-6"),), gbps={("gpu05", 6): 200}),
        GatheredIncident(
            "gpu-lost",
            (("gpu02", ""),),
            gpus={"gpu02": 7},
            job=_HUNG,
            syslog=(
                "Nov 18 02:04:11 gpu02 kernel: [81234.100000] NVRM: Xid (PCI:0000:5d:00): 79, pid=4242, "
                "name=python3, GPU has fallen off the bus.",
            ),
        ),
        GatheredIncident(
            "gpu-memory",
            (("gpu07", ""),),
            ecc={("gpu07", 4): 14},
            job=_HUNG,
            syslog=(
                "Nov 18 02:04:11 gpu07 kernel: [81234.100000] NVRM: Xid (PCI:0000:9b:00): 48, pid='<unknown>', "
                "name=<unknown>, An uncorrectable double bit error (DBE) has been detected on GPU",
            ),
        ),
        GatheredIncident("narrow-slot", (("gpu06", "nic-3"),), lanes={("gpu06", 3): 8}),
        GatheredIncident("nothing"),
        GatheredIncident(
            "half-rate-and-out-of-memory",
            (("gpu01", "nic-1"), ("gpu08", "")),
            gbps={("gpu01", 1): 200},
            syslog=(
                "Nov 18 02:04:11 gpu08 kernel: [81234.100000] Out of memory: Killed process 4242 (python3) "
                "total-vm:912345678kB, anon-rss:901234567kB, file-rss:0kB, shmem-rss:0kB, UID:1000",
            ),
        ),
        GatheredIncident(
            "nothing-but-logins",
            syslog=tuple(
                f"Nov 18 01:00:{number:02d} {host} sshd[91{number}]: Accepted publickey for ops from 10.0.0.9 port 5021"
                for number, host in enumerate(HOSTS)
            ),
        ),
        GatheredIncident(
            "cpu-stands-still",
            (("gpu04", ""),),
            job=_HUNG,
            syslog=(
                "Nov 18 02:04:11 gpu04 kernel: [81234.100000] watchdog: BUG: soft lockup - CPU#34 stuck for 23s! "
                "[python3:4242]",
            ),
        ),
        GatheredIncident(
            "driver-command-timeout",
            (("gpu08", "nic-5"), ("gpu08", "")),
            job=_HUNG,
            syslog=(
                "Nov 18 02:04:11 gpu08 kernel: [81234.100000] mlx5_core 0000:ab:00.0: wait_func:1195:(pid 4242): "
                "ACCESS_REG(0x805) timeout. Will cause a leak of a command resource",
                "Nov 18 02:04:13 gpu08 kernel: [81236.100000] mlx5_core 0000:ab:00.0: "
                "poll_health:800:(pid 0): device's health compromised - reached miss count",
            ),
        ),
    ]


def write(incident: GatheredIncident, folder: Path) -> Path:
    """Write the folder of one incident."""
    folder.mkdir(parents=True)
    for name, own in (("ibstat.txt", _ibstat), ("lspci.txt", _lspci), ("smi.txt", _smi), ("ecc.csv", _ecc)):
        (folder / name).write_text(_grouped(partial(own, incident=incident)))
    boot = [f"Nov 17 08:00:01 {host} systemd[1]: Started Session 4 of User ops." for host in HOSTS]
    (folder / "messages").write_text("\n".join((*boot, *incident.syslog)) + "\n")
    if incident.job:
        (folder / "train.out").write_text(incident.job)
    return folder


def _grouped(output: Callable[[str], str]) -> str:
    """Return the output of a command on all hosts, each once with the hosts that gave it."""
    groups: dict[str, list[str]] = {}
    for host in HOSTS:
        groups.setdefault(output(host), []).append(host)
    return "".join(f"{_RULE}\n{_folded(hosts)}\n{_RULE}\n{text}" for text, hosts in groups.items())


def _folded(hosts: list[str]) -> str:
    return hosts[0] if len(hosts) == 1 else f"gpu[{','.join(host[3:] for host in hosts)}]"


def _ibstat(host: str, incident: GatheredIncident) -> str:
    text = ""
    for nic in range(len(BUSES)):
        down = (host, nic) in incident.down
        text += f"CA 'mlx5_{nic}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n"
        text += f"\t\tState: {'Down' if down else 'Active'}\n\t\tPhysical state: {'Disabled' if down else 'LinkUp'}\n"
        text += f"\t\tRate: {incident.gbps.get((host, nic), 400)}\n\t\tLink layer: InfiniBand\n"
    return text


def _lspci(host: str, incident: GatheredIncident) -> str:
    text = ""
    for nic, bus in enumerate(BUSES):
        lanes = incident.lanes.get((host, nic), 16)
        text += f"{bus}:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n"
        text += "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported\n"
        text += f"\t\tLnkSta:\tSpeed 32GT/s, Width x{lanes}{' (downgraded)' if lanes < 16 else ''}\n"
    return text


def _smi(host: str, incident: GatheredIncident) -> str:
    count = incident.gpus.get(host, 8)
    return "".join(f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-0000-{gpu})\n" for gpu in range(count))


def _ecc(host: str, incident: GatheredIncident) -> str:
    text = "index, pci.bus_id, ecc.errors.uncorrected.volatile.total\n"
    for gpu in range(incident.gpus.get(host, 8)):
        text += f"{gpu}, 00000000:{BUSES[gpu].upper()}:00.0, {incident.ecc.get((host, gpu), 0)}\n"
    return text
