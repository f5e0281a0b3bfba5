"""Neighbours by LLDP: which switch is at the other end of each interface, from `lldpctl -f json`."""

from __future__ import annotations

import json
from typing import Any

LLDPCTL = ("lldpctl", "-f", "json")


def parse_lldp(text: str | None) -> dict[str, tuple[str, str]]:
    """Return interface -> (switch, its port); nothing for what cannot be read."""
    try:
        data = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    top = data.get("lldp") if isinstance(data, dict) else None
    found: dict[str, tuple[str, str]] = {}
    for row in _rows(top.get("interface") if isinstance(top, dict) else None):
        for name, told in row.items():
            for one in _rows(told):
                switch = _chassis(one.get("chassis"))
                if switch:
                    found.setdefault(str(name), (switch, _port(one.get("port"))))
    return found


def _rows(value: Any) -> list[dict[str, Any]]:
    """Return a list of mappings: lldpctl writes one neighbour as a mapping and several as a list."""
    many = value if isinstance(value, list) else [value]
    return [row for row in many if isinstance(row, dict)]


def _chassis(value: Any) -> str:
    """Return the switch's name: the key of its mapping, or its id where it has no name."""
    if not isinstance(value, dict) or not value:
        return ""
    if "id" in value:
        return _id(value["id"])
    return str(next(iter(value)))


def _port(value: Any) -> str:
    return _id(value.get("id")) if isinstance(value, dict) else ""


def _id(value: Any) -> str:
    return str(value.get("value", "")) if isinstance(value, dict) else ""
