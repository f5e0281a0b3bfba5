"""The cluster description: from three lines to every cable by name.

    hosts: 64
    host: 8 x H100
    network: rail-optimized NDR

`ClusterSpec` is what a cluster file says, validated. It is also the saved form of a `Fabric`: a fabric that was built
or imported can be written as a description and built again.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from syncline.describe.hostlist import MAX_HOSTS, expand
from syncline.describe.plain import JsonObject
from syncline.describe.quantity import Rate, Seconds, Strict
from syncline.errors import DescriptionError, FabricError
from syncline.fabric.catalog import Catalog, HostModel, load_catalog
from syncline.fabric.faults import FailedPart
from syncline.fabric.topology import TOPOLOGIES, AnyNetwork
from syncline.fabric.topology.sites import Wan

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
_HOST_TEXT = re.compile(r"\s*(\d+)\s*[x×]\s*(\S.*?)\s*\Z")

ScaleUpTopology = Literal["nvswitch", "mesh", "ring", "cube_mesh", "pcie", "none", "torus"]


class HostSpec(Strict):
    """A host: a model of the catalogue, or a GPU and how many, with anything else changed by name."""

    model: str | None = None
    gpu: str | None = None
    gpus: int | None = Field(default=None, ge=1, le=64)
    scale_up: ScaleUpTopology | None = None
    domain_gpus: int | None = Field(default=None, ge=1, le=4096)
    nic: str | None = None
    nics: int | None = Field(default=None, ge=0, le=64)
    ports_per_nic: int | None = Field(default=None, ge=1, le=8)
    link: str | None = None
    bond: bool | None = None
    sockets: int | None = Field(default=None, ge=1, le=8)
    nic_path: Literal["PIX", "PXB", "PHB", "SYS", "C2C"] | None = None
    nic_path_cap: Rate | None = None
    gpus_per_pcie_switch: int | None = Field(default=None, ge=0)
    nics_per_pcie_switch: int | None = Field(default=None, ge=0)
    price_usd: float | None = Field(default=None, ge=0)
    power_w: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _named(self) -> HostSpec:
        if self.model is None and self.gpu is None:
            raise ValueError('a host needs `model: dgx-h100` or `gpu: H100` (or just "8 x H100")')
        return self

    def resolve(self, catalog: Catalog) -> HostModel:
        """Return the catalogue's host with this description's changes."""
        base = catalog.host(self.model) if self.model else _host_with(catalog, self.gpu or "", self.gpus)
        gpu = catalog.gpu(self.gpu).name if self.gpu else base.gpu
        gpus = self.gpus or base.num_gpus
        nics = base.num_nics if self.nics is None else self.nics
        if self.nics is None and gpus != base.num_gpus and base.num_nics % base.num_gpus == 0:
            nics = base.num_nics // base.num_gpus * gpus
        share = gpus / base.num_gpus
        nic = catalog.nic(self.nic).name if self.nic else (base.nic if nics else None)
        changes: dict[str, object] = {
            "gpu": gpu,
            "num_gpus": gpus,
            "num_nics": nics,
            "nic": nic,
            "link": self._link(catalog, base) if nics else None,
            "scale_up_topology": self.scale_up or base.scale_up_topology,
            "scale_up_domain_gpus": self.domain_gpus or base.scale_up_domain_gpus,
            "num_sockets": self.sockets or base.num_sockets,
            "price_usd": self.price_usd if self.price_usd is not None else _price(catalog, base, share, nic, nics),
            "power_w": self.power_w if self.power_w is not None else base.power_w * share,
        }
        for ours, theirs in _PLAIN:
            if (value := getattr(self, ours)) is not None:
                changes[theirs] = value
        if self.price_usd is not None:
            changes |= {"price_source": "cluster file", "price_is_estimate": False}
        if self.nic_path_cap is not None:
            changes["nic_path_cap_source"] = "cluster file"
        host = base.model_copy(update=changes)
        if host.num_nics and host.nic is None:
            raise FabricError(
                f"the host has {host.num_nics} NICs, but neither it nor {base.name} says which.",
                hint="Add `nic: ConnectX-7`, say.",
            )
        return host

    def _link(self, catalog: Catalog, base: HostModel) -> str | None:
        """Return what a port runs: the one given, the model's, or else the fastest that the new NIC can run."""
        if self.link:
            return catalog.link(self.link).name
        if self.nic is None:
            return base.link
        return max((catalog.link(name) for name in catalog.nic(self.nic).links), key=lambda link: link.rate_Bps).name


_PLAIN = (
    ("ports_per_nic", "ports_per_nic"),
    ("bond", "bond"),
    ("nic_path", "nic_path"),
    ("nic_path_cap", "nic_path_cap_Bps"),
    ("gpus_per_pcie_switch", "gpus_per_pcie_switch"),
    ("nics_per_pcie_switch", "nics_per_pcie_switch"),
)


class HostGroup(Strict):
    """Hosts that are alike: how many (or their names), and what they are."""

    count: int | Literal["max"] | None = None
    names: tuple[str, ...] = ()
    host: HostSpec

    @field_validator("names", mode="before")
    @classmethod
    def _expand(cls, names: Any) -> Any:
        if not isinstance(names, str):
            return names
        try:
            return expand(names)
        except DescriptionError as error:
            raise ValueError(error.message.removesuffix(".")) from None

    @field_validator("host", mode="before")
    @classmethod
    def _host_text(cls, host: Any) -> Any:
        return host_from_text(host)

    @field_validator("count", mode="before")
    @classmethod
    def _count_in_range(cls, count: Any) -> Any:
        if count is None or count == "max":
            return count
        if isinstance(count, bool) or not isinstance(count, int):
            raise ValueError(f'"{count}" is not a number of hosts; write `64`, say, or `max`')
        if not 1 <= count <= MAX_HOSTS:
            raise ValueError(f"{count:,} hosts; a cluster has 1 to {MAX_HOSTS:,}")
        return count

    @field_validator("names")
    @classmethod
    def _plain_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _NAME.fullmatch(name):
                raise ValueError(f'"{name}" is not a host name; use letters, digits, dots, hyphens and underscores')
        return names

    @model_validator(mode="after")
    def _counted(self) -> HostGroup:
        if self.count is None and not self.names:
            raise ValueError("say how many hosts: `count: 64`, or their `names:`")
        if self.names and isinstance(self.count, int) and self.count != len(self.names):
            raise ValueError(f"count is {self.count} but there are {len(self.names)} names")
        if len(set(self.names)) != len(self.names):
            raise ValueError(f'two hosts are called "{Counter(self.names).most_common(1)[0][0]}"')
        return self


class Site(Strict):
    """One site: its hosts and its network."""

    name: str = Field(min_length=1, max_length=60)
    hosts: tuple[HostGroup, ...]
    network: AnyNetwork


class Calibration(Strict):
    """What hosts add to the wire here, fitted to a short sweep (`syncline calibrate`), with how well it fits."""

    latency_s: float = Field(ge=0)
    post_s: float = Field(ge=0)
    add_s_per_byte: float = Field(ge=0)
    start_s: float = Field(ge=0)
    efficiency: float = Field(gt=0, le=1)
    ranks: int = Field(ge=2)
    median_error: float = Field(ge=0)
    worst_error: float = Field(ge=0)
    measured: str = ""
    """Where and when, and on which sizes."""


class ClusterSpec(Strict):
    """A whole cluster. `hosts`, `host` and `network` describe one site; `sites` and `wan` several."""

    name: str = "cluster"
    hosts: tuple[HostGroup, ...] = ()
    network: AnyNetwork | None = None
    sites: tuple[Site, ...] = ()
    wan: Wan | None = None
    faults: tuple[FailedPart, ...] = ()
    spares: int | Literal["rent"] | None = None
    """Hosts that stand by beside these, or `rent`: a host is rented for each that is away. None: not stated."""
    repair: Seconds | None = None
    """Mean time until a failed host is back."""
    parts: dict[str, Any] = Field(default_factory=dict)
    software: dict[str, Any] = Field(default_factory=dict)
    """What runs on the hosts (collective library, its version and settings); read by the simulators."""
    calibration: Calibration | None = None
    source: str = ""
    """Where a preset's numbers come from."""
    notes: str = ""

    @property
    def catalog(self) -> Catalog:
        """The catalogue with the parts that this description adds."""
        return load_catalog().with_parts(self.parts) if self.parts else load_catalog()

    def groups(self) -> tuple[HostGroup, ...]:
        """Return the groups of hosts of all sites, in the order of the fabric's hosts."""
        return self.hosts or tuple(group for site in self.sites for group in site.hosts)

    @field_validator("spares", mode="before")
    @classmethod
    def _spares_in_range(cls, spares: Any) -> Any:
        if spares is None or spares == "rent":
            return spares
        if isinstance(spares, bool) or not isinstance(spares, int) or not 0 <= spares <= MAX_HOSTS:
            raise ValueError(f"spares is {spares}; it is a number of hosts, 0 to {MAX_HOSTS:,}, or `rent`")
        return spares

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            raise ValueError(
                "a cluster description is a mapping: `hosts: 64`, `host: 8 x H100`, `network: fat-tree NDR`"
            )
        data = _site_from_short(dict(data))
        sites = data.get("sites")
        if isinstance(sites, list):
            data["sites"] = [_site_from_short(dict(s)) if isinstance(s, dict) else s for s in sites]
        return data

    @model_validator(mode="after")
    def _one_or_many(self) -> ClusterSpec:
        if bool(self.hosts) == bool(self.sites):
            raise ValueError("describe either `hosts` and `host` (one site) or `sites`, not both or neither")
        if self.sites and (self.wan is None or self.network is not None):
            raise ValueError("several `sites` need a `wan`, and each has its own `network`")
        if len({s.name for s in self.sites}) != len(self.sites):
            raise ValueError("two sites have the same name")
        return self


def _site_from_short(data: dict[str, object]) -> dict[str, object]:
    """Turn `hosts: 64` beside `host: ...` into one group, and a text network into a mapping."""
    hosts, host = data.get("hosts"), data.pop("host", None)
    if host is not None:
        if isinstance(hosts, (list, dict)):
            raise ValueError("`hosts` is a list of groups, so `host` belongs inside each group")
        group: dict[str, object] = {"host": host}
        if "host_names" in data:
            group["names"] = data.pop("host_names")
        data["hosts"] = [group | ({} if hosts is None else {"count": hosts})]
    elif hosts is not None and not isinstance(hosts, (list, tuple)):
        raise ValueError("`hosts` says how many; add `host: 8 x H100` to say what they are")
    if isinstance(data.get("network"), str):
        data["network"] = network_from_text(str(data["network"]))
    return data


def host_from_text(host: Any) -> Any:
    """Read "8 x H100" or "dgx-h100"."""
    if not isinstance(host, str):
        return host
    match = _HOST_TEXT.match(host)
    return {"gpu": match.group(2), "gpus": int(match.group(1))} if match else {"model": host}


def network_from_text(text: str) -> JsonObject:
    """Read "rail-optimized NDR", "leaf-spine 400GbE 3:1" or "torus 4x4x4"."""
    network: JsonObject = {}
    link = []
    for word in text.split():
        if word.lower() in TOPOLOGIES:
            network["topology"] = word.lower()
        elif re.fullmatch(r"-?\d+(\.\d+)?:-?\d+(\.\d+)?", word):
            network["oversubscription"] = word
        elif re.fullmatch(r"\d+(x\d+)+", word):
            network["shape"] = [int(n) for n in word.split("x")]
        else:
            link.append(word)
    if "topology" not in network:
        raise ValueError(f'network "{text}" names no topology; known: {", ".join(TOPOLOGIES)}')
    if "oversubscription" in network and "oversubscription" not in TOPOLOGIES[str(network["topology"])].model_fields:
        raise ValueError(f'network "{text}": a {network["topology"]} has no oversubscription; leave the ratio out')
    return network | ({"link": " ".join(link)} if link else {})


def _host_with(catalog: Catalog, gpu_name: str, gpus: int | None) -> HostModel:
    """Return the catalogue's first host with that GPU, preferring one with as many."""
    gpu = catalog.gpu(gpu_name)
    hosts = [h for h in catalog.parts("host") if isinstance(h, HostModel) and catalog.gpu(h.gpu) == gpu]
    exact = [h for h in hosts if h.num_gpus == gpus]
    if exact or hosts:
        return (exact or hosts)[0]
    # No host of the catalogue has this GPU: a two-socket server, whose GPUs use what links of their own they have.
    joined = "nvswitch" if catalog.scale_up_Bps(gpu) else "pcie"
    base = catalog.host("h100-pcie-4")
    return base.model_copy(update={"name": f"{joined}-server", "price_usd": None, "scale_up_topology": joined})


def _price(catalog: Catalog, base: HostModel, share: float, nic: str | None, nics: int) -> float | None:
    """Return the price of so much of a host, with these cards instead of its own where its price includes them."""
    if base.price_usd is None or not base.price_includes_nics or base.nic is None:
        return None if base.price_usd is None else base.price_usd * share
    own, card = catalog.nic(base.nic).price_usd, catalog.nic(nic).price_usd if nic else 0.0
    swapped = 0.0 if own is None or card is None else nics * card - base.num_nics * share * own
    return base.price_usd * share + swapped
