"""What every network builder shares: the part of the description common to all, and the ports to be joined.

A builder is one file: a pydantic class that is its description (`topology: ...`) and whose `build` lays switches and
cables into a `Draft`. Adding a topology means adding a file and its class in `_Registered`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BeforeValidator, Field

from syncline.describe.quantity import Metres, Strict
from syncline.errors import CatalogError, FabricError
from syncline.fabric.catalog import Catalog, LinkType, Switch
from syncline.fabric.draft import Draft, HostBlock
from syncline.fabric.host import nic_latency_s
from syncline.fabric.wiring import FloatArray, IntArray, Tier

Routing = Literal["ecmp", "adaptive", "spray", "static", "minimal", "valiant", "ugal", "dimension-order"]


def _ratio(value: Any) -> Any:
    """Read "3:1" as 3.0."""
    if isinstance(value, str) and ":" in value:
        down, _, up = value.partition(":")
        try:
            return float(down) / float(up)
        except (ValueError, ZeroDivisionError):
            raise ValueError(f'"{value}" is not a ratio; write it as "3:1"') from None
    return value


Ratio = Annotated[float, BeforeValidator(_ratio), Field(gt=0, le=1000)]


class CableLengths(Strict):
    """Typical cable length per tier; decides which kind of cable is bought and how long light travels."""

    access: Metres = 20.0
    leaf_spine: Metres = 45.0
    spine_core: Metres = 100.0
    group_local: Metres = 5.0
    group_global: Metres = 60.0


class NetworkSpec(Strict):
    """What a network of any topology says about itself."""

    switch_word: ClassVar[str] = ""
    """What its switches are called where they have no tiers: "router"; empty: leaf, spine, core."""

    topology: str
    link: str
    """The access link, between NIC and leaf: a name from the catalogue such as NDR or 400GbE."""
    uplink: str | None = None
    """Links between switches, if of another kind than the access link."""
    switch: str | None = None
    """Switch model; default: the catalogue's usual one for the link."""
    routing: Routing = "ecmp"
    lengths: CableLengths = CableLengths()
    reduction: bool = False
    """Whether switches sum gradients on their way (SHARP); only where the switch can."""

    @abstractmethod
    def build(self, draft: Draft, ports: Ports) -> None:
        """Lay switches and cables so that all `ports` are joined."""

    def max_endpoints(self, catalog: Catalog, ports_per_host: int) -> int | None:
        """Return how many NIC ports this topology can join at most, or None where there is no bound."""
        return None

    def parts(self, catalog: Catalog) -> NetworkParts:
        """Look the link and switch names up."""
        link = catalog.link(self.link)
        uplink = catalog.link(self.uplink) if self.uplink else link
        switch = catalog.switch(self.switch) if self.switch else usual_switch(catalog, link)
        return NetworkParts(link, uplink, switch, catalog.num_ports(switch, link), catalog.num_ports(switch, uplink))


@dataclass(frozen=True)
class NetworkParts:
    """The catalogue entries a network is made of."""

    link: LinkType
    uplink: LinkType
    switch: Switch
    radix: int
    """How many ports of the access link's kind the switch has."""
    uplink_radix: int
    """How many ports of the uplink's kind it has."""


def usual_switch(catalog: Catalog, link: LinkType) -> Switch:
    """Return the switch a network has unless it names one: the one the catalogue names for the link."""
    name = link.usual_switch or catalog.wire(link).usual_switch
    if name is None:
        raise CatalogError(
            f"the catalogue names no usual switch for {link.name}.", hint="Add `switch: MODEL` to the network."
        )
    return catalog.switch(name)


@dataclass(frozen=True)
class Ports:
    """The NIC ports a network must join, host by host.

    `table[h, j]` is the NIC device behind port j of host h (a NIC with two ports appears twice in its row); every
    host of a Ports has equally many. `plane` is the port number within the NIC. `rate_Bps[h, j]` is what the port can
    do: the link it is cabled with may be slower or faster, and the slower of the two counts.
    """

    blocks: tuple[HostBlock, ...]
    table: IntArray
    rail: IntArray
    plane: IntArray
    rate_Bps: FloatArray
    bonded: NDArray[np.bool_]
    """Whether the ports of a NIC act as one, for each host: those that reach the same switch become one link."""

    @property
    def num_hosts(self) -> int:
        return int(self.table.shape[0])

    @property
    def per_host(self) -> int:
        return int(self.table.shape[1])

    @property
    def num_endpoints(self) -> int:
        return int(self.table.size)

    @property
    def site(self) -> int:
        return self.blocks[0].site

    def select(self, columns: IntArray) -> Ports:
        """Return only some ports of every host (one plane, one rail)."""
        return Ports(
            self.blocks,
            self.table[:, columns],
            self.rail[columns],
            self.plane[columns],
            self.rate_Bps[:, columns],
            self.bonded,
        )

    def set_racks(self, draft: Draft, racks: IntArray) -> None:
        """Record the rack of every host, block by block."""
        first = 0
        for block in self.blocks:
            draft.set_racks(block, racks[first : first + block.num_hosts])
            first += block.num_hosts


def attach(draft: Draft, network: NetworkSpec, ports: Ports, switches: IntArray, parts: NetworkParts) -> None:
    """Cable every port to a switch: `switches[h, j]` for port j of host h. Bonded ports to one switch are one link."""
    nics, switches = ports.table.ravel(), switches.ravel()
    rate_Bps = np.minimum(ports.rate_Bps, parts.link.rate_Bps).ravel()
    counts = [block.num_hosts * ports.per_host for block in ports.blocks]
    latency_s = np.repeat([nic_latency_s(draft.catalog, block.template.model) for block in ports.blocks], counts)
    num_cables: ArrayLike = 1
    if ports.bonded.any():
        alone = ~np.repeat(ports.bonded, ports.per_host)
        key = np.stack((nics, switches, np.where(alone, np.arange(len(nics)), -1)))
        _, first, bond = np.unique(key, axis=1, return_index=True, return_inverse=True)
        nics, switches, latency_s = nics[first], switches[first], latency_s[first]
        rate_Bps, num_cables = np.bincount(bond.ravel(), weights=rate_Bps), np.bincount(bond.ravel())
    draft.cable(
        nics,
        switches,
        link=parts.link,
        tier=Tier.ACCESS,
        length_m=network.lengths.access,
        rate_Bps=rate_Bps,
        end_latency_s=(parts.switch.latency_s + latency_s) / 2,
        num_cables=num_cables,
    )


def numbered(prefix: str, count: int, start: int = 0) -> list[str]:
    """Return `leaf-00 ... leaf-63`, padded so that names sort."""
    width = max(2, len(str(start + count - 1)))
    return [f"{prefix}-{i:0{width}d}" for i in range(start, start + count)]


def split_ports(radix: int, ratio: float) -> tuple[int, int]:
    """Split a switch's ports into down and up so that down/up is at most `ratio`, leaving as few idle as it can."""
    up = max(1, math.ceil(radix / (1 + ratio) - 1e-9))
    down = min(radix - up, math.floor(up * ratio + 1e-9))
    if down < 1:
        raise FabricError(f"a switch of {radix} ports cannot be split at {ratio:g}:1.", hint="Use a larger switch.")
    return down, up


def ceil_div(a: int, b: int) -> int:
    """Return a/b rounded up."""
    return -(-a // b)
