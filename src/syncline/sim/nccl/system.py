"""What the NCCL model needs to know of one job: hardware, network kind and software, as one frozen record.

    NcclSystem(gpu="h100", num_hosts=4, gpus_per_host=8, num_nics=8, nic_rate_Bps=50e9, network="infiniband")

Everything that is not given takes the documented default of its GPU generation (`data/nccl_gpus.yaml`) or network kind
(`data/nccl_networks.yaml`). `from_fabric` in `describe.py` derives the record from a built `Fabric`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from syncline.errors import SimulationError
from syncline.sim.bound import Bound
from syncline.sim.nccl.constants import GpuGeneration, NcclNetwork, gpu_facts, network_facts

#: Path from a GPU to its NIC, nearest first, as NCCL names them.
PATHS = ("PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
#: The newest release whose tuning table is known; the default when a description names none.
DEFAULT_NCCL = (2, 27)
#: The largest job for which the point alone is offered; past it read the interval.
MAX_POINT_HOSTS = 64


@dataclass(frozen=True)
class NcclSystem:
    """One job as NCCL meets it: `num_hosts` x `gpus_per_host` ranks, their NVLink, NICs, network kind and software."""

    gpu: str
    num_hosts: int
    gpus_per_host: int
    num_nics: int = 0
    nic_rate_Bps: float = 0.0
    network: str = "infiniband"
    nvlink_Bps: float | None = None
    nvswitch: bool | None = None
    nvlink_domain: int = 0
    pcie_Bps: float | None = None
    path: str = "PIX"
    path_cap_Bps: float | None = None
    reported_latency_s: float | None = None
    cpu: str = "intel"
    nccl: tuple[int, int] = DEFAULT_NCCL
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    tuner: str = ""
    gpus_per_process: int = 1
    collnet: bool = False
    call_us: float = 0.0
    assumed: tuple[str, ...] = ()
    ring_cap_Bps: float = float("inf")  # what one ring through all hosts gets where racks, pods or sites are thin
    pairs_cap_Bps: float = float("inf")  # what an island gets for an all-to-all, for the same reason
    long_us: float = 0.0  # one way over a line between sites
    far_us: float = 0.0  # one way between the two sites that are farthest apart
    tree_lines: int = 0  # such lines on the longest way to the root of a tree
    peer_access: bool = True  # between cards without NVLink; drivers of GeForce refuse it
    uplink_cards: int = 1  # that share one switch's way to host memory
    port_Bps: float = 0.0  # line rate of the slowest port in use, where rings do not share one; 0: `nic_rate_Bps`
    limit: str = ""  # which level caps the two
    ranks: int = 0  # of the whole job, where hosts have different numbers of them; 0: `gpus_per_host` on each
    bounds: Mapping[str, Bound] = field(default_factory=dict, hash=False)  # by operation: no run beats it

    def __post_init__(self) -> None:
        if self.num_hosts < 1 or self.gpus_per_host < 1:
            raise SimulationError(f"a job needs hosts and GPUs, not {self.num_hosts} x {self.gpus_per_host}.")
        if self.path not in PATHS:
            raise SimulationError(f'GPU-NIC path "{self.path}" is not one of {", ".join(PATHS)}.')
        if self.num_islands > 1 and (self.num_nics < 1 or self.nic_rate_Bps <= 0):
            raise SimulationError(
                f"{self.num_hosts} hosts need NICs with a rate to reach one another.",
                hint="Give num_nics and nic_rate_Bps.",
            )

    @cached_property
    def num_ranks(self) -> int:
        """Ranks in the job."""
        return self.ranks or self.num_hosts * self.gpus_per_host

    @cached_property
    def hosts_per_island(self) -> int:
        """Hosts that share one NVLink domain: 1 for a DGX, 18 for an NVL72 rack of 4-GPU hosts."""
        return -(-self.num_hosts // self.num_islands)

    @cached_property
    def num_islands(self) -> int:
        """NCCL's "hosts": NVLink domains, because inside one everything is NVLink."""
        domain = max(self.nvlink_domain, self.gpus_per_host)
        return -(-self.num_hosts // max(1, domain // self.gpus_per_host))

    @cached_property
    def ranks_per_island(self) -> int:
        """Ranks in one NVLink domain (the fullest one)."""
        return min(self.num_ranks, self.gpus_per_host * self.hosts_per_island)

    @cached_property
    def facts(self) -> GpuGeneration:
        """Facts of the GPU generation."""
        return gpu_facts(self.gpu)

    @property
    def net(self) -> NcclNetwork:
        """Constants of the network kind."""
        return network_facts(self.network)

    @property
    def nvlink_GBps(self) -> float:
        """NVLink bandwidth of one GPU in one direction as NCCL counts it; 0 where there is none."""
        return self.facts.nvlink_GBps if self.nvlink_Bps is None else self.nvlink_Bps / 1e9

    @property
    def has_nvswitch(self) -> bool:
        """Whether GPUs meet in an NVSwitch rather than a mesh of NVLinks."""
        return self.facts.nvswitch if self.nvswitch is None else self.nvswitch

    @property
    def pcie_GBps(self) -> float:
        """PCIe rate of a NIC as NCCL counts it (Gen4 x16 24, Gen5 x16 48)."""
        return self.facts.pcie_GBps if self.pcie_Bps is None else self.pcie_Bps / 1e9

    @cached_property
    def nic_GBps(self) -> float:
        """What one NIC can carry from its GPU: the least of line rate, usable PCIe and the measured path cap."""
        return min(self.nic_rate_Bps / 1e9, self.port_GBps)

    @property
    def port_GBps(self) -> float:
        """What its slowest NIC carries for all rings that share it."""
        cap = self.path_cap_Bps / 1e9 if self.path_cap_Bps else self._default_cap_GBps()
        return min((self.port_Bps or self.nic_rate_Bps) / 1e9, self.usable_pcie_GBps, cap)

    @property
    def usable_pcie_GBps(self) -> float:
        """What large copies over PCIe reach: 0.80 of raw to Gen4, 0.866 on Gen5, where NCCL counts 0.75."""
        return self.pcie_GBps * (0.866 if self.pcie_GBps > 30 else 0.80) / 0.75

    def _default_cap_GBps(self) -> float:
        """Cap of a NIC that hangs off an AMD root complex: 80 % of PCIe (19.2 GB/s of 24, fitted on one such host)."""
        return 0.8 * self.pcie_GBps if self.path == "PHB" and self.cpu == "amd" else float("inf")

    @property
    def believed_nic_GBps(self) -> float:
        """What NCCL thinks one NIC carries: it does not know of path caps."""
        return min(self.nic_rate_Bps / 1e9, self.pcie_GBps)

    @property
    def reported_us(self) -> float:
        """Latency the network plugin reports to NCCL; belief only, the real one is the network kind's."""
        return self.net.reported_us if self.reported_latency_s is None else self.reported_latency_s * 1e6

    @property
    def post_us(self) -> float:
        """NCCL's own allowance for posting to the network: 2 us on AMD hosts, else 1."""
        return 2.0 if self.cpu == "amd" else 1.0

    @property
    def passes_rails(self) -> bool:
        """Whether a message for another rail goes through the local GPU of that rail (PXN)."""
        return self.nccl >= (2, 12) and self.nvlink_GBps > 0 and self.env.get("NCCL_PXN_DISABLE") != "1"
