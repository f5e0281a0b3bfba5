"""Neighbour tables of Ethernet switches: what each port hears by LLDP, as the common switch systems print it.

Read are `show lldp neighbors` of NX-OS, EOS and Junos, SONiC's `show lldp table`, EOS's JSON, `lldpctl -f json` (hosts,
Cumulus), `netq show lldp json` and NetQ's topology graph; and, with rates, SONiC's config_db.json (DEVICE_NEIGHBOR, and
PORT in Mb/s) and `show interfaces status`. A table does not say whose it is: a folder has one file a device, named
after it, and in one file the prompt (`leaf-1# show lldp neighbors`) says so. Devices whose ports are named like network
interfaces (eth0, ens1f0np0, a MAC address) are hosts, the others switches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from syncline.describe.document import read_json, read_text
from syncline.errors import DescriptionError, FileError
from syncline.fabric.formats.cabling import Cabling, FoundCable, Plug, once

_STATUS_HEAD = re.compile(r"^\s*Interface\s+Lanes\s+Speed\b", re.IGNORECASE)
_STATUS_ROW = re.compile(r"^\s*(?P<port>\S+)\s+[\d,]+\s+(?P<speed>\d+(?:\.\d+)?)(?P<unit>[GM])\s")
_PROMPT = re.compile(
    r"^(?:\S+@)?([A-Za-z][\w.-]*)(?::[^#>$]*)?(?:\([^)]*\))?\s?[#>$]\s*(?:sudo\s+)?(?:show|sh|lldp\w*|nv|net)\b",
    re.IGNORECASE,
)
_HOST_PORT = re.compile(
    r"^(?:eth\d+|en[ospx]\w+|ib\w*\d+|mlx\d\w*|rdma\w*|gpu\w*\d+|bond\d+|(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}|(?:[0-9a-f]{4}\.){2}[0-9a-f]{4})$",
    re.IGNORECASE,
)
_SWITCH_PORT = re.compile(r"^(?:Ethernet|Eth|Et|swp|(?:et|xe|ge)-)\d", re.IGNORECASE)
_MANAGEMENT = re.compile(r"^(?:mgmt\d*|ma\d+|management\d*|me\d+|fxp\d+|em\d+|oob\S*)$", re.IGNORECASE)

#: The heading of each table, and what a row of it is: device, local port, remote port.
_TABLES: Mapping[str, tuple[re.Pattern[str], re.Pattern[str]]] = {
    "nx-os": (
        re.compile(r"Device ID\s+Local Intf\s+Hold-?time\s+Capability\s+Port ID", re.IGNORECASE),
        re.compile(r"^(?P<device>\S+)\s+(?P<here>\S+)\s+\d+\s+(?:(?:[BRTCWPSO],? ?){1,8}\s+)?(?P<there>\S+)\s*$"),
    ),
    "eos": (
        re.compile(r"^Port\s+Neighbor Device ID\s+Neighbor Port ID", re.IGNORECASE),
        re.compile(r"^(?P<here>\S+)\s+(?P<device>\S+)\s+(?P<there>\S+)(?:\s+\d+)?\s*$"),
    ),
    "sonic": (
        re.compile(r"^LocalPort\s+RemoteDevice\s+RemotePortID", re.IGNORECASE),
        re.compile(
            r"^(?P<here>\S+)\s+(?P<device>\S+)\s+(?P<there>\S+)(?:\s+[A-Z]{1,8}(?:\s+(?:Interface\s+\d+\s+as\s+)?(?P<described>\S+))?)?\s*$"
        ),
    ),
    "junos": (
        re.compile(r"^Local Interface\s+Parent Interface\s+Chassis Id\s+Port info\s+System Name", re.IGNORECASE),
        re.compile(r"^(?P<here>\S+)\s+\S+\s+(?:\S+:){5}\S+\s+(?P<there>\S+)\s+(?P<device>\S+)\s*$"),
    ),
}


_JSON_KEYS = ("lldpNeighbors", "lldp", "peerHostname", "peer_hostname", "DEVICE_NEIGHBOR", "compounded_links")


@dataclass(frozen=True)
class _Row:
    device: str
    port: str
    neighbour: str
    there: str
    rate_Bps: float | None = None


def is_lldp(text: str) -> bool:
    """Say whether a text is a neighbour table."""
    if text.lstrip()[:1] in "{[":
        return any(f'"{word}"' in text for word in _JSON_KEYS)
    return any(heading.search(line) for line in text.splitlines() for heading, _ in _TABLES.values())


def read_lldp(path: Path, limit: int) -> Cabling:
    """Read a file with prompts, or a folder with one file a device."""
    if not path.is_dir():
        return parse_lldp({path: read_text(path, limit=limit)}, str(path))
    files = sorted(one for one in path.iterdir() if one.is_file() and not one.name.startswith("."))
    if not files:
        raise FileError("the folder is empty.", where=str(path), hint="Give one file a device, named after it.")
    return parse_lldp({one: read_text(one, limit=limit) for one in files}, str(path), named=True)


def parse_lldp(texts: Mapping[Path, str], source: str, *, named: bool = False) -> Cabling:
    """Return what the tables say together; with `named`, a table is that of the device its file is named after."""
    rows: list[_Row] = []
    speeds: dict[tuple[str, str], float] = {}
    for path, text in texts.items():
        device = path.name.split(".")[0] if named else None
        rates = status_speeds(text, device)
        neighbours = list(_rows_of(text, device, str(path)))
        if not neighbours and not rates and not is_lldp(text):
            raise DescriptionError("this is not a table of LLDP neighbours.", where=str(path))
        rows += neighbours
        speeds |= rates | {(row.device, row.port): row.rate_Bps for row in neighbours if row.rate_Bps}
    ends = [(r.device, r.port) for r in rows] + [(r.neighbour, r.there) for r in rows]
    boxes = {device for device, port in ends if _SWITCH_PORT.match(port) and not _HOST_PORT.match(port)}
    kept = [
        r
        for r in rows
        if not _is_management(r.device, r.port, boxes) and not _is_management(r.neighbour, r.there, boxes)
    ]
    if not kept:
        raise DescriptionError("the tables list no neighbour.", where=source)
    ports: dict[str, list[str]] = {}
    for row in kept:
        ports.setdefault(row.device, []).append(row.port)
        ports.setdefault(row.neighbour, []).append(row.there)
    hosts = [device for device, names in ports.items() if all(_HOST_PORT.match(name) for name in names)]
    switches = {device: "" for device in ports if device not in hosts}
    cables = once(
        FoundCable(
            Plug(r.device, _port(r.port)),
            Plug(r.neighbour, _port(r.there)),
            rate_Bps=speeds.get((r.device, r.port)) or speeds.get((r.neighbour, r.there)),
        )
        for r in kept
    )
    remarks = [f"taken for hosts, by the names of their ports: {len(hosts):,}"]
    if len(kept) < len(rows):
        remarks.append(f"management ports left out: {len(rows) - len(kept):,}")
    return Cabling(tuple(hosts), switches, _one_name_a_port(cables, hosts), source, tuple(remarks))


def _is_management(device: str, port: str, switches: set[str]) -> bool:
    """Say whether a port is for management: by its name, or eth0 of a device whose other ports are a switch's."""
    return bool(_MANAGEMENT.match(port)) or (port == "eth0" and device in switches)


def _one_name_a_port(cables: tuple[FoundCable, ...], hosts: list[str]) -> tuple[FoundCable, ...]:
    """Drop what a host says of a cable that its switch describes too: hosts name one port in two ways (eth0, a MAC)."""
    seen: dict[Plug, FoundCable] = {}
    for cable in cables:
        switch = cable.b if cable.a.device in hosts else cable.a
        known = seen.get(switch)
        other = cable.a if switch is cable.b else cable.b
        if known is None or ":" not in other.port:
            seen[switch] = cable
    return tuple(dict.fromkeys(seen.values()))


def _rows_of(text: str, device: str | None, source: str) -> Iterator[_Row]:
    if text.lstrip()[:1] in "{[":
        yield from _json_rows(text, device, source)
        return
    shape: re.Pattern[str] | None = None
    wrapped = ""
    for number, line in enumerate(text.splitlines(), 1):
        if (prompt := _PROMPT.match(line)) is not None:
            device, shape = _short(prompt.group(1)), None
            continue
        heading = next((row for head, row in _TABLES.values() if head.search(line)), None)
        if heading is not None:
            shape, wrapped = heading, ""
            if device is None:
                raise DescriptionError(
                    "the table does not say which switch printed it.",
                    where=f"{source}:{number}",
                    hint="Keep its prompt (leaf-1# show lldp neighbors), or give a folder with one file a switch.",
                )
            continue
        if shape is None or device is None or not line.strip() or set(line.strip()) <= set("-=+ "):
            continue
        if re.fullmatch(r"\S+", line.strip()) and not line.startswith(" "):
            wrapped = line.strip()  # NX-OS puts a long name on a line of its own
            continue
        row = shape.match(f"{wrapped} {line.strip()}" if wrapped else line.strip())
        wrapped = ""
        if row is not None:
            # SONiC's port id is an alias or a MAC address; its description, where it is one word, is the port's name.
            yield _Row(device, row["here"], _short(row["device"]), row.groupdict().get("described") or row["there"])


def _json_rows(text: str, device: str | None, source: str) -> Iterator[_Row]:
    data = read_json(text, source)
    if isinstance(data, Mapping) and _is_config_db(data):
        rates, owner = _config_speeds(data), _short(_config_name(data) or _owner(device, source))
        for here, neighbour, there in config_neighbours(data):
            yield _Row(owner, here, _short(neighbour), there, rates.get(here))
        return
    body = data.get("lldp", data) if isinstance(data, Mapping) else data
    if isinstance(data, Mapping) and isinstance(data.get("lldpNeighbors"), list):
        yield from _flat(data["lldpNeighbors"], device, source, ("port", "neighborDevice", "neighborPort"))
    elif isinstance(body, list):
        yield from _netq(body, source)
    elif isinstance(body, Mapping):
        yield from _lldpctl(body.get("interface") or [], device, source)


def _flat(rows: Iterable[object], device: str | None, source: str, keys: tuple[str, str, str]) -> Iterator[_Row]:
    owner = _owner(device, source)
    for row in rows:
        if isinstance(row, Mapping) and all(isinstance(row.get(key), str) for key in keys):
            here, neighbour, there = (str(row[key]) for key in keys)
            yield _Row(owner, here, _short(neighbour), there)


def _netq(rows: Iterable[object], source: str) -> Iterator[_Row]:
    for row in rows:
        if not isinstance(row, Mapping):
            raise DescriptionError("a neighbour is not an object.", where=source)
        if isinstance(row.get("links"), list):
            yield from _netq_graph(row["links"])
            continue
        plain = {str(key).replace("_", "").lower(): value for key, value in row.items()}
        names = [plain.get(key) for key in ("hostname", "ifname", "peerhostname", "peerifname")]
        if all(isinstance(value, str) and value for value in names):
            host, port, peer, there = map(str, names)
            yield _Row(_short(host), port, _short(peer), there)


def _netq_graph(links: Iterable[object]) -> Iterator[_Row]:
    """Read NetQ's topology graph: each link of two devices holds its cables, each with two ends."""
    for link in links:
        cables = link.get("compounded_links") if isinstance(link, Mapping) else None
        for cable in cables if isinstance(cables, list) else []:
            ends = cable.get("interfaces") if isinstance(cable, Mapping) else None
            if isinstance(ends, list) and len(ends) == 2 and all(isinstance(end, Mapping) for end in ends):
                names = [end.get(key) for end in ends for key in ("node", "interface")]
                if all(isinstance(value, str) and value for value in names):
                    here, port, there, far = map(str, names)
                    yield _Row(_short(here), port, _short(there), far)


def _lldpctl(interfaces: object, device: str | None, source: str) -> Iterator[_Row]:
    """Read lldpctl's JSON: interfaces are a list of one-key objects, or one object; a chassis is keyed by its name."""
    owner = _owner(device, source)
    for entry in interfaces if isinstance(interfaces, list) else [interfaces]:
        if not isinstance(entry, Mapping):
            continue
        for port, heard in entry.items():
            chassis, remote = (heard.get("chassis"), heard.get("port")) if isinstance(heard, Mapping) else (None, None)
            if isinstance(chassis, Mapping) and isinstance(remote, Mapping) and chassis:
                identity = remote.get("id")
                there = identity.get("value") if isinstance(identity, Mapping) else None
                if isinstance(identity, Mapping) and identity.get("type") == "mac" and remote.get("descr"):
                    there = remote["descr"]
                yield _Row(owner, str(port), _short(str(next(iter(chassis)))), str(there or remote.get("descr") or ""))


def _owner(device: str | None, source: str) -> str:
    if device is None:
        raise DescriptionError(
            "the file does not say which device printed it.",
            where=source,
            hint="Give a folder with one file a device, named after it: leaf-1.json.",
        )
    return device


def _short(name: str) -> str:
    """Return a device's name without its domain or serial number: leaf-1.example.net(FOX123) is leaf-1."""
    name = name.split("(")[0]
    return name if re.fullmatch(r"[\d.]+", name) else name.split(".")[0]


def _port(name: str) -> str:
    """Return one spelling of a port: Ethernet1/1 and Eth1/1 are the same."""
    match = re.fullmatch(r"(Ethernet|Eth|Et)(\d\S*)", name, re.IGNORECASE)
    return f"Eth{match.group(2)}" if match else name


def _is_config_db(data: object) -> bool:
    """Say whether a document is SONiC's configuration."""
    return isinstance(data, Mapping) and isinstance(data.get("PORT"), Mapping) and "DEVICE_METADATA" in data


def _config_name(data: Mapping[str, object]) -> str | None:
    """Return the switch's own name."""
    local = _table(_table(data.get("DEVICE_METADATA")).get("localhost"))
    return str(local["hostname"]) if local.get("hostname") else None


def config_neighbours(data: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Return port, neighbour and its port; newer releases key the table by port, older ones by neighbour."""
    for key, row in _table(data.get("DEVICE_NEIGHBOR")).items():
        row = _table(row)
        here, there = row.get("local_port", key), row.get("port")
        neighbour = row.get("name", key if "local_port" in row else None)
        if here and there and neighbour:
            yield str(here), str(neighbour), str(there)


def _config_speeds(data: Mapping[str, object]) -> dict[str, float]:
    """Return the rate of each port, in bytes per second."""
    rows = {port: str(_table(row).get("speed", "")) for port, row in _table(data.get("PORT")).items()}
    return {port: int(speed) * 1.25e5 for port, speed in rows.items() if speed.isdecimal() and int(speed)}


def status_speeds(text: str, device: str | None) -> dict[tuple[str, str], float]:
    """Return the rate of each (device, port) in tables of `show interfaces status`; a prompt says whose they are."""
    speeds: dict[tuple[str, str], float] = {}
    inside = False
    for line in text.splitlines():
        if (prompt := _PROMPT.match(line.strip())) is not None:
            device, inside = prompt.group(1).split(".")[0], False
        elif _STATUS_HEAD.match(line):
            inside = True
        elif inside and device is not None and (row := _STATUS_ROW.match(line)) is not None:
            speeds[device, row["port"]] = float(row["speed"]) * (1.25e8 if row["unit"].upper() == "G" else 1.25e5)
    return speeds


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
