"""Invented /proc and /sys trees."""

from __future__ import annotations

from pathlib import Path

HEAD = "Inter-|   Receive                                                |  Transmit\n face |bytes packets errs\n"


def write(root: Path, path: str, text: object) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def proc_net_dev(root: Path, **devices: tuple[int, int]) -> None:
    """Write /proc/net/dev with (received, sent) bytes of each device."""
    rows = [
        f"{name:>6}: {rx} {rx // 1000} 0 0 0 0 0 0 {tx} {tx // 1000} 0 0 0 0 0 0" for name, (rx, tx) in devices.items()
    ]
    write(root, "proc/net/dev", HEAD + "\n".join(rows))


def interface(root: Path, name: str, speed_mbps: int = 100_000, state: str = "up") -> None:
    write(root, f"sys/class/net/{name}/speed", speed_mbps)
    write(root, f"sys/class/net/{name}/operstate", state)


def infiniband_port(
    root: Path, device: str, *, rate: str = "400 Gb/sec (4X NDR)", state: str = "4: ACTIVE", **counters: object
) -> None:
    place = f"sys/class/infiniband/{device}/ports/1"
    write(root, f"{place}/rate", rate)
    write(root, f"{place}/state", state)
    write(root, f"{place}/phys_state", "5: LinkUp")
    for name, value in counters.items():
        folder = "hw_counters" if name in ("out_of_sequence", "np_cnp_sent", "local_ack_timeout_err") else "counters"
        write(root, f"{place}/{folder}/{name}", value)


def snmp(root: Path, sent: int, again: int, timeouts: int = 0, twice: int = 0) -> None:
    write(root, "proc/net/snmp", f"Ip: Forwarding\nIp: 1\nTcp: OutSegs RetransSegs InErrs\nTcp: {sent} {again} 0")
    write(root, "proc/net/netstat", f"TcpExt: TCPTimeouts TCPDSACKRecvSegs\nTcpExt: {timeouts} {twice}")
