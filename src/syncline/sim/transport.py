"""Transports: what sending costs the host, per message and per byte. The numbers are data, with their source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from syncline.describe.own_data import own_data
from syncline.errors import SimulationError


@dataclass(frozen=True)
class Transport:
    """One transport. `host_Bps` is what the host can move for one NIC; infinite when the NIC does it all."""

    name: str
    message_s: float
    efficiency: float
    host_Bps: float
    gpudirect: bool
    source: str
    post_s: float = 0.0  # a sender's own time for each message of a round, one after the other (LogGP's o)


@cache
def transports() -> dict[str, Transport]:
    """Return all transports by name."""
    table = own_data("sim", "data/transports.yaml")
    return {
        name: Transport(
            name,
            float(row["message_us"]) * 1e-6,
            float(row["efficiency"]),
            float(row.get("host_GBps", "inf")) * 1e9,
            bool(row["gpudirect"]),
            str(row["source"]),
            float(row.get("post_us", 0.0)) * 1e-6,
        )
        for name, row in table.items()
    }


def transport(name: str) -> Transport:
    """Return the transport of that name."""
    table = transports()
    if name not in table:
        raise SimulationError(f'no transport is called "{name}".', hint=f"One of: {', '.join(table)}.")
    return table[name]
