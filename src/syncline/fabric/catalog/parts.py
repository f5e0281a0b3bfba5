"""The kinds of part a cluster is made of, each with the source of its numbers.

All rates are one-directional bytes per second (a vendor's "900 GB/s NVLink" is 450 GB/s here); compute rates are dense,
never with sparsity. Quantities may be written as text in a data file: `rate_Bps: 400Gbps`, `memory_bytes: 80GB`.

    >>> lane = {"lane_raw_Bps": "4GB/s", "lane_usable_Bps": "3.4GB/s"}
    >>> Pcie.model_validate({"name": "PCIe5 x16", "generation": 5, "num_lanes": 16, "source": "...", **lane}).raw_Bps
    64000000000.0
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from syncline.describe import units
from syncline.describe.quantity import Metres, PositiveRate, Seconds, Size, Strict

Time = Annotated[Seconds, Field(le=10)]
Flops = Annotated[float, Field(gt=0)]
Money = Annotated[float, Field(ge=0)]
Power = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Name = Annotated[str, Field(min_length=1, max_length=80)]
Text = Annotated[str, Field(min_length=1)]

Family = Literal["infiniband", "ethernet", "efa", "slingshot", "omnipath", "wan"]
Transport = Literal["infiniband", "roce", "efa", "cxi", "psm", "tcpx", "tcpxo", "tcp"]
Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4"]


class EstimatedFigure(Strict):
    """A figure that nobody publishes, and from where to where it may lie."""

    figure: Name
    low: float
    high: float

    @model_validator(mode="before")
    @classmethod
    def _read_ends(cls, given: object) -> object:
        """Read both ends in the unit that the figure's name ends with."""
        if not isinstance(given, dict):
            return given
        name = str(given.get("figure"))
        read = units.time if name.endswith("_s") else units.rate if name.endswith("_Bps") else float
        ends = {end: read(given[end]) for end in ("low", "high") if isinstance(given.get(end), str)}
        return given | ends


class Part(Strict):
    """A named thing of the catalogue and where its numbers come from."""

    name: Name
    aliases: tuple[Name, ...] = ()
    source: Text
    notes: str = ""
    available: str = Field(
        default="", pattern=r"^(\d{4}-\d{2})?$", description="the month from which it can be bought; empty: it can"
    )
    estimates: tuple[EstimatedFigure, ...] = Field(default=(), description="figures that its vendor does not publish")

    @field_validator("estimates", mode="before")
    @classmethod
    def _read_estimates(cls, given: object) -> object:
        """Read `{latency_s: [250ns, 1us]}`."""
        if not isinstance(given, Mapping):
            return given
        return [{"figure": name, "low": low, "high": high} for name, (low, high) in given.items()]

    @model_validator(mode="after")
    def _estimates_hold(self) -> Self:
        for each in self.estimates:
            value = getattr(self, each.figure, None)
            if not isinstance(value, (int, float)):
                raise ValueError(f"estimates: {each.figure} is not a figure of this part")
            if not each.low <= value <= each.high:
                raise ValueError(f"estimates: {each.figure} is {value:g}, outside {each.low:g} to {each.high:g}")
        return self


class PricedPart(Part):
    """A part that one can buy; a price says who says so. It is an estimate unless somebody quoted or paid it."""

    price_usd: Money | None = None
    price_source: str = ""
    price_is_estimate: bool = True

    @model_validator(mode="after")
    def _price_has_source(self) -> PricedPart:
        if self.price_usd is not None and not self.price_source:
            raise ValueError("a price needs price_source")
        return self


class DenseFlops(Strict):
    """Peak dense operations per second by precision; None where the part has no such unit.

    Matrix units where the part has them for that precision, vector units otherwise.
    """

    fp64: Flops | None = None
    fp32: Flops | None = None
    tf32: Flops | None = None
    fp16: Flops | None = None
    bf16: Flops | None = None
    fp8: Flops | None = None
    fp4: Flops | None = None


class Gpu(PricedPart):
    """One accelerator as it is sold; `num_dies` is how many devices software sees in it."""

    vendor: Literal["nvidia", "amd", "google", "intel", "amazon"]
    architecture: str
    form_factor: str
    compute_capability: str = ""
    sm: Count = 0
    num_dies: Count = 1
    memory_bytes: Size
    memory_Bps: PositiveRate
    flops: DenseFlops
    power_w: Power
    scale_up: str | None = None
    num_scale_up_links: Count = 0
    pcie: str

    def flops_at(self, precision: Precision) -> float | None:
        """Return peak dense operations per second, or None where the part has no such unit."""
        value: float | None = getattr(self.flops, precision)
        return value

    @model_validator(mode="after")
    def _links_have_kind(self) -> Gpu:
        if (self.scale_up is None) != (self.num_scale_up_links == 0):
            raise ValueError("scale_up and num_scale_up_links go together")
        return self


class ScaleUp(Part):
    """One link of a scale-up network (NVLink, xGMI, ICI, C2C): rate per link and direction."""

    family: Literal["nvlink", "xgmi", "ici", "c2c"]
    link_Bps: PositiveRate
    latency_s: Time
    nccl_link_Bps: PositiveRate | None = Field(default=None, description="what NCCL's search assumes for one link")


class ScaleUpSwitch(Part):
    """A switch chip of a scale-up network (NVSwitch)."""

    link: str
    num_ports: Count
    latency_s: Time
    max_domain_gpus: Count
    in_switch_reduction: bool = False


class Pcie(Part):
    """A PCI Express connection of one generation and width."""

    generation: Annotated[int, Field(ge=1, le=7)]
    num_lanes: Annotated[int, Field(ge=1, le=32)]
    lane_raw_Bps: PositiveRate
    lane_usable_Bps: PositiveRate
    latency_s: Time = 150e-9

    @property
    def raw_Bps(self) -> float:
        """Signalling rate of all lanes, one direction, as data sheets count it (PCIe5 x16: 64 GB/s)."""
        return self.lane_raw_Bps * self.num_lanes

    @property
    def usable_Bps(self) -> float:
        """What large device-to-host copies reach, one direction."""
        return self.lane_usable_Bps * self.num_lanes


class LinkType(Part):
    """What runs over one network port: data rate per direction, and what may carry it."""

    family: Family
    transport: Transport
    rate_Bps: PositiveRate
    num_lanes: Count = 0
    rdma: bool
    roce: bool = False
    mtu_bytes: Size
    wire: str | None = Field(default=None, description="the link type whose ports and cables carry this one")
    usual_switch: str | None = Field(default=None, description="the switch taken when a cluster names none")


class Nic(PricedPart):
    """A network card: its ports, what they can run, and the slot it needs."""

    vendor: str
    num_ports: Annotated[int, Field(ge=1, le=8)]
    links: Annotated[tuple[str, ...], Field(min_length=1)]
    max_Bps: PositiveRate = Field(description="line rate of all ports together, one direction")
    pcie: str
    latency_s: Time
    power_w: Power
    overhead_s: Time | None = Field(
        default=None, description="a sender's own time for one more message of a round (LogGP's o)"
    )
    gap_s: Time | None = Field(default=None, description="least time between two messages of the card (LogGP's g)")
    message_source: str = ""
    compresses: float = Field(default=1.0, ge=1.0, description="times fewer bytes of gradients that it sends")

    @model_validator(mode="after")
    def _messages_have_source(self) -> Nic:
        if (self.overhead_s, self.gap_s) != (None, None) and not self.message_source:
            raise ValueError("overhead_s and gap_s need message_source")
        return self


class SwitchMode(Strict):
    """One way to use a switch: so many ports of this link type."""

    link: str
    num_ports: Annotated[int, Field(ge=1, le=4096)]


class Switch(PricedPart):
    """A network switch; every mode is the whole box at one port rate. Power is without optics.

    Latency is port to port, cut-through, unloaded, with forward error correction. `reconfiguration_s` makes it an
    optical circuit switch: it forwards light, not packets.
    """

    vendor: str
    asic: str = ""
    modes: Annotated[tuple[SwitchMode, ...], Field(min_length=1)]
    buffer_bytes: Size | None = None
    latency_s: Time
    power_w: Power
    power_kind: Literal["typical", "max"]
    adaptive_routing: bool = False
    in_switch_reduction: bool = False
    reduction_bytes: Size | None = Field(default=None, description="memory for sums that are under way")
    reconfiguration_s: Time | None = None
    co_packaged: bool = Field(default=False, description="its ports are optical: no modules are plugged in")


class Cable(Part):
    """A cable with its two ends (module or plug); price and power are per end of one port at `rate_Bps`."""

    kind: Literal["dac", "aec", "aoc", "multimode", "single_mode", "twisted_pair", "wan"]
    rate_Bps: PositiveRate
    families: tuple[Family, ...]
    reach_m: Metres
    price_per_end_usd: Money
    price_per_m_usd: Money
    price_source: Text
    price_is_estimate: bool = True
    power_per_end_w: Power
    latency_s: Time = Field(default=0.0, description="retimers and modules of both ends together")
    propagation_s_per_m: Time = 5e-9
    co_packaged_ends: int = Field(default=0, ge=0, le=2, description="ends that plug into a co-packaged switch")

    def price_usd(self, length_m: float) -> float:
        """Return the price of this cable with both its ends."""
        return 2 * self.price_per_end_usd + self.price_per_m_usd * length_m

    def delay_s(self, length_m: float) -> float:
        """Return the time of flight, with the modules of both ends."""
        return self.latency_s + self.propagation_s_per_m * length_m

    @property
    def power_w(self) -> float:
        """Power of both ends."""
        return 2 * self.power_per_end_w


class Cpu(Strict):
    """The processor of a host, with the numbers by which NCCL knows it (`cpu` of its topology file)."""

    vendor: Literal["intel", "amd", "nvidia"]
    model: str
    nccl_arch: Literal["x86_64", "arm64", "ppc64"] = "x86_64"
    nccl_vendor: str = ""
    nccl_family: Count = 0
    nccl_model: Count = 0
    socket_Bps: PositiveRate | None = Field(default=None, description="between two sockets, one direction, all links")
    socket_latency_s: Time = 120e-9


Topology = Literal["nvswitch", "mesh", "ring", "cube_mesh", "pcie", "none", "torus"]


class HostModel(PricedPart):
    """One server, compute tray or cloud instance: its accelerators, its network cards and how they hang together."""

    gpu: str
    num_gpus: Annotated[int, Field(ge=1, le=64)]
    scale_up_topology: Topology
    scale_up_switch: str | None = None
    num_scale_up_switches: Count = Field(default=0, description="chips of the whole scale-up domain, first tier")
    scale_up_domain_gpus: Count = Field(default=0, description="GPUs of one scale-up domain; 0 = those of this host")
    rack_gpus: Count = Field(default=0, description="GPUs of a rack that is sold as one; 0 = hosts are racked by power")
    nic: str | None
    num_nics: Annotated[int, Field(ge=0, le=64)]
    ports_per_nic: Annotated[int, Field(ge=1, le=8)] = 1
    link: str | None = Field(default=None, description="what each used port runs unless the cluster says otherwise")
    bond: bool = False
    num_sockets: Annotated[int, Field(ge=1, le=8)]
    cpu: Cpu
    gpu_pcie: str
    gpus_per_pcie_switch: Count = Field(default=0, description="0 = on the root complex")
    nics_per_pcie_switch: Count = Field(default=0, description="0 = on the root complex")
    nic_path: Literal["PIX", "PXB", "PHB", "SYS", "C2C"]
    nic_path_cap_Bps: PositiveRate | None = Field(default=None, description="measured cap of GPU to NIC, one direction")
    nic_path_cap_source: str = ""
    price_includes_nics: bool = True
    price_per_hour_usd: Money | None = None
    price_per_hour_source: str = ""
    power_w: Power
    power_kind: Literal["typical", "max"] = "max"

    @property
    def num_ports(self) -> int:
        """Network ports of the compute fabric."""
        return self.num_nics * self.ports_per_nic

    @model_validator(mode="after")
    def _whole(self) -> HostModel:
        if (self.nic is None) != (self.num_nics == 0) or (self.nic is None) != (self.link is None):
            raise ValueError("nic, link and num_nics go together")
        if (self.scale_up_switch is None) != (self.num_scale_up_switches == 0):
            raise ValueError("scale_up_switch and num_scale_up_switches go together")
        if self.num_sockets > 1 and self.cpu.socket_Bps is None:
            raise ValueError("a host of several sockets needs cpu.socket_Bps")
        if self.nic_path_cap_Bps is not None and not self.nic_path_cap_source:
            raise ValueError("nic_path_cap_Bps needs nic_path_cap_source")
        if self.price_per_hour_usd is not None and not self.price_per_hour_source:
            raise ValueError("price_per_hour_usd needs price_per_hour_source")
        return self
