"""Four hosts on one bridge, each port shaped both ways with tbf: made of namespaces, gone with the process.

Everything happens inside a user, mount and network namespace of its own, so nothing of the machine changes. `launch`
starts the rig; inside, `build` makes the fabric and `shape` changes the rate of a running one.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

SWITCH = "switch"
MTU = 9000
BURST_BYTES = 66_000
LIMIT_BYTES = 8 << 20
SYSCTLS = {
    "net.ipv4.tcp_congestion_control": "reno",
    "net.ipv4.tcp_slow_start_after_idle": "0",
    "net.ipv4.tcp_no_metrics_save": "1",
}


def launch(script: Path, *arguments: str, timeout_s: float) -> str:
    """Run a Python script as the lord of a fresh set of namespaces and return what it printed."""
    inside = 'mount -t tmpfs tmpfs /run && mkdir -p /run/netns && exec "$@"'
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]  # CUDA finds no GPU in a namespace of users
    command = ["unshare", *own, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command += ["sh", "-c", inside, "sh", sys.executable, str(script), *arguments]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=timeout_s, check=False, preexec_fn=_die_with_parent
    )
    if done.returncode:
        raise RuntimeError(f"the rig ended with status {done.returncode}")
    return done.stdout


def build(num_hosts: int) -> None:
    """Make the switch, the hosts and their cables; host i is namespace `h<i>` with address 10.7.0.<i+1>."""
    _ip("netns", "add", SWITCH)
    _ip("-n", SWITCH, "link", "add", "br0", "mtu", str(MTU), "type", "bridge")
    _ip("-n", SWITCH, "link", "set", "br0", "up")
    for host in range(num_hosts):
        name = f"h{host}"
        _ip("netns", "add", name)
        _ip("link", "add", "eth0", "mtu", str(MTU), "netns", name, "type", "veth", "peer", f"p{host}", "netns", SWITCH)
        _ip("-n", SWITCH, "link", "set", f"p{host}", "mtu", str(MTU), "master", "br0", "up")
        _ip("-n", name, "addr", "add", f"10.7.0.{host + 1}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        for key, value in SYSCTLS.items():
            _in(name, "sh", "-c", f"echo {value} > /proc/sys/{key.replace('.', '/')}")


def shape(host: int, rate_bps: float | None) -> None:
    """Give one host's cable a rate in both directions; None takes the limit away."""
    for namespace, device in ((f"h{host}", "eth0"), (SWITCH, f"p{host}")):
        if rate_bps is None:
            done = ["tc", "qdisc", "replace", "dev", device, "root", "pfifo", "limit", "1000"]
        else:
            limits = ["burst", str(BURST_BYTES), "limit", str(LIMIT_BYTES)]
            done = ["tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{rate_bps:.0f}bit", *limits]
        _in(namespace, *done)


def start(host: int, command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    """Start a process on a host; its output is this process's unless the command says otherwise."""
    entered = ["nsenter", f"--net=/run/netns/h{host}", *command]
    return subprocess.Popen(entered, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True)


def counters() -> tuple[int, int]:
    """Return the bytes this host's interface has sent and received."""
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines():
        name, _, fields = line.partition(":")
        if name.strip() == "eth0":
            columns = fields.split()
            return int(columns[8]), int(columns[0])
    raise RuntimeError("this process is on no host of the rig")


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _in(namespace: str, *command: str) -> None:
    subprocess.run(["nsenter", f"--net=/run/netns/{namespace}", *command], check=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
