"""SONiC's own tables: neighbours and ports of config_db.json, and the rates in `show interfaces status`.

config_db.json says what should be at the other end of a port (DEVICE_NEIGHBOR) and what the port runs (PORT, in Mb/s).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_STATUS_HEAD = re.compile(r"^\s*Interface\s+Lanes\s+Speed\b", re.IGNORECASE)
_STATUS_ROW = re.compile(r"^\s*(?P<port>\S+)\s+[\d,]+\s+(?P<speed>\d+(?:\.\d+)?)(?P<unit>[GM])\s")
PROMPT = re.compile(
    r"^(?:\S+@)?([A-Za-z][\w.-]*)(?::[^#>$]*)?(?:\([^)]*\))?\s?[#>$]\s*(?:sudo\s+)?(?:show|sh|lldp\w*|nv|net)\b",
    re.IGNORECASE,
)


def is_config_db(data: object) -> bool:
    """Say whether a document is SONiC's configuration."""
    return isinstance(data, Mapping) and isinstance(data.get("PORT"), Mapping) and "DEVICE_METADATA" in data


def config_name(data: Mapping[str, object]) -> str | None:
    """Return the switch's own name."""
    local = _table(_table(data.get("DEVICE_METADATA")).get("localhost"))
    return str(local["hostname"]) if local.get("hostname") else None


def config_neighbours(data: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Return port, neighbour and its port; newer releases key the table by port, older ones by neighbour."""
    for key, row in _table(data.get("DEVICE_NEIGHBOR")).items():
        told = _table(row)
        here, there = told.get("local_port", key), told.get("port")
        neighbour = told.get("name", key if "local_port" in told else None)
        if here and there and neighbour:
            yield str(here), str(neighbour), str(there)


def config_speeds(data: Mapping[str, object]) -> dict[str, float]:
    """Return the rate of each port, in bytes per second."""
    rows = {port: str(_table(row).get("speed", "")) for port, row in _table(data.get("PORT")).items()}
    return {port: int(speed) * 1.25e5 for port, speed in rows.items() if speed.isdecimal() and int(speed)}


def status_speeds(text: str, device: str | None) -> dict[tuple[str, str], float]:
    """Return the rate of each (device, port) in tables of `show interfaces status`; a prompt says whose they are."""
    found: dict[tuple[str, str], float] = {}
    inside = False
    for line in text.splitlines():
        if (prompt := PROMPT.match(line.strip())) is not None:
            device, inside = prompt.group(1).split(".")[0], False
        elif _STATUS_HEAD.match(line):
            inside = True
        elif inside and device is not None and (row := _STATUS_ROW.match(line)) is not None:
            found[device, row["port"]] = float(row["speed"]) * (1.25e8 if row["unit"].upper() == "G" else 1.25e5)
    return found


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
