"""A generated fabric, run: FRR in namespaces from the files of `syncline fabric build`, and nothing else.

Every host port asks every other of its rail and is answered, the kernel's routes are counted against the cables, a
link and then a whole spine is taken away, and marked packets are counted by class on every switch. Needs root,
Debian's `frr`, iproute2 and nftables.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from syncline.fabric import load
from syncline.install.installation import Installation, install
from syncline.install.qos import CLASSES

DAEMONS = Path("/usr/lib/frr")
CLUSTER = {
    "name": "two-tier-16",
    "hosts": 16,
    "host": {"gpu": "H100", "gpus": 8, "nics": 2, "nic": "ConnectX-7", "link": "400GbE"},
    "network": {"topology": "leaf-spine", "link": "400GbE", "switch": "SN5600", "hosts_per_leaf": 4, "spines": 4},
}
PATIENCE_S = 90.0
PACKETS = 50
PORT = 4791
ANSWER = """
import selectors, socket, sys
ready = selectors.DefaultSelector()
for address in sys.argv[1:]:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((address, 4791))
    ready.register(s, selectors.EVENT_READ)
while True:
    for key, _ in ready.select():
        data, far = key.fileobj.recvfrom(100)
        if data[:1] == b"?":
            key.fileobj.sendto(b"!" + data[1:], far)
"""
"""A host's end: what begins with a question mark is answered from the address it was sent to."""
ASK = """
import selectors, socket, sys, time
ready, wanted = selectors.DefaultSelector(), set()
for pair in sys.argv[1:]:
    own, far = pair.split(",")
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((own, 0))
    s.sendto(b"?", (far, 4791))
    ready.register(s, selectors.EVENT_READ, pair)
    wanted.add(pair)
end = time.monotonic() + 2
while wanted and time.monotonic() < end:
    for key, _ in ready.select(0.2):
        wanted.discard(key.data)
        ready.unregister(key.fileobj)
print(len(sys.argv) - 1 - len(wanted))
"""
"""One packet from each of our ports to each port of others, all at once; prints how many were answered within 2 s."""


def missing() -> str:
    """Return what this machine lacks, or nothing."""
    if os.geteuid() != 0:
        return "root (namespaces are made)"
    if not (DAEMONS / "bgpd").exists():
        return "FRR (Debian: apt install frr)"
    tools = (f"{tool} (Debian: apt install iproute2 nftables)" for tool in ("ip", "nft") if not shutil.which(tool))
    return next(tools, "")


def run() -> dict[str, Any]:
    """Return what the 16-host fabric did."""
    lacking = missing()
    if lacking:
        return {"skipped": f"needs {lacking}"}
    return prove(CLUSTER)


def prove(cluster: dict[str, Any]) -> dict[str, Any]:
    """Build a cluster's files, run them, break a link and a spine, and return what was seen."""
    built = install(load(cluster), system="frr")
    with tempfile.TemporaryDirectory() as folder, running(built, Path(folder)) as rig:
        figures: dict[str, Any] = {"hosts": built.fabric.num_hosts, "switches": len(built.switches)}
        figures["up_after_s"] = rig.settle()
        figures |= {"designed_width": rig.designed(), "width": rig.widths()}
        figures["pairs"], figures["pairs_reached"] = rig.reach()
        figures["classes"] = rig.classes()
        leaf = built.switches[0]
        link = next(port for port in leaf.ports if port.is_uplink)
        rig.ip(leaf.name, "link", "set", link.name, "down")
        figures["link_down"] = rig.after(f"{leaf.name} {link.name}")
        rig.ip(leaf.name, "link", "set", link.name, "up")
        rig.settle()
        spine = next(view for view in built.switches if view.level == 2)
        rig.stop(spine.name)
        for port in spine.ports:
            rig.ip(spine.name, "link", "set", port.name, "down")
        figures["spine_down"] = rig.after(spine.name, gone={spine.name})
    return figures


class Rig:
    """The namespaces of one fabric; a device's namespace is `PREFIX-device`."""

    def __init__(self, built: Installation, folder: Path) -> None:
        self.built, self.folder = built, folder
        self.prefix = f"sl{os.getpid() % 100000}"
        self.processes: dict[str, list[subprocess.Popen[bytes]]] = {}
        self.made: list[str] = []
        self.addresses: dict[str, list[str]] = {}

    def space(self, device: str) -> str:
        return f"{self.prefix}-{device.replace('/', '-')}"

    def ip(self, device: str, *words: str) -> str:
        return _run("ip", "-n", self.space(device), *words)

    def inside(self, device: str, *words: str) -> str:
        return _run("ip", "netns", "exec", self.space(device), *words)

    def lay(self) -> None:
        """Make namespaces and cables by the cable schedule's own rows."""
        for device in (*self.built.fabric.host_names, *(view.name for view in self.built.switches)):
            _run("ip", "netns", "add", self.space(device))
            self.made.append(self.space(device))
            self.ip(device, "link", "set", "lo", "up")
        for row in self.built.cables:
            ends = []
            for _, _, device, port in row.ends:
                host, _, nic = device.partition("/nic-")
                ends.append(
                    (host, f"rail{device.rpartition('-')[2]}" + (port if port != "p1" else ""))
                    if nic
                    else (device, port)
                )
            (a, name_a), (b, name_b) = ends
            _run("ip", "link", "add", name_a, "netns", self.space(a), "type", "veth", "peer", "name", name_b, "netns",
                 self.space(b))  # fmt: skip
            self.ip(a, "link", "set", name_a, "up")
            self.ip(b, "link", "set", name_b, "up")

    def configure(self) -> None:
        """Apply the written files: netplan to hosts, sysctl, nftables and FRR to switches."""
        for host in self.built.fabric.host_names:
            plan = yaml.safe_load((self.folder / f"hosts/{host}/60-fabric.yaml").read_text())
            for name, told in plan["network"]["ethernets"].items():
                for address in told["addresses"]:
                    self.ip(host, "address", "add", address, "dev", name)
                    self.addresses.setdefault(host, []).append(address.partition("/")[0])
                for route in told["routes"]:
                    extra = ["table", str(route["table"])] if "table" in route else ["metric", str(route["metric"])]
                    self.ip(host, "route", "add", str(route["to"]), "via", route["via"], "dev", name, *extra)
                for rule in told["routing-policy"]:
                    self.ip(host, "rule", "add", "from", rule["from"], "table", str(rule["table"]))
        for host, own in self.addresses.items():
            words = ["ip", "netns", "exec", self.space(host), sys.executable, "-S", "-c", ANSWER, *own]
            self.processes[host] = [subprocess.Popen(words)]
        for view in self.built.switches:
            folder = self.folder / "switches" / view.name
            self.inside(view.name, "sysctl", "-q", "-e", "-p", str(folder / "sysctl.conf"))
            self.inside(view.name, "nft", "-f", str(folder / "classes.nft"))
            self.start(view.name)

    def start(self, switch: str) -> None:
        folder = self.folder / "switches" / switch
        state = folder / "run"
        state.mkdir(exist_ok=True)
        self.folder.chmod(0o755)  # FRR's daemons give root up
        shutil.chown(state, "frr", "frr")
        self.processes[switch] = []
        for daemon in ("zebra", "bgpd"):
            words = ["ip", "netns", "exec", self.space(switch), str(DAEMONS / daemon), "-f", str(folder / "frr.conf"),
                     "-i", str(state / f"{daemon}.pid"), "-z", str(state / "zserv.api"), "--vty_socket", str(state),
                     "-P", "0", "--log", f"file:{state}/{daemon}.log"]  # fmt: skip
            if daemon == "bgpd":
                words += ["-l", "::"]
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.processes[switch].append(process)
            time.sleep(0.1)

    def stop(self, switch: str) -> None:
        for process in self.processes.pop(switch, ()):
            process.kill()
            process.wait()

    def designed(self) -> dict[str, int]:
        return {view.name: view.ecmp_width for view in self.built.switches}

    def widths(self, gone: set[str] = frozenset()) -> dict[str, int]:  # type: ignore[assignment]
        """Return the most next hops that any route to a leaf's prefix has, by switch, from the kernel's table."""
        found = {}
        prefixes = {str(view.address.prefix) for view in self.built.switches if view.address.prefix}
        for view in self.built.switches:
            if view.name in gone:
                continue
            routes = json.loads(self.ip(view.name, "-j", "route", "show", "proto", "bgp") or "[]")
            mine = [route for route in routes if route["dst"] in prefixes - {str(view.address.prefix)}]
            counted = [len(route.get("nexthops", [1])) for route in mine]
            found[view.name] = min(counted) if len(counted) == len(prefixes - {str(view.address.prefix)}) else 0
        return found

    def settle(self) -> float:
        """Wait until every switch has as many equal paths as it has cables; returns the time it took."""
        began = time.monotonic()
        while self.widths() != self.designed():
            if time.monotonic() - began > PATIENCE_S:
                raise TimeoutError(f"after {PATIENCE_S:g} s: {self.widths()} instead of {self.designed()}")
            time.sleep(0.5)
        return round(time.monotonic() - began, 1)

    def reach(self) -> tuple[int, int]:
        """Return how many ordered pairs of ports of one rail there are, and how many of them got an answer."""
        pairs = reached = 0
        for host, own in self.addresses.items():
            others = [f"{own[rail]},{far}" for name, addresses in self.addresses.items() if name != host
                      for rail, far in enumerate(addresses)]  # fmt: skip
            pairs += len(others)
            reached += int(self.inside(host, sys.executable, "-S", "-c", ASK, *others))
        return pairs, reached

    def after(self, what: str, gone: set[str] = frozenset()) -> dict[str, Any]:  # type: ignore[assignment]
        """Return what is left when something is taken away, and how long it took until every pair was joined again."""
        began = time.monotonic()
        pairs, reached = self.reach()
        first = reached
        while reached < pairs and time.monotonic() - began < PATIENCE_S:
            time.sleep(0.5)
            pairs, reached = self.reach()
        return {
            "what": what, "pairs": pairs, "pairs_reached_at_once": first, "pairs_reached": reached,
            "all_joined_after_s": round(time.monotonic() - began, 1), "width": self.widths(gone),
        }  # fmt: skip

    def classes(self) -> dict[str, Any]:
        """Send marked packets between leaves and return how many of each class leaves and spines counted."""
        leaves = [view for view in self.built.switches if view.level == 1]
        first, last = leaves[0].host_ports[0].host, leaves[-1].host_ports[0].host
        assert first is not None and last is not None
        before = self.counted()
        for one in CLASSES:
            send = (
                "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
                f"s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, {one.dscp[0] << 2}); s.bind(('{first.address}', 0)); "
                f"[s.sendto(bytes(64), ('{last.address}', {PORT})) for _ in range({PACKETS})]"
            )
            self.inside(first.host, sys.executable, "-c", send)
        time.sleep(0.3)
        after = self.counted()
        spines = [view.name for view in self.built.switches if view.level == 2]
        answer = {}
        for one in CLASSES:
            moved = {name: after[name][one.name] - before[name][one.name] for name in after}
            answer[one.name] = {
                "dscp": one.dscp[0], "sent": PACKETS, "first_leaf": moved[first.leaf],
                "spines": sum(moved[name] for name in spines), "last_leaf": moved[last.leaf],
            }  # fmt: skip
        return answer

    def counted(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for view in self.built.switches:
            told = json.loads(self.inside(view.name, "nft", "-j", "list", "counters"))
            found[view.name] = {
                row["counter"]["name"]: row["counter"]["packets"] for row in told["nftables"] if "counter" in row
            }
        return found


@contextmanager
def running(built: Installation, folder: Path) -> Iterator[Rig]:
    """Write the files, lay the cables, start everything; and take all of it away in the end."""
    built.write(folder)
    rig = Rig(built, folder)
    try:
        rig.lay()
        rig.configure()
        yield rig
    finally:
        for switch in list(rig.processes):
            rig.stop(switch)
        for space in rig.made:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)


def _run(*words: str) -> str:
    return _checked(words)


def _checked(words: Sequence[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
