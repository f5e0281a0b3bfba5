"""Which links each flow of a lab crosses: the kernel's own answer, for the simulator to use instead of a guess."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from syncline.errors import LabError
from syncline.lab.blueprint import Blueprint
from syncline.lab.inside.protocol import Message


@dataclass(frozen=True)
class PathTable:
    """Links of the fabric from each host to each address of the others.

    `links[host, to, interface]` are fabric link ids in order, for the flow from `host` (a fabric host name) to the
    address of `interface` on `to`. A pair that nothing joins is missing.
    """

    links: Mapping[tuple[str, str, str], tuple[int, ...]]

    @classmethod
    def of(cls, blueprint: Blueprint, rows: Sequence[Mapping[str, Any]]) -> PathTable:
        """Return the table of what a lab answered."""
        links = {}
        for row in rows:
            if row["links"] is None:
                continue
            interface = {address: name for name, address in blueprint.addresses(row["to"]).items()}[row["address"]]
            key = blueprint.boxes[row["host"]].name, blueprint.boxes[row["to"]].name, interface
            links[key] = tuple(row["links"])
        return cls(links)

    def path(self, host: str, to: str, interface: str = "eth0") -> tuple[int, ...]:
        """Return the links of one flow."""
        try:
            return self.links[host, to, interface]
        except KeyError:
            raise LabError(f"there is no path from {host} to {interface} of {to} now.") from None

    def load(self, pairs: Sequence[tuple[str, str]], interface: str = "eth0") -> Counter[int]:
        """Return how many of the flows between these pairs of hosts share each link."""
        return Counter(link for host, to in pairs for link in self.path(host, to, interface))

    def to_json(self) -> list[Message]:
        """Return the table as plain rows."""
        return [
            {"from": host, "to": to, "interface": interface, "links": list(path)}
            for (host, to, interface), path in self.links.items()
        ]
