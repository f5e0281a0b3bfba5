"""Neighbours by LLDP: which switch is at the other end of each interface, from `lldpctl -f json`."""

from __future__ import annotations

import json

LLDPCTL = ("lldpctl", "-f", "json")


def parse_lldp(text: str | None) -> dict[str, tuple[str, str]]:
    """Return interface -> (switch, its port); nothing for what cannot be read."""
    try:
        data = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    neighbours: dict[str, tuple[str, str]] = {}
    for row in _rows(_get(_get(data, "lldp"), "interface")):
        for name, several in row.items():
            for one in _rows(several):
                chassis = one.get("chassis")
                # The key of its mapping is the switch's name; without a name its id stands there.
                named = next(iter(chassis), "") if isinstance(chassis, dict) else ""
                switch = _get(_get(chassis, "id"), "value") if named == "id" or _get(chassis, "id") else named
                if switch:
                    port = _get(_get(one.get("port"), "id"), "value") or ""
                    neighbours.setdefault(name, (str(switch), str(port)))
    return neighbours


def _rows(value: object) -> list[dict[str, object]]:
    """Return a list of mappings: lldpctl writes one neighbour as a mapping and several as a list."""
    return [row for row in (value if isinstance(value, list) else [value]) if isinstance(row, dict)]


def _get(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, dict) else None
