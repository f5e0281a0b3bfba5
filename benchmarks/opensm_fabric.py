"""A generated InfiniBand fabric, run: opensm with the files of `syncline fabric build`, on a fabric that ibsim plays.

ibsim answers for every switch and adapter of the cable schedule. `guids.sh` finds the roots by name, opensm takes
`opensm.conf` and `partitions.conf` as they were written (their place alone is told), and what it did is asked back
from the simulated ports: forwarding tables walked for every pair of adapters, keys, service levels, lanes, and the
cables that ibnetdiscover sees. Then once more without one cable, and without one switch of the top tier. Needs
Debian's `opensm`, `ibsim-utils` and `infiniband-diags`; nothing leaves the machine, and root is not needed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from syncline.fabric import load
from syncline.fabric.formats.infiniband import ibnetdiscover
from syncline.install.installation import Installation, install
from syncline.install.wiring import InstalledCable

CLUSTER = {
    "name": "two-tier-16",
    "hosts": 16,
    "host": {"gpu": "H100", "gpus": 8, "nics": 8, "nic": "ConnectX-7", "link": "NDR"},
    "network": {"topology": "leaf-spine", "link": "NDR", "switch": "QM9700", "hosts_per_leaf": 4, "spines": 2},
}
OLDER = CLUSTER | {
    "name": "fixed-paths",
    "host": {"gpu": "V100", "gpus": 4, "nics": 1, "nic": "ConnectX-5", "link": "EDR"},
    "network": {"topology": "leaf-spine", "link": "EDR", "switch": "Plain-36", "hosts_per_leaf": 4, "spines": 2},
    "parts": {"switch": [{
        "name": "Plain-36", "vendor": "any", "modes": [{"link": "EDR", "num_ports": 36}], "latency_s": "90ns",
        "power_w": 136, "power_kind": "typical", "adaptive_routing": False,
        "source": "a switch without adaptive routing, for the other engine",
    }]},
}  # fmt: skip
PRELOAD = sorted(Path("/usr/lib").glob("**/umad2sim/libumad2sim.so"))
TOOLS = {"opensm": "opensm", "ibsim": "ibsim-utils", "ibnetdiscover": "infiniband-diags", "awk": "mawk"}
PATIENCE_S = 120.0
PORTS = 64
_LFT = re.compile(r"Unicast lids .* guid 0x([0-9a-f]{16})")
_ROW = re.compile(r"0x([0-9a-f]{4}) (\d+) # (?:Channel Adapter|Switch) portguid 0x([0-9a-f]{16})")


def missing() -> str:
    """Return what this machine lacks, or nothing."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    lacking = [package for tool, package in TOOLS.items() if not shutil.which(tool, path=path)]
    if not lacking and not PRELOAD:
        lacking = ["ibsim-utils"]
    return f"{lacking[0]} (Debian: apt install opensm ibsim-utils infiniband-diags)" if lacking else ""


def run() -> dict[str, Any]:
    """Return what opensm made of the 16-host fabrics, whole and with something gone."""
    lacking = missing()
    if lacking:
        return {"skipped": f"needs {lacking}"}
    return {"adaptive": prove(CLUSTER), "fixed": prove(OLDER)}


def prove(cluster: dict[str, Any]) -> dict[str, Any]:
    """Build a cluster's files and run opensm on it whole, without one cable, and without one top switch."""
    built = install(load(cluster))
    wires = built.wiring.wires
    up = next(wire for wire in wires if "/nic-" not in wire.a.device)
    root = up.b.device
    return {
        "whole": swept(built, wires),
        "cable_gone": swept(built, tuple(wire for wire in wires if wire is not up))
        | {"what": f"{up.a.device} {up.a.number} to {root} {up.b.number}"},
        "root_gone": swept(built, tuple(w for w in wires if root not in (w.a.device, w.b.device)), {root})
        | {"what": root},
    }


def swept(built: Installation, wires: tuple[InstalledCable, ...], gone: set[str] = frozenset()) -> dict[str, Any]:  # type: ignore[assignment]
    """Run opensm once on these cables and return what it said and did."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        built.write(folder / "files")
        files, net = folder / "files" / "opensm", Net(wires)
        (folder / "net").write_text(net.text())
        with simulated(folder, net) as tool:
            named = tool("sh", str(files / "guids.sh"), check=False)
            said = tool(
                "opensm", "-F", str(files / "opensm.conf"), "-P", str(files / "partitions.conf"),
                "-a", str(files / "root_guids.conf"), "-o", "-f", str(folder / "osm.log"), "-D", "0x43",
            ).stdout  # fmt: skip
            log = (folder / "osm.log").read_text()
            figures: dict[str, Any] = {
                "adapters": len(net.adapters), "switches": len(net.switches), "cables": len(wires),
                "guids_found": len((files / "node-name-map").read_text().splitlines()),
                "guids_missing": named.stderr.strip().splitlines(),
                "settings_taken": sorted(set(re.findall(r"Loading Cached Option:(\w+) =", said))),
                "engine": re.findall(r"osm_ucast_mgr_process: (\w+) tables configured on all", log),
                "engines_unknown": re.findall(r"cannot find or setup routing engine '(\w+)'", log),
                "subnet_up": "SUBNET UP" in log,
                "errors": re.findall(r"ERR \w+: .*", log),
            }  # fmt: skip
            out, lids = tables(net, (folder / "opensm-lfts.dump").read_text())
            figures |= paths(net, out, lids) | traced(net, tool, lids) | asked(tool, lids[net.adapters[-1]][0])
            figures["cables_read_back"] = read_back(net, tool("ibnetdiscover").stdout)
    return figures


class Net:
    """The cables as ibsim reads them: nodes with GUIDs, described as switches and adapters describe themselves."""

    def __init__(self, wires: tuple[InstalledCable, ...]) -> None:
        self.ends: dict[str, dict[int, tuple[str, int]]] = {}
        for wire in wires:
            for own, far in ((wire.a, wire.b), (wire.b, wire.a)):
                self.ends.setdefault(own.device, {})[own.number] = (far.device, far.number)
        self.adapters = [name for name in self.ends if "/nic-" in name]
        self.switches = [name for name in self.ends if "/nic-" not in name]
        self.guid = {name: f"{0x0002C90300000000 + 16 * at:016x}" for at, name in enumerate(self.ends)}
        self.device = {guid: name for name, guid in self.guid.items()}

    def node(self, name: str) -> str:
        return f'"{"H" if "/nic-" in name else "S"}-{self.guid[name]}"'

    def text(self) -> str:
        blocks = []
        for name in (*self.adapters, *self.switches):
            host, card, number = name.partition("/nic-")
            kind, ports = ("Ca", max(self.ends[name])) if card else ("Switch", PORTS)
            described = f"{host} HCA-{number}" if card else f"MF0;{name.replace('/', '-')}:MQM9700/U1"
            rows = [f"[{own}]\t{self.node(far)}[{port}]" for own, (far, port) in self.ends[name].items()]
            head = [f"{kind.lower()}guid=0x{self.guid[name]}", f'{kind}\t{ports} {self.node(name)}\t\t# "{described}"']
            blocks.append("\n".join([*head, *rows]))
        return "\n\n".join(blocks) + "\n"


@contextmanager
def simulated(folder: Path, net: Net) -> Iterator[Any]:
    """Start ibsim, return what runs a tool on its fabric, and end it."""
    env = os.environ | {
        "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin", "IBSIM_SOCKNAME": f"sl-{os.getpid()}-{folder.name}",
        "SIM_HOST": net.node(net.adapters[0]).strip('"'), "OSM_TMP_DIR": str(folder), "OSM_CACHE_DIR": str(folder),
    }  # fmt: skip
    preloaded = env | {"LD_PRELOAD": str(PRELOAD[0])}

    def tool(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, env=preloaded, capture_output=True, text=True, check=check, timeout=PATIENCE_S)

    with (folder / "ibsim.log").open("w") as log:
        words = ["ibsim", "-s", str(folder / "net")]
        simulator = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=log, stderr=log)
        try:
            _answering(tool)
            yield tool
        finally:
            assert simulator.stdin is not None
            simulator.stdin.close()
            simulator.kill()
            simulator.wait()


def _answering(tool: Any) -> None:
    """Wait until the simulated fabric answers for its first port."""
    end = time.monotonic() + PATIENCE_S
    while tool("smpquery", "-D", "nodeinfo", "0", check=False).returncode:
        if time.monotonic() > end:
            raise TimeoutError(f"ibsim did not answer within {PATIENCE_S:g} s")
        time.sleep(0.1)


def tables(net: Net, dump: str) -> tuple[dict[str, dict[int, int]], dict[str, list[int]]]:
    """Return the port of every LID by switch, and the LIDs of every device, from opensm's dump."""
    out: dict[str, dict[int, int]] = {}
    lids: dict[str, list[int]] = {}
    table: dict[int, int] = {}
    for line in dump.splitlines():
        if (head := _LFT.match(line)) is not None:
            table = out.setdefault(net.device[head.group(1)], {})
        elif (row := _ROW.match(line)) is not None:
            lid, port, guid = int(row.group(1), 16), int(row.group(2)), int(row.group(3), 16)
            table[lid] = port
            device = net.device[f"{guid - guid % 16:016x}"]
            if lid not in lids.setdefault(device, []):
                lids[device].append(lid)
    return out, lids


def paths(net: Net, out: dict[str, dict[int, int]], lids: dict[str, list[int]]) -> dict[str, Any]:
    """Walk the tables from every adapter to every LID of every other, and count the LIDs that leaves send up a port."""
    hops: Counter[int] = Counter()
    pairs = reached = 0
    for src, dst in product(net.adapters, net.adapters):
        if src == dst:
            continue
        for lid in lids[dst]:
            pairs += 1
            crossed = walk(net, out, src, dst, lid)
            reached += crossed > 0
            hops[crossed] += crossed > 0
    loads = []
    for leaf in {net.ends[name][port][0] for name in net.adapters for port in net.ends[name]}:
        ports = [port for port, (far, _) in net.ends[leaf].items() if far in net.switches]
        wanted = {lid for name in net.adapters for lid in lids[name]}
        used = Counter(port for lid, port in out[leaf].items() if lid in wanted)
        loads += [used[port] for port in ports]
    return {
        "lids": sum(len(one) for one in lids.values()), "paths": pairs, "paths_reached": reached,
        "paths_by_switches_crossed": {str(key): hops[key] for key in sorted(hops)},
        "lids_an_uplink": [min(loads), max(loads)],
    }  # fmt: skip


def walk(net: Net, out: dict[str, dict[int, int]], src: str, dst: str, lid: int) -> int:
    """Return how many switches a packet for a LID crosses by the tables, or 0 where it is lost or turns in circles."""
    at, crossed = net.ends[src][min(net.ends[src])][0], 0
    while at != dst:
        port = out.get(at, {}).get(lid)
        crossed += 1
        if at not in net.switches or port not in net.ends[at] or crossed > len(net.switches):
            return 0
        at = net.ends[at][port][0]
    return crossed


def traced(net: Net, tool: Any, lids: dict[str, list[int]]) -> dict[str, Any]:
    """Ask ibtracert, which asks every switch on the way, for the paths from the first adapter to one of each host."""
    own, *others = [name for name in net.adapters if name.endswith("/nic-0")]
    arrived = 0
    for far in others:
        told = tool("ibtracert", str(lids[own][0]), str(lids[far][0]), check=False).stdout
        arrived += f"To ca {{0x{net.guid[far]}}}" in told
    return {"ibtracert_asked": len(others), "ibtracert_arrived": arrived}


def asked(tool: Any, lid: int) -> dict[str, Any]:
    """Return the keys, lanes and weights of an adapter's port as the port itself has them."""
    keys = re.findall(r"0x([0-9a-f]{4})", tool("smpquery", "pkeys", str(lid)).stdout)
    lanes = tool("smpquery", "sl2vl", str(lid)).stdout.strip().splitlines()[-1]
    weights = tool("smpquery", "vlarb", str(lid)).stdout
    return {
        "keys": sorted({f"0x{key}" for key in keys if key != "0000"}),
        "lanes_by_service_level": [int(lane) for lane in re.findall(r"\d+", lanes.partition("|")[2])],
        "weights": [" ".join(line.split()) for line in weights.splitlines() if "|" in line],
    }


def read_back(net: Net, printed: str) -> int:
    """Return how many of the laid cables syncline's reader of ibnetdiscover finds between the same two ports."""
    cabling = ibnetdiscover(printed, "ibnetdiscover")
    found = {frozenset(((c.a.device, c.a.port), (c.b.device, c.b.port))) for c in cabling.cables}

    def plug(name: str, port: int) -> tuple[str, str]:
        host, card, number = name.partition("/nic-")
        return (host, f"HCA-{number}/{port}") if card else (name.replace("/", "-"), str(port))

    laid = {frozenset((plug(a, p), plug(*end))) for a, ends in net.ends.items() for p, end in ends.items()}
    return len(laid & found)
