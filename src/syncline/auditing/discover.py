"""Discovery: a cluster description from what is there, with every guess written into its notes.

seen = [look(host) for host in hosts]                # live, or captured trees
spec = describe(seen, slurm=Path("topology.conf"))   # joined as Slurm says
save(spec, "cluster.yaml")                           # `syncline fabric show cluster.yaml`
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from syncline.auditing.expect import gpu_part, link_at, nic_part
from syncline.describe.document import read_text
from syncline.describe.model import Handle
from syncline.describe.plain import JsonObject
from syncline.errors import CatalogError, DescriptionError, UsageError
from syncline.fabric.catalog import LinkType, Nic, load_catalog
from syncline.fabric.formats import detect, import_fabric
from syncline.fabric.formats.slurm import parse_slurm_conf, parse_slurm_yaml
from syncline.fabric.formats.tree import TreeSwitch, tree_cluster
from syncline.fabric.spec import ClusterSpec, network_from_text
from syncline.host.host import Host
from syncline.host.lldp import LLDPCTL, parse_lldp
from syncline.host.rdma import RdmaPort

NVIDIA_TOPO = ("nvidia-smi", "topo", "-m")
RDMA_LINK = ("rdma", "-j", "link")
# The first number of a card's firmware tells its family, also where a virtual function hides its PCI id (NVIDIA's
# firmware release notes).
_BY_FIRMWARE = {
    "12": "ConnectX-4", "16": "ConnectX-5", "20": "ConnectX-6", "22": "ConnectX-6 Dx", "28": "ConnectX-7",
    "32": "BlueField-3", "40": "ConnectX-8",
}  # fmt: skip
MAX_HOSTS = 100_000


@dataclass(frozen=True)
class FabricPort:
    """One RDMA port of the fabric as `ibstat` and `rdma link` show it."""

    nic: int
    port: str
    part: str
    link_layer: str
    rate_Bps: Handle[float]
    rate: str
    state: str
    physical_state: str
    netdev: str
    is_slow: Handle[bool]

    @property
    def is_active(self) -> bool:
        return self.state.startswith("4")


@dataclass(frozen=True)
class HostSketch:
    """One host as a description: the `host` mapping, its cables to switches, and what had to be guessed."""

    name: str
    host: JsonObject
    link: str | None
    leaves: tuple[str, ...]
    """The switch at the other end of each NIC, by LLDP; "" where unknown."""
    guesses: tuple[str, ...]
    ports: tuple[FabricPort, ...] = ()

    @property
    def faults(self) -> list[dict[str, str]]:
        """Return the NICs none of whose ports is up, and those that run below the link's rate."""
        found = []
        for nic in sorted({port.nic for port in self.ports}):
            mine = [port for port in self.ports if port.nic == nic]
            if not any(port.is_active for port in mine):
                found.append({"device": f"{self.name}/nic-{nic}"})
            elif all(port.is_slow for port in mine if port.is_active):
                fastest = max(port.rate_Bps for port in mine if port.is_active)
                found.append({"device": f"{self.name}/nic-{nic}", "rate": f"{fastest * 8 / 1e9:g}Gbps"})
        return found


def describe(
    seen: Sequence[HostSketch],
    *,
    slurm: Path | None = None,
    nccl: Path | None = None,
    names: Sequence[str] = (),
    gpu: str | None = None,
    network: str | None = None,
) -> ClusterSpec:
    """Return the cluster that these hosts (and a Slurm topology, or an NCCL one) describe."""
    seen = list(seen)
    twice = [name for name, count in Counter(one.name for one in seen).items() if count > 1]
    if twice:
        raise UsageError(f'two trees are from host "{twice[0]}".', hint="Give one tree for each host.")
    if nccl is not None:
        return _from_nccl(nccl, seen, gpu, names, network)
    if slurm is not None:
        return _from_slurm(slurm, seen)
    return _cluster(seen, list(names), network)


def discover_quietly(host: Host) -> None:
    """Read what discovery reads, so that a capture holds it."""
    host.root.command("lldpctl", LLDPCTL, quiet=True)
    if host.ports:
        host.root.command("rdma-link", RDMA_LINK, quiet=True)
    if host.gpus:
        host.root.command("nvidia-smi-topo", NVIDIA_TOPO, quiet=True)


def look(host: Host, gpu: str | None = None) -> HostSketch:
    """Describe one host."""
    guesses: list[str] = []
    part = _gpu(host, gpu)
    row: JsonObject = {"gpu": part, "gpus": max(1, len(host.gpus))}
    row["scale_up"] = _scale_up(host)
    row["sockets"] = min(8, host.num_numa)
    nic, link, count, per_nic = _network(host, guesses)
    if nic is None or link is None:
        return HostSketch(host.name, row | {"nics": 0}, None, (), tuple(guesses))
    row |= {"nic": nic.name, "nics": count, "ports_per_nic": per_nic, "link": link.name}
    kinds = [host.nearest_gpu_path(port.pci) for port in host.fabric_ports]
    best = next((kind for kind in ("SYS", "NODE", "PHB", "PXB", "PIX") if kind in kinds), "PHB")
    row["nic_path"] = {"NODE": "PHB"}.get(best, best)
    if host.fabric_ports and best in ("PIX", "PXB"):
        row |= _per_switch(host)
    neighbours = parse_lldp(host.root.command("lldpctl", LLDPCTL, quiet=True))
    leaves = tuple(neighbours.get(name, ("", ""))[0] for name in _interfaces(host))
    return HostSketch(host.name, row, link.name, leaves, tuple(guesses), _ports(host, nic, link))


def _gpu(host: Host, name: str | None) -> str:
    catalog = load_catalog()
    if name:
        return catalog.gpu(name).name
    for gpu in host.gpus:
        part = gpu_part(gpu.pci.id)
        if part is not None:
            return part.name
        words = re.sub(r"NVIDIA|Tesla|AMD|Instinct", "", gpu.value("Product Name")).split()
        for name in (" ".join(words[:2]), *words[:1]):
            try:
                return catalog.gpu(name).name
            except CatalogError:
                continue
    what = f"{len(host.gpus)} GPUs of PCI id {host.gpus[0].pci.id}, which is unknown" if host.gpus else "no GPU"
    raise DescriptionError(
        f"the host has {what}; a cluster description needs the part.",
        where=host.name,
        hint="Name it: --gpu H100 (list them with `syncline fabric parts gpu`).",
    )


def _scale_up(host: Host) -> str:
    if any(d.is_nvswitch for d in host.pci) or any(g.value("Fabric/State") == "Completed" for g in host.gpus):
        return "nvswitch"
    cells = re.findall(r"\bNV(\d+)\b", host.root.command("nvidia-smi-topo", NVIDIA_TOPO, quiet=True) or "")
    if cells:
        return "mesh"
    parts = [gpu_part(gpu.pci.id) for gpu in host.gpus]
    several = len(parts) > 1 and all(part is not None and part.num_scale_up_links for part in parts)
    return "nvswitch" if several else "pcie"


def _network(host: Host, guesses: list[str]) -> tuple[Nic | None, LinkType | None, int, int]:
    """Return card, link, number of cards and ports of each card."""
    if host.fabric_ports:
        rated = [port for port in host.fabric_ports if port.rate_Bps]
        active = [port for port in rated if port.is_active] or rated  # a port that is down tells its slowest rate
        rate = Counter(port.rate_Bps for port in active).most_common(1)[0][0] if active else 0.0
        cards = Counter(port.pci.rpartition(".")[0] for port in host.fabric_ports)
        first = host.fabric_ports[0]
        pci = host.pci.devices.get(first.pci)
        link = link_at(rate, not first.is_roce) if rate else None
        nic = (nic_part(pci.id) if pci else None) or _by_firmware(first)
        return *_known(nic, link, rate, first.is_roce, guesses), len(cards), max(cards.values())
    cards_up = [i for i in host.socket_interfaces if i.is_physical]
    if not cards_up:
        return None, None, 0, 1
    rate = max(i.speed_Mbps for i in cards_up) * 1e6 / 8
    pci = host.pci.devices.get(cards_up[0].pci)
    link = link_at(rate, False) if rate else None
    return *_known(nic_part(pci.id) if pci else None, link, rate, True, guesses), len(cards_up), 1


def _known(
    nic: Nic | None, link: LinkType | None, rate_Bps: float, ethernet: bool, guesses: list[str]
) -> tuple[Nic, LinkType]:
    """Fill in what the catalogue or the driver does not say, and write that down."""
    catalog = load_catalog()
    if link is None:
        link = catalog.link("10GbE" if ethernet else "NDR")
        guesses.append(
            f"the port tells no rate the catalogue knows ({rate_Bps * 8 / 1e9:g} Gb/s): taken as {link.name}"
        )
    if nic is None or link.name not in nic.links:
        fits = [p for p in catalog.parts("nic") if isinstance(p, Nic) and link.name in p.links]
        chosen = min(fits, key=lambda part: part.max_Bps)
        guesses.append(f"the card is {nic.name if nic else 'unknown to the catalogue'}: taken as {chosen.name}")
        nic = chosen
    return nic, link


def _by_firmware(port: RdmaPort) -> Nic | None:
    """Return the card that runs such firmware, for virtual functions whose PCI id tells no card."""
    name = _BY_FIRMWARE.get(port.firmware.partition(".")[0]) if port.driver.startswith("mlx5") else None
    return load_catalog().nic(name) if name else None


def _ports(host: Host, nic: Nic, link: LinkType) -> tuple[FabricPort, ...]:
    """Return the fabric's RDMA ports with what is known of each, NICs counted by PCI function 0."""
    cards = list(dict.fromkeys(port.pci.rpartition(".")[0] for port in host.fabric_ports))
    netdevs = _rdma_link(host)
    return tuple(
        FabricPort(
            cards.index(port.pci.rpartition(".")[0]), port.name, nic.name, port.layer, port.rate_Bps, port.rate_text,
            port.state, port.physical, next(iter(port.interfaces), netdevs.get(port.name, "")),
            0 < port.rate_Bps < 0.99 * link.rate_Bps,
        )
        for port in host.fabric_ports
    )  # fmt: skip


def _rdma_link(host: Host) -> dict[str, str]:
    """Return the interface of each port by `rdma -j link`."""
    text = host.root.command("rdma-link", RDMA_LINK, quiet=True) if host.ports else None
    try:
        rows = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return {}
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return {f"{row.get('ifname')}:{row.get('port')}": str(row["netdev"]) for row in rows if "netdev" in row}


def _per_switch(host: Host) -> dict[str, int]:
    """Return how many GPUs and cards share a PCIe switch: those below one port of a root complex."""
    tops: dict[str, Counter[str]] = defaultdict(Counter)
    for gpu in host.gpus:
        tops["/".join(gpu.pci.chain[:2])]["gpu"] += 1
    for address in {port.pci for port in host.fabric_ports}:
        device = host.pci.devices.get(address)
        if device:
            tops["/".join(device.chain[:2])]["nic"] += 1
    return {
        "gpus_per_pcie_switch": max(count["gpu"] for count in tops.values()),
        "nics_per_pcie_switch": max(count["nic"] for count in tops.values()),
    }


def _interfaces(host: Host) -> list[str]:
    if host.fabric_ports:
        netdevs = _rdma_link(host)
        return [next(iter(port.interfaces), netdevs.get(port.name, "")) for port in host.fabric_ports]
    return [interface.name for interface in host.socket_interfaces if interface.is_physical]


def _cluster(seen: list[HostSketch], names: list[str], network: str | None) -> ClusterSpec:
    """Return hosts in groups of equals, on the network that was named, that LLDP shows, or that is usual."""
    if names and len(seen) > 1:
        raise UsageError(
            "--names repeats one host; several trees name themselves.", hint="Give one tree, or no --names."
        )
    groups: dict[str, list[HostSketch]] = defaultdict(list)
    for one in seen:
        groups[json.dumps(one.host, sort_keys=True)].append(one)
    hosts: list[JsonObject] = [
        {"names": names or [one.name for one in group], "host": group[0].host} for group in groups.values()
    ]
    notes = sorted({f"{one.name}: {guess}" for one in seen for guess in one.guesses})
    notes += [f"{one.name}: {text}" for one in seen for text in _troubles(one)]
    data: JsonObject = {"name": "discovered", "hosts": hosts, "source": "syncline discover"}
    links = {one.link for one in seen} - {None}
    count = len(names) or len(seen)
    if network is not None:
        data["network"] = network_from_text(network)
    elif links and all(any(one.leaves) for one in seen):
        data["network"] = _cabled(seen, notes)
    elif links and count > 1:
        data["network"] = {"topology": "fat-tree", "link": min(str(link) for link in links)}
        notes.append("nothing tells how the switches are cabled: a fat tree without oversubscription is assumed")
    if not names and (faults := [fault for one in seen for fault in one.faults]):
        data["faults"] = faults
    return ClusterSpec.model_validate(data | {"notes": "; ".join(notes)})


def _troubles(one: HostSketch) -> list[str]:
    """Return what is wrong with ports, in the words of sysfs."""
    return [
        f"nic-{port.nic} ({port.port}) is {port.state or 'in no state'}, {port.physical_state or 'no physical state'}"
        if not port.is_active
        else f"nic-{port.nic} ({port.port}) runs at {port.rate}"
        for port in one.ports
        if not port.is_active or port.is_slow
    ]


def _cabled(seen: list[HostSketch], notes: list[str]) -> JsonObject:
    """Return every cable that LLDP shows, and a core that joins the leaves at full rate."""
    cables, below = [], Counter[str]()
    for one in seen:
        for nic, leaf in enumerate(one.leaves):
            if leaf:
                cables.append({"a": f"{one.name}/nic-{nic}", "b": leaf})
                below[leaf] += 1
            else:
                notes.append(f"{one.name}: no LLDP neighbour on NIC {nic}; it is left without a cable")
    switches: list[JsonObject] = [{"name": leaf, "level": 1} for leaf in sorted(below)]
    if len(below) > 1:
        switches.append({"name": "core", "level": 2})
        cables += [{"a": leaf, "b": "core", "count": num} for leaf, num in sorted(below.items())]  # type: ignore[dict-item]
        notes.append("LLDP shows no link between switches: one core that joins them at full rate is assumed")
    link = next(one.link for one in seen if one.link)
    return {"topology": "explicit", "link": link, "switches": switches, "cables": cables}


def _from_slurm(path: Path, seen: list[HostSketch]) -> ClusterSpec:
    """Return the hosts and switches of a Slurm topology, with the hardware of the host that was looked at."""
    if len({json.dumps(one.host, sort_keys=True) for one in seen}) > 1:
        raise UsageError("with --slurm all hosts are alike, and these differ.", hint="Give one tree.")
    text, source = read_text(path), str(path)
    tree: tuple[TreeSwitch, ...]
    tree = parse_slurm_yaml(text, source) if detect(text, source) == "slurm-yaml" else parse_slurm_conf(text, source)
    one = seen[0]
    spec = tree_cluster(tree, one.host, name="discovered", link=one.link, source=f"syncline discover, {path.name}")
    guesses = [*one.guesses, "uplinks are as many as links down: Slurm does not tell", f"all hosts are like {one.name}"]
    return spec.model_copy(update={"notes": "; ".join(guesses)})


def _from_nccl(
    path: Path, seen: list[HostSketch], gpu: str | None, names: Sequence[str], network: str | None
) -> ClusterSpec:
    """Return the host of an NCCL topology file, as often as there are names."""
    spec = import_fabric(path, "nccl", gpu=gpu or str(seen[0].host["gpu"]))
    group = spec.hosts[0].model_copy(update={"names": tuple(names) or (seen[0].name,), "count": None})
    data = spec.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    data["hosts"] = [group.model_dump(mode="json", exclude_none=True)]
    if network is not None:
        data["network"] = network_from_text(network)
    elif len(names) > 1 and seen[0].link:
        data["network"] = {"topology": "fat-tree", "link": seen[0].link}
    return ClusterSpec.model_validate(data)
