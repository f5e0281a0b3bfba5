"""The rules of the environment lint: for each, when it applies, what it means and what to do.

A rule's `when` returns the offending settings as text. Sources are the NCCL user guide and the issues named; see
`syncline.auditing.environment.lint` for how they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from syncline.errors import SynclineError
from syncline.fabric import Fabric
from syncline.finding import Severity
from syncline.sim.nccl.belief import ALGORITHMS, PROTOCOLS
from syncline.sim.nccl.choose import read_list
from syncline.sim.nccl.describe import from_fabric

RDMA = ("infiniband", "roce", "efa")
DOCS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"


@dataclass(frozen=True)
class JobSite:
    """What is known of where the job runs; None where it is unknown.

    `network` is "infiniband", "roce", "efa", "tcp" or another kind of `sim.nccl`; `nccl` is the release as (2, 27).
    """

    network: str | None = None
    nvswitch: bool | None = None
    num_ranks: int | None = None
    num_nics: int | None = None
    rails: bool | None = None
    nccl: tuple[int, int] | None = None

    @classmethod
    def of(cls, fabric: Fabric) -> JobSite:
        """Return what a cluster description says; nothing of a cluster that does not run NCCL."""
        try:
            system = from_fabric(fabric)
        except SynclineError:
            return cls()
        is_given = bool(fabric.spec.software.get("nccl"))
        return cls(
            network="efa" if system.network.startswith("efa") else system.network,
            nvswitch=system.has_nvswitch,
            num_ranks=system.num_ranks,
            num_nics=system.num_nics,
            rails=bool((fabric.devices.rail[fabric.nics] >= 0).any()) if len(fabric.nics) else False,
            nccl=system.nccl if is_given else None,
        )


@dataclass(frozen=True)
class EnvironmentCase:
    """One environment at one site, with the questions the rules ask of it."""

    env: Mapping[str, str]
    site: JobSite

    def get(self, name: str) -> str:
        return self.env.get(name, "").strip()

    def on(self, name: str) -> bool:
        return self.get(name) not in ("", "0")

    def number(self, name: str) -> int | None:
        try:
            return int(self.get(name), 0)
        except ValueError:
            return None

    def since(self, *release: int) -> bool:
        return self.site.nccl is None or self.site.nccl >= release

    @property
    def rdma(self) -> bool:
        return self.site.network in RDMA

    @property
    def num_ranks(self) -> int:
        return self.number("WORLD_SIZE") or self.number("SLURM_NTASKS") or self.site.num_ranks or 1


@dataclass(frozen=True)
class VariableRule:
    """One thing to look for: `when` returns the offending settings as text, or "" where all is well."""

    id: str
    when: Callable[[EnvironmentCase], str]
    meaning: str
    fix: str
    severity: Severity = Severity.WARNING
    confidence: float = 0.9
    expected: str = ""
    reference: str = DOCS


def _set(*names: str, to: Callable[[str], bool] = bool) -> Callable[[EnvironmentCase], str]:
    """Say which of these variables are set to something that `to` dislikes."""
    return lambda case: " ".join(f"{n}={case.get(n)}" for n in names if n in case.env and to(case.get(n)))


def _is_one(value: str) -> bool:
    return value not in ("", "0")


def _prefixed(prefix: str) -> Callable[[EnvironmentCase], str]:
    return lambda case: " ".join(f"{n}={case.get(n)}" for n in sorted(case.env) if n.startswith(prefix))


def _both(
    condition: Callable[[EnvironmentCase], bool], then: Callable[[EnvironmentCase], str]
) -> Callable[[EnvironmentCase], str]:
    return lambda case: then(case) if condition(case) else ""


def _on_efa(case: EnvironmentCase) -> bool:
    return case.site.network == "efa" or any(n.startswith(("FI_EFA", "OFI_NCCL")) for n in case.env)


def _bad_list(case: EnvironmentCase) -> str:
    bad = []
    for name, known in (("NCCL_ALGO", ALGORITHMS), ("NCCL_PROTO", PROTOCOLS)):
        try:
            read_list(case.get(name), known, "all_reduce", name)
        except SynclineError:
            bad.append(f"{name}={case.get(name)}")
    return " ".join(bad)


def _wrong_interface(case: EnvironmentCase) -> str:
    names = case.get("NCCL_SOCKET_IFNAME")
    if names.startswith("^"):
        return ""
    wrong = [n for n in names.lstrip("=").split(",") if n.startswith(("lo", "docker", "veth", "br-", "virbr", "cni"))]
    return f"NCCL_SOCKET_IFNAME={names}" if wrong and case.num_ranks > 8 else ""


def _ambiguous_hca(case: EnvironmentCase) -> str:
    """`mlx5_1` without "=" is a prefix, and also takes mlx5_10 to mlx5_19."""
    value = case.get("NCCL_IB_HCA")
    names = value.split(":")[0] if value.count(":") == 1 and "," not in value else value
    parts = [part.split(":")[0] for part in names.split(",")]
    if not value or value[0] in "=^" or (case.site.num_nics or 0) < 1:
        return ""
    short = [p for p in parts if p and p[-1].isdigit() and any(q != p and q.startswith(p) for q in parts)]
    risky = short or [p for p in parts if p.endswith("_1") and (case.site.num_nics or 0) > 10]
    return f"NCCL_IB_HCA={value}" if risky else ""


def _few_channels(case: EnvironmentCase) -> str:
    limit = case.number("NCCL_MAX_NCHANNELS")
    return (
        f"NCCL_MAX_NCHANNELS={limit}" if limit is not None and 0 < limit < 4 and case.site.nvswitch is not False else ""
    )


def _odd_timeout(case: EnvironmentCase) -> str:
    value = case.number("NCCL_IB_TIMEOUT")
    return f"NCCL_IB_TIMEOUT={value}" if value is not None and (value < 14 or value > 23) else ""


def _disabled_rdma(case: EnvironmentCase) -> str:
    settings = [f"NCCL_IB_DISABLE={case.get('NCCL_IB_DISABLE')}"] if case.on("NCCL_IB_DISABLE") else []
    if case.get("NCCL_NET").lower() == "socket":
        settings.append(f"NCCL_NET={case.get('NCCL_NET')}")
    return " ".join(settings)


_REMOVED = {
    "NCCL_SINGLE_RING_THRESHOLD": ((2, 3), "NCCL_ALGO or a tuner"),
    "NCCL_IB_CUDA_SUPPORT": ((2, 4), "NCCL_NET_GDR_LEVEL"),
    "NCCL_IB_GDR_LEVEL": ((2, 4), "NCCL_NET_GDR_LEVEL"),
    "NCCL_LL_THRESHOLD": ((2, 5), "NCCL_PROTO or a tuner"),
    "NCCL_TREE_THRESHOLD": ((2, 5), "NCCL_ALGO or a tuner"),
    "NCCL_RINGS": ((2, 5), "NCCL_GRAPH_FILE"),
}
"""Variables of NCCL that a release took away, and what came instead (NCCL user guide, environment variables)."""
_RENAMED = {
    "NCCL_MAX_NRINGS": ("NCCL_MAX_NCHANNELS", "NCCL 2.5"),
    "NCCL_MIN_NRINGS": ("NCCL_MIN_NCHANNELS", "NCCL 2.5"),
    "NCCL_BLOCKING_WAIT": ("TORCH_NCCL_BLOCKING_WAIT", "PyTorch 2.2"),
    "NCCL_ASYNC_ERROR_HANDLING": ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "PyTorch 2.2"),
    "NCCL_DESYNC_DEBUG": ("TORCH_NCCL_DESYNC_DEBUG", "PyTorch 2.2"),
    "TORCH_NCCL_TRACE_BUFFER_SIZE": ("TORCH_FR_BUFFER_SIZE", "PyTorch 2.8"),
    "TORCH_NCCL_TRACE_CPP_STACK": ("TORCH_FR_CPP_STACK", "PyTorch 2.8"),
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": ("TORCH_FR_DUMP_TEMP_FILE", "PyTorch 2.8"),
}
"""Old names, the new ones, and since which release."""


def _removed(case: EnvironmentCase) -> str:
    return "; ".join(
        f"{name}={case.get(name)} is gone since NCCL {since[0]}.{since[1]} (today {instead})"
        for name, (since, instead) in _REMOVED.items()
        if name in case.env and case.since(*since)
    )


def _deprecated(case: EnvironmentCase) -> str:
    found = [f"{old}={case.get(old)} is {new} since {since}" for old, (new, since) in _RENAMED.items()
             if old in case.env and new not in case.env]  # fmt: skip
    return "; ".join(found)


_LEFT = "Left from debugging: it switches a fast path off for every run. "
RULES: tuple[VariableRule, ...] = (
    VariableRule("nccl.env.rdma-off", _both(lambda c: c.rdma, _disabled_rdma),
          "NCCL is set to use TCP sockets although the cluster has RDMA: several times slower between hosts.",
          "Unset it.", Severity.CRITICAL, 0.95, "RDMA in use"),
    VariableRule("nccl.env.rdma-off-unknown", _both(lambda c: c.site.network is None, _disabled_rdma),
          _LEFT + "Right only where there is no RDMA at all.", "Unset it where the hosts have RDMA NICs.",
          confidence=0.6),
    VariableRule("nccl.env.p2p-off", _set("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", to=_is_one),
          _LEFT + "GPUs of one host then talk through shared memory or the NIC instead of NVLink.", "Unset it.",
          Severity.CRITICAL, 0.9),
    VariableRule("nccl.env.nvls-off",
          _both(lambda c: c.site.nvswitch is not False, _set("NCCL_NVLS_ENABLE", to=lambda v: v == "0")),
          "NVLink SHARP is off: all-reduce inside a host loses about a quarter of its bandwidth on Hopper and later.",
          "Unset it, once the fabric manager is healthy.", confidence=0.7,
          reference="https://github.com/NVIDIA/nccl/issues/1562"),
    VariableRule("nccl.env.gid-index",
          _both(lambda c: c.since(2, 21), _set("NCCL_IB_GID_INDEX", to=lambda v: v != "-1")),
          "A forced GID index breaks on any host whose table differs; since 2.21 NCCL finds the RoCE v2 entry itself.",
          "Unset it (NCCL 2.21 or later); steer it with NCCL_IB_ROCE_VERSION_NUM or NCCL_IB_ADDR_RANGE if need be.",
          confidence=0.7, expected="not set"),
    VariableRule("nccl.env.ring-forced",
          _both(lambda c: c.site.nvswitch is not False, _set("NCCL_ALGO", to=lambda v: v.lower() == "ring")),
          "Ring is forced for every size: NVSwitch hosts lose NVLS inside the host and trees at small sizes.",
          "Unset NCCL_ALGO; steer one size range with a tuner file instead (`syncline nccl`).", confidence=0.8),
    VariableRule("nccl.env.protocol-forced",
          _set("NCCL_PROTO", to=lambda v: bool(v) and not v.startswith("^") and ";" not in v),
          "One protocol is forced for every size: LL halves large messages, Simple slows small ones, LL128 corrupts "
          "data where 128-byte writes are not kept whole.",
          "Unset NCCL_PROTO unless the vendor of the plugin asks for it.", confidence=0.6),
    VariableRule("nccl.env.bad-value", _bad_list, "NCCL cannot read this list and falls back or stops.",
          "Use names such as Ring, Tree, NVLS and LL, LL128, Simple.", Severity.CRITICAL, 0.9),
    VariableRule("nccl.env.obsolete", _removed,
          "This release of NCCL does not read it, and readers believe that it does something.",
          "Remove it.", confidence=0.95),
    VariableRule("nccl.env.deprecated", _deprecated,
          "The library still reads the old name and warns; a later release will not.",
          "Use the new name, or both where older releases run too.", confidence=0.9),
    VariableRule("nccl.env.gdr-level-number",
          _set("NCCL_NET_GDR_LEVEL", "NCCL_P2P_LEVEL", to=lambda v: v.isdigit() and v != "0"),
          "Numeric levels changed their meaning between releases.", "Write the path type: PIX, PXB, PHB or SYS.",
          confidence=0.9, expected="LOC, PIX, PXB, PHB or SYS"),
    VariableRule("nccl.env.gdr-off",
          _set("NCCL_NET_GDR_LEVEL", to=lambda v: v.upper() in ("0", "LOC")),
          "GPUDirect RDMA is off: every byte between hosts is copied through host memory.",
          "Unset it; LOC is only for telling whether GPUDirect is at fault.", Severity.CRITICAL, 0.85),
    VariableRule("nccl.env.debug-to-one-stream",
          _both(lambda c: c.num_ranks > 8 and not c.get("NCCL_DEBUG_FILE"),
                _set("NCCL_DEBUG", to=lambda v: v.upper() in ("INFO", "TRACE"))),
          "Every rank writes INFO to the job's one output: lines interleave and the start slows at scale.",
          "Add NCCL_DEBUG_FILE=/tmp/nccl.%h.%p, or use NCCL_DEBUG=WARN.", confidence=0.9),
    VariableRule("nccl.env.checks-off", _set("NCCL_CHECKS_DISABLE", to=_is_one),
          "Argument checks are off, so that a mismatch hangs instead of naming itself; it saves nothing since 2.1.",
          "Remove it (NCCL_CHECK_POINTERS replaced it)."),
    VariableRule("nccl.env.rdmav-on-efa", _both(_on_efa, _prefixed("RDMAV_")),
          "RDMAV_FORK_SAFE and its kin cost memory registration time on EFA and break huge pages.",
          "Remove them; FI_EFA_FORK_SAFE=1 is the one for old kernels.", confidence=0.8,
          reference="https://github.com/aws/aws-ofi-nccl"),
    VariableRule("nccl.env.efa-device-rdma", _both(_on_efa, _set("FI_EFA_USE_DEVICE_RDMA")),
          "Since libfabric 1.18 the provider decides this; a forced value breaks newer instance types.",
          "Remove it.", confidence=0.7, reference="https://github.com/aws/aws-ofi-nccl"),
    VariableRule("nccl.env.tuned-on-efa",
          _both(_on_efa, _set("NCCL_BUFFSIZE", "NCCL_MIN_NCHANNELS", "NCCL_MIN_CTAS")),
          "aws-ofi-nccl brings its own tuner and topology; buffer size and channel counts fight it.",
          "Remove them and measure.", confidence=0.7, reference="https://github.com/aws/aws-ofi-nccl"),
    VariableRule("nccl.env.socket-threads-on-rdma",
          _both(lambda c: c.rdma, _set("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD")),
          "These shape TCP transfers only; with RDMA in use they do nothing, and NCCL no longer falls back by design.",
          "Remove them.", confidence=0.8),
    VariableRule("nccl.env.traffic-class-missing",
          _both(lambda c: c.site.network == "roce" and "NCCL_IB_TC" not in c.env, lambda c: "NCCL_IB_TC not set"),
          "RoCE traffic goes out with DSCP 0, in the default class, which most fabrics do not protect by PFC/ECN.",
          "Set NCCL_IB_TC to 4 x the DSCP of the lossless class (DSCP 26: 104 or 106), as the switches are configured.",
          confidence=0.6, expected="NCCL_IB_TC of the lossless class",
          reference="https://github.com/NVIDIA/nccl/issues/378"),
    VariableRule("nccl.env.wrong-interface", _wrong_interface,
          "The loopback and container bridges reach no other host: the bootstrap hangs or is refused.",
          "Name the interface that the hosts share, such as NCCL_SOCKET_IFNAME=eth0.", Severity.CRITICAL, 0.9),
    VariableRule("nccl.env.hca-prefix", _ambiguous_hca,
          "NCCL_IB_HCA matches by prefix: mlx5_1 takes mlx5_10 to mlx5_19 too.",
          'Begin the value with "=" for exact names: NCCL_IB_HCA==mlx5_0,mlx5_1.', confidence=0.8),
    VariableRule("nccl.env.few-channels", _few_channels,
          "So few channels cannot fill NVLink or more than one NIC.", "Unset it.", confidence=0.85),
    VariableRule("nccl.env.ib-timeout", _odd_timeout,
          "The wait is 4.096 us x 2^value for each of 7 tries: below 14 a busy switch ends the job, above 23 a dead "
          "peer hangs it for many minutes.", "Use 18 to 22 (default 20).", confidence=0.85),
    VariableRule("nccl.env.relaxed-ordering-off", _set("NCCL_IB_PCI_RELAXED_ORDERING", to=lambda v: v == "0"),
          "Without relaxed ordering, PCIe on AMD hosts and in virtual machines reaches a fraction of the NIC.",
          "Unset it (2: automatic).", confidence=0.7),
    VariableRule("nccl.env.mismatch-ignored", _set("NCCL_IGNORE_NET_MISMATCH", "NCCL_IGNORE_DISABLED_P2P", to=_is_one),
          "It silences NCCL's own finding that a host has lost a NIC or its peer-to-peer path.",
          "Repair the host, then unset it.", confidence=0.85),
    VariableRule("nccl.env.pxn-off-on-rails", _both(lambda c: bool(c.site.rails), _set("NCCL_PXN_DISABLE", to=_is_one)),
          "Without PXN, traffic to another rail crosses the spine instead of NVLink.", "Unset it.", confidence=0.75),
    VariableRule("nccl.env.cross-nic-on-rails",
          _both(lambda c: bool(c.site.rails), _set("NCCL_CROSS_NIC", to=lambda v: v == "1")),
          "Rings may then leave on one rail and enter on another: on a rail-optimized network they cross the spine.",
          "Set NCCL_CROSS_NIC=0 where rails are separate, or leave it at 2.", confidence=0.75),
    VariableRule("nccl.env.blocking-debug", _set("CUDA_LAUNCH_BLOCKING", "TORCH_NCCL_BLOCKING_WAIT", to=_is_one),
          _LEFT + "Kernels and collectives no longer overlap.", "Unset it for production runs.", confidence=0.9),
    VariableRule("nccl.env.torch-debug", _set("TORCH_DISTRIBUTED_DEBUG", to=lambda v: v.upper() == "DETAIL"),
          "DETAIL adds a consistency collective before every collective.", "Set INFO or OFF for production runs.",
          confidence=0.9),
)  # fmt: skip
