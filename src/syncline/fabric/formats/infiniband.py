"""InfiniBand subnets as their tools print them: `ibnetdiscover`, `iblinkinfo`, and the links that UFM exports.

A node's description names it: `"node1 HCA-2"` is a port of node1, `"MF0;leaf-3:MQM9700/U1"` switch leaf-3, a QM9700.
Aggregation nodes (SHARP) sit inside switches and are left out. Nodes without a name of their own are called by GUID.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from syncline.describe.document import read_json
from syncline.errors import DescriptionError
from syncline.fabric.formats.cabling import Cabling, FoundCable, Plug, once

_NODE = re.compile(r'^(Switch|Ca|Rt)\s+\d+\s+"([SHR])-([0-9a-fA-Fx]+)"\s*#\s*"([^"]*)"', re.MULTILINE)
_PORT = re.compile(r'^\[(\d+)\](?:\([^)]*\))?\s+"[SHR]-([0-9a-fA-Fx]+)"\s*\[(\d+)\][^#]*#(.*)$')
_RATE = re.compile(r"(\d+)x(SDR|DDR|QDR|FDR10|FDR|EDR|HDR|NDR|XDR)\b")
_GUID = re.compile(r"^sysimgguid=0x([0-9a-fA-F]+)", re.MULTILINE)
_OWNER = re.compile(r"^(?:(Switch):\s+0x([0-9a-fA-F]+)\s+(.*?)|(CA):\s+(.*?)):\s*$")
_ARROW = re.compile(
    r'^\s*(?:0x(?P<guid>[0-9a-fA-F]+)\s+)?(?:"\s*(?P<name>[^"]*)"\s+)?(?P<lid>\d+)\s+(?P<port>\d+)\[[^\]]*\]\s*'
    r"==\(\s*(?P<state>.*?)\)==>\s*(?:0x(?P<to_guid>[0-9a-fA-F]+)\s+)?(?:(?P<to_lid>\d+)\s+)?(?:(?P<to_port>\d+))?\[[^\]]*\]"
    r'\s*"(?P<to>[^"]*)"'
)
_LANES = re.compile(r"(\d+)X\s+([\d.]+)\s*Gbps")
_CARD = re.compile(r"^(.*\S)\s+(HCA-\d+|mlx\d_\S+|ib\S*\d|hfi1_\d+|roce\S+|ocp\S+)$", re.IGNORECASE)
_MANAGED = re.compile(r"^MF0;([^:;]+):([^/]+)(?:/.*)?$")
_SHARP = "aggregation node"
_PLAIN = re.compile(r"\b(Mellanox|NVIDIA|Technologies|ConnectX|Infiniscale|SwitchX|SwitchIB|Voltaire|QLogic)\b")

#: Data rate of one lane in Gb/s after line coding.
_LANE_GBPS = {
    "SDR": 2.0, "DDR": 4.0, "QDR": 8.0, "FDR10": 10.0, "FDR": 13.64, "EDR": 25.0, "HDR": 50.0, "NDR": 100.0,
    "XDR": 200.0,
}  # fmt: skip
#: The catalogue's links by lanes and speed.
_LINKS = {
    (4, "EDR"): "EDR", (4, "HDR"): "HDR", (2, "HDR"): "HDR100", (4, "NDR"): "NDR", (2, "NDR"): "NDR200",
    (4, "XDR"): "XDR",
}  # fmt: skip
#: How iblinkinfo writes the speed of a lane: what it signals at, in Gb/s.
_SIGNALLED = {
    2.5: "SDR", 5.0: "DDR", 10.0: "QDR", 10.3125: "FDR10", 14.0625: "FDR", 25.78125: "EDR", 53.125: "HDR",
    106.25: "NDR", 212.5: "XDR",
}  # fmt: skip


def is_ibnetdiscover(text: str) -> bool:
    """Say whether a text lists nodes as ibnetdiscover does."""
    return _NODE.search(text) is not None


def is_iblinkinfo(text: str) -> bool:
    """Say whether a text lists links as iblinkinfo does."""
    return any(_ARROW.match(line) for line in text.splitlines() if "==>" in line)


def is_ufm(text: str) -> bool:
    """Say whether a text holds UFM's links."""
    return '"source_guid"' in text and '"destination_guid"' in text


@dataclass(frozen=True)
class _Node:
    switch: bool
    description: str
    system: str = ""


class _Subnet:
    """Nodes by GUID and the cables between their ports; names are settled when all nodes are known."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.nodes: dict[str, _Node] = {}
        self.cables: list[tuple[str, str, str, str, str | None, float | None]] = []
        self.unsure = 0

    def cabling(self) -> Cabling:
        sharp = {guid for guid, node in self.nodes.items() if _SHARP in node.description.lower()}
        same = Counter(_switch_name(node.description)[0] for node in self.nodes.values() if node.switch)
        devices = {guid: self._device(guid, node, same) for guid, node in self.nodes.items() if guid not in sharp}
        switches = {devices[g][0]: devices[g][2] for g, node in self.nodes.items() if g not in sharp and node.switch}
        hosts = [devices[g][0] for g, node in self.nodes.items() if g not in sharp and not node.switch]
        cables = [
            FoundCable(self._plug(devices[a], port), self._plug(devices[b], to), link, rate)
            for a, port, b, to, link, rate in self.cables
            if a in devices and b in devices
        ]
        if not cables:
            raise DescriptionError("no cable between two ports that are up is listed.", where=self.source)
        remarks = [f"aggregation nodes (SHARP) inside switches are left out: {len(sharp):,}"] if sharp else []
        if self.unsure:
            remarks.append(f"adapters that do not say which host they are in, called by GUID: {self.unsure:,}")
        return Cabling(tuple(dict.fromkeys(hosts)), switches, once(cables), self.source, tuple(remarks))

    def _device(self, guid: str, node: _Node, same: Counter[str]) -> tuple[str, str, str]:
        """Return a node's device, what is put before its port's number, and its model."""
        if node.switch:
            name, model = _switch_name(node.description)
            return (name if name and same[name] == 1 else f"{name or 'switch'}-{guid[-6:]}"), "", model
        if (card := _CARD.match(node.description)) is not None:
            return _plain(card.group(1)), card.group(2), ""
        if node.description and not _PLAIN.search(node.description):
            return _plain(node.description), guid[-6:], ""
        self.unsure += 1
        return f"host-{(node.system or guid)[-6:]}", guid[-6:], ""

    @staticmethod
    def _plug(device: tuple[str, str, str], port: str) -> Plug:
        name, card, _ = device
        return Plug(name, f"{card}/{port}" if card else port)


def _switch_name(description: str) -> tuple[str, str]:
    if (managed := _MANAGED.match(description)) is not None:
        return _plain(managed.group(1)), managed.group(2).removeprefix("M")
    if _PLAIN.search(description) or not description:
        return "", ""
    return _plain(description.split(":")[0]), ""


def _plain(name: str) -> str:
    """Return a name without what a device's name cannot have."""
    return re.sub(r"[^\w.-]+", "-", name.strip()) or "node"


def _guid(text: str) -> str:
    return text.lower().removeprefix("0x").zfill(16)


def _link(lanes: int, speed: str) -> tuple[str | None, float | None]:
    named = _LINKS.get((lanes, speed))
    return (named, None) if named else (None, lanes * _LANE_GBPS[speed] * 1.25e8)


def ibnetdiscover(text: str, source: str) -> Cabling:
    """Return the cables that ibnetdiscover lists."""
    subnet = _Subnet(source)
    for block in re.split(r"\n\s*\n", text):
        block = "\n".join(line.strip() for line in block.splitlines())
        head = _NODE.search(block)
        if head is None:
            continue
        guid, system = _guid(head.group(3)), _GUID.search(block)
        subnet.nodes[guid] = _Node(head.group(1) == "Switch", head.group(4).strip(), system.group(1) if system else "")
        for line in block.splitlines():
            if (port := _PORT.match(line)) is not None:
                rate = _RATE.search(port.group(4))
                link = _link(int(rate.group(1)), rate.group(2)) if rate else (None, None)
                subnet.cables.append((guid, port.group(1), _guid(port.group(2)), port.group(3), *link))
    missing = {b for _, _, b, _, _, _ in subnet.cables} - set(subnet.nodes)
    if missing:
        raise DescriptionError(
            f"a cable leads to node {min(missing)}, which the file does not list.",
            where=source,
            hint="Give the whole output of ibnetdiscover, not an excerpt.",
        )
    return subnet.cabling()


def iblinkinfo(text: str, source: str) -> Cabling:
    """Return the cables that iblinkinfo lists; GUIDs are not always printed, so LIDs tell nodes apart."""
    subnet = _Subnet(source)
    switch, named = False, ""
    for line in text.splitlines():
        if (owner := _OWNER.match(line.strip())) is not None:
            switch, named = owner.group(1) is not None, (owner.group(3) or owner.group(5) or "").strip()
            continue
        arrow = _ARROW.match(line)
        if arrow is None:
            continue
        here = _guid(arrow["lid"])
        own = (arrow["name"] or named).strip()
        subnet.nodes[here] = _Node(switch if not arrow["name"] else _is_switch(own), own)
        lanes = _LANES.search(arrow["state"])
        if lanes is None or not arrow["to_lid"] or not arrow["to_port"] or "LinkUp" not in arrow["state"]:
            continue
        speed = _SIGNALLED.get(float(lanes.group(2)))
        if speed is None:
            raise DescriptionError(f'"{lanes.group(0)}" is not an InfiniBand speed.', where=source)
        there = _guid(arrow["to_lid"])
        subnet.nodes.setdefault(there, _Node(_is_switch(arrow["to"]), arrow["to"].strip()))
        subnet.cables.append((here, arrow["port"], there, arrow["to_port"], *_link(int(lanes.group(1)), speed)))
    return subnet.cabling()


def _is_switch(description: str) -> bool:
    if _CARD.match(description) or _SHARP in description.lower() or "ConnectX" in description:
        return False
    return bool(_MANAGED.match(description) or re.search(r"switch|quantum|scale|isr\d", description, re.IGNORECASE))


def ufm(text: str, source: str) -> Cabling:
    """Read `GET /ufmRest/resources/links`: a list of links, or an object that holds it."""
    data = read_json(text, source)
    rows = data.get("links", data.get("data")) if isinstance(data, Mapping) else data
    if not isinstance(rows, list):
        raise DescriptionError("a list of links is missing.", where=source, hint="Export /ufmRest/resources/links.")
    subnet = _Subnet(source)
    for row in rows:
        ends = [_ufm_end(row, side, source) for side in ("source", "destination")]
        for guid, _, node in ends:
            subnet.nodes.setdefault(guid, node)
        (a, port, _), (b, to, _) = ends
        subnet.cables.append((a, port, b, to, None, None))
    return subnet.cabling()


def _ufm_end(row: object, side: str, source: str) -> tuple[str, str, _Node]:
    if not isinstance(row, Mapping) or not row.get(f"{side}_guid"):
        raise DescriptionError(f'a link has no "{side}_guid".', where=source)
    described = str(row.get(f"{side}_port_node_description") or "")
    port, guid = str(row.get(f"{side}_port") or ""), _guid(str(row[f"{side}_guid"]))
    if _CARD.match(described) or _SHARP in described.lower():
        return guid, port, _Node(False, described)
    # UFM writes a switch as NAME:PORT; directors as NAME:Lx/Uy.
    return guid, port, _Node(":" in described or _is_switch(described), described)
