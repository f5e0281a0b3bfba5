"""Hosts with one or two cables each, every cable shaped both ways: namespaces through pyroute2 alone, no iproute2.

    with RailsRig(4, 2) as rig:
        rig.shape(10e9)
        rig.start(0, ["python", "rank.py"], {"RANK": "0"})
        rig.cut(host=1, rail=0)

Needs root. Nothing outside the rig's own namespaces changes, and they are gone when it is closed.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from pyroute2 import IPRoute, NetNS, netns

MTU = 9000
LEAST_BURST_BYTES, BURST_S, LIMIT_BYTES = 66_000, 5e-4, 8 << 20
"""A cable saves up half a millisecond: a shaper's timer that fires late by some of that loses nothing. With a bucket of
one segment, as tbf's least, every microsecond of lateness is lost, which is a fifth of 25 Gb/s."""
ENTER = "import os, sys; from pyroute2 import netns; netns.setns(sys.argv[1]); os.execvp(sys.argv[2], sys.argv[2:])"
WRITE = """
import json, sys
for name, value in json.loads(sys.argv[1]).items():
    open("/proc/sys/net/" + name, "w").write(value)
"""
SETTINGS = {
    "ipv4/tcp_slow_start_after_idle": "0",
    "ipv4/tcp_no_metrics_save": "1",
    "ipv4/tcp_congestion_control": "reno",
    "ipv4/conf/all/arp_ignore": "1",
    "ipv4/conf/all/arp_announce": "2",
}


_NUMBERS = itertools.count()
"""Rigs of one process, told apart."""


class RailsRig:
    """Host i is a namespace with addresses 10.7.<rail>.<i+1> on eth<rail>; each rail is a bridge of its own."""

    def __init__(self, num_hosts: int, num_rails: int = 1) -> None:
        self.num_hosts, self.num_rails = num_hosts, num_rails
        self._number = next(_NUMBERS)
        self._mark = f"sw{os.getpid()}n{self._number}"
        self._spaces: dict[str, Any] = {}
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> RailsRig:
        try:
            for name in [*map(self.host, range(self.num_hosts)), *map(self._switch, range(self.num_rails))]:
                netns.create(name)
                self._spaces[name] = NetNS(name)
            for rail in range(self.num_rails):
                self._bridge(rail)
                for host in range(self.num_hosts):
                    self._cable(host, rail)
            for process in [self._settle(host) for host in range(self.num_hosts)]:
                process.wait()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def host(self, number: int) -> str:
        """Return the namespace of a host."""
        return f"{self._mark}h{number}"

    def shape(self, rate_bps: float, rail: int | None = None) -> None:
        """Give every cable (of one rail) a rate in both directions; None: no limit."""
        for number in range(self.num_rails) if rail is None else [rail]:
            for host in range(self.num_hosts):
                for name, device in ((self.host(host), f"eth{number}"), (self._switch(number), f"p{host}")):
                    self._limit(name, device, rate_bps)

    def cut(self, host: int, rail: int) -> None:
        """Pull a cable at the switch's end: the host itself sees nothing."""
        self._set_port(host, rail, "down")

    def mend(self, host: int, rail: int) -> None:
        """Put it back."""
        self._set_port(host, rail, "up")

    def start(self, host: int, command: list[str], environment: dict[str, str], python: str) -> subprocess.Popen[str]:
        """Start a process on a host; its input and output are those of the process returned."""
        entered, pipe = [python, "-c", ENTER, self.host(host), *command], subprocess.PIPE
        process = subprocess.Popen(entered, env={**os.environ, **environment}, stdin=pipe, stdout=pipe, text=True)
        self._processes.append(process)
        return process

    def close(self) -> None:
        """End what was started and take the namespaces away."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for name, space in self._spaces.items():
            space.close()
            netns.remove(name)
        self._spaces.clear()

    def _switch(self, rail: int) -> str:
        return f"{self._mark}s{rail}"

    def _bridge(self, rail: int) -> None:
        space = self._spaces[self._switch(rail)]
        space.link("add", ifname="br0", kind="bridge")
        space.link("set", index=space.link_lookup(ifname="br0")[0], mtu=MTU, state="up")

    def _cable(self, host: int, rail: int) -> None:
        own = f"v{os.getpid() % 10000}n{self._number}"
        here, there = f"{own}a{host}{rail}", f"{own}b{host}{rail}"
        with IPRoute() as outside:
            outside.link("add", ifname=here, kind="veth", peer={"ifname": there})
            for name, target in ((here, self.host(host)), (there, self._switch(rail))):
                outside.link("set", index=outside.link_lookup(ifname=name)[0], net_ns_fd=target)
        end, switch = self._spaces[self.host(host)], self._spaces[self._switch(rail)]
        index = end.link_lookup(ifname=here)[0]
        end.link("set", index=index, ifname=f"eth{rail}", mtu=MTU)
        end.addr("add", index=index, address=f"10.7.{rail}.{host + 1}", prefixlen=24)
        end.link("set", index=index, state="up")
        port = switch.link_lookup(ifname=there)[0]
        bridge = switch.link_lookup(ifname="br0")[0]
        switch.link("set", index=port, ifname=f"p{host}", mtu=MTU, master=bridge)
        switch.link("set", index=port, state="up")

    def _settle(self, host: int) -> subprocess.Popen[bytes]:
        space = self._spaces[self.host(host)]
        space.link("set", index=space.link_lookup(ifname="lo")[0], state="up")
        entered = [sys.executable, "-c", ENTER, self.host(host)]
        return subprocess.Popen([*entered, sys.executable, "-c", WRITE, json.dumps(SETTINGS)])  # it says what it cannot

    def _limit(self, name: str, device: str, rate_bps: float) -> None:
        space = self._spaces[name]
        index = space.link_lookup(ifname=device)[0]
        burst = burst_bytes(rate_bps)
        space.tc("replace", "tbf", index, 0x10000, rate=int(rate_bps / 8), burst=burst, limit=LIMIT_BYTES)

    def _set_port(self, host: int, rail: int, state: str) -> None:
        space = self._spaces[self._switch(rail)]
        space.link("set", index=space.link_lookup(ifname=f"p{host}")[0], state=state)


def burst_bytes(rate_bps: float) -> int:
    """Return what a cable of this rate lets through at once after a pause."""
    return max(LEAST_BURST_BYTES, int(BURST_S * rate_bps / 8))


def is_possible() -> str:
    """Return why the rig cannot be made here; "": it can."""
    if os.geteuid() != 0:
        return "namespaces need root"
    return "" if Path("/proc/self/ns/net").exists() else "this kernel has no network namespaces"
