"""Variables worth setting for NCCL on a cluster: few, each with its reason and what it is expected to change.

NCCL's own documents discourage permanent tuning variables, so only what NCCL cannot find out by itself is set: which
NICs, how rails are joined, the traffic class, how many paths the fabric has, a topology where the machine hides it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from syncline.advice.cloud import CloudProfile, cloud_of
from syncline.advice.host_names import HostNames
from syncline.describe.model import reported
from syncline.fabric import Fabric
from syncline.fabric.bill import model_of_host
from syncline.fabric.catalog import load_catalog
from syncline.sim.nccl.describe import from_fabric
from syncline.sim.nccl.system import NcclSystem

DOCS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_VIRTUAL = ("nd-", "p4", "p5", "p6", "a3", "a4", "vm")
LARGE = 1024
"""Ranks above which a start and a flap cost enough to set time-outs for."""


@dataclass(frozen=True)
class Setting:
    """One line: a variable, its value, why, and what should change; `check` says how a log shows it."""

    name: str
    value: str
    reason: str
    changes: str
    check: str = ""
    source: str = DOCS
    optional: bool = False
    seen: str = ""
    """Where the value was read on a host; what names a thing of the host and was read on none is left to be filled."""

    @reported
    def open(self) -> bool:
        """Say whether the value names a device, interface or file of the host, and no host was read."""
        return names_host(self.name, self.value) and not self.seen

    @property
    def is_set(self) -> bool:
        """Say whether the line is in force; others are comments."""
        return not self.optional and not self.open

    @property
    def line(self) -> str:
        return f"{self.name}={self.value}"


_OF_HOST = frozenset({
    "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_TOPO_FILE", "NCCL_IB_GID_INDEX", "UCX_NET_DEVICES",
    "NCCL_FASTRAK_CTRL_DEV",
    "NCCL_FASTRAK_IFNAME", "NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY", "NCCL_GPUDIRECTTCPX_CTRL_DEV",
    "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME",
})  # fmt: skip


def names_host(name: str, value: str) -> bool:
    """Say whether a variable's value is the name of something on the host; what only excludes names nothing."""
    return name in _OF_HOST and not value.startswith("^")


def recommend(
    fabric: Fabric, *, nccl: str | None = None, ranks: int | None = None, tuned: bool = False,
    host: HostNames | None = None,
) -> tuple[Setting, ...]:  # fmt: skip
    """Return what to set on this cluster; `tuned` says that a tuner file goes with it.

    What names a device, an interface or a file is taken from `host`; without one it is left open.
    """
    system = nccl_system(fabric, nccl, ranks)
    vendor = _vendor(fabric, system)
    named = {setting.name for setting in vendor}
    own = [*_network(fabric, system), *_rails(fabric, system), *_host(fabric, system)]
    found = [*(setting for setting in own if setting.name not in named), *vendor]
    if tuned:
        found += _tuner(system)
    if host is not None:
        found = [_on_host(setting, host, system) for setting in found]
    return (*found, *_watching(system))


def _on_host(setting: Setting, host: HostNames, system: NcclSystem) -> Setting:
    """Return a setting with the names of a host that was read; one whose names are not there stays open."""
    if not names_host(setting.name, setting.value):
        return setting
    rdma, here = f"sys/class/infiniband of {host.source}", host.source
    if setting.name == "NCCL_IB_HCA" and host.nics:
        why = f"{len(host.nics)} NICs of {here} carry the training, in the order of their GPUs."
        return replace(setting, value=f"={','.join(host.nics)}", seen=rdma, reason=why)
    if setting.name == "UCX_NET_DEVICES" and host.nics:
        return replace(setting, value=",".join(f"{nic}:1" for nic in host.nics), seen=rdma)
    if setting.name == "NCCL_IB_GID_INDEX" and host.gid_index is not None:
        return replace(setting, value=str(host.gid_index), seen=f"the GID tables of {here}")
    if setting.name == "NCCL_SOCKET_IFNAME" and host.bootstrap:
        why = f"the bootstrap takes the first interface that is up; {host.bootstrap} carries {here}'s default route."
        return replace(setting, value=f"={host.bootstrap}", seen=f"the default route of {here}", reason=why)
    words = [word for word in setting.value.lstrip("=").split(",") if word]
    there = host.files if setting.value.startswith("/") else frozenset(host.interfaces)
    if set(words) <= there:
        return replace(setting, seen=f"found on {host.source}")
    lost = ", ".join(word for word in words if word not in there)
    return replace(setting, reason=f"{setting.reason} {host.source} has no {lost}.")


def nccl_system(fabric: Fabric, nccl: str | None, ranks: int | None) -> NcclSystem:
    """Return the system that NCCL sees on so many ranks of a cluster, whole hosts at a time."""
    per_host = max(1, fabric.num_gpus // fabric.num_hosts)
    hosts = max(1, -(-ranks // per_host)) if ranks else fabric.num_hosts
    return from_fabric(fabric, num_hosts=min(hosts, fabric.num_hosts), software={"nccl": nccl} if nccl else None)


def _network(fabric: Fabric, system: NcclSystem) -> list[Setting]:
    if system.num_islands < 2 or system.network not in ("infiniband", "roce"):
        return []
    found = [
        Setting("NCCL_IB_HCA", "=DEVICES",
                f"{system.num_nics} NICs a host carry the training; a storage or management NIC among them would set "
                f"the pace. The second = asks for exactly these names, in the order of the rails.",
                f"every ring on the {system.num_nics} NICs, none on others", "NET/IB : Using lists exactly these"),
        Setting("NCCL_SOCKET_IFNAME", "=INTERFACE",
                "the bootstrap takes the first interface that is up, which may be a bridge of a container; the second "
                "= asks for exactly the one that the hosts share.",
                "no hang at start", "Bootstrap : Using names it"),
    ]  # fmt: skip
    if system.network == "roce":
        found += _roce(system)
    if system.num_ranks >= LARGE:
        found.append(
            Setting("NCCL_IB_TIMEOUT", "22",
                    f"at {system.num_ranks:,} ranks a flap of some seconds somewhere is a daily event; 22 waits 17 s "
                    f"for each of 7 tries (the default 20 waits 4 s).",
                    "a flap of seconds costs a pause, not the job", "NCCL_IB_TIMEOUT set by environment to 22")
        )  # fmt: skip
    return found


def _roce(system: NcclSystem) -> list[Setting]:
    found = [
        Setting("NCCL_IB_TC", "106",
                "RoCE traffic without a class has DSCP 0 and rides unprotected; 106 is DSCP 26 (priority 3), the "
                "usual lossless class. Use the class the switches protect.",
                "no drops; out_of_sequence stays still", "NCCL_IB_TC set by environment",
                "https://github.com/NVIDIA/nccl/issues/378"),
        Setting("NCCL_IB_QPS_PER_CONNECTION", "4",
                "switches spread flows by hash; one queue pair is one flow, so few large flows collide.",
                "more even uplinks (Meta saw up to 40 % on all-reduce)", "NCCL_IB_QPS_PER_CONNECTION set",
                "https://github.com/NVIDIA/nccl/issues/1453"),
        Setting("NCCL_IB_SPLIT_DATA_ON_QPS", "0",
                "with several queue pairs, send whole messages in turn instead of a piece of each on all.",
                "fewer, larger messages on the wire", "", "https://github.com/NVIDIA/nccl/issues/1453"),
    ]  # fmt: skip
    if system.nccl < (2, 21):
        found.append(
            Setting("NCCL_IB_GID_INDEX", "3",
                    f"NCCL {system.nccl[0]}.{system.nccl[1]} does not look for the RoCE v2 entry itself; 3 is the "
                    "usual one (show_gids). Unset it from 2.21 on.",
                    "connections instead of status 12", "NCCL_IB_GID_INDEX set by environment to 3")
        )  # fmt: skip
    return found


def _rails(fabric: Fabric, system: NcclSystem) -> list[Setting]:
    if system.num_islands < 2 or not len(fabric.nics) or not (fabric.devices.rail[fabric.nics] >= 0).any():
        return []
    topology = str(getattr(fabric.spec.network, "topology", ""))
    if topology == "rail-only":
        return [
            Setting("NCCL_CROSS_NIC", "0",
                    "the rails of this network are not joined; a ring that changes rail would never connect.",
                    "rings stay on their rail", "no `ibv_modify_qp failed .. timed out`",
                    "https://github.com/NVIDIA/nccl/issues/2013")
        ]  # fmt: skip
    return []


def _host(fabric: Fabric, system: NcclSystem) -> list[Setting]:
    model = model_of_host(fabric, 0, load_catalog().with_parts(fabric.spec.parts))
    found = []
    if any(model.name.lower().startswith(word) for word in _VIRTUAL) or "virtual" in model.name.lower():
        found.append(
            Setting("NCCL_TOPO_FILE", "/etc/nccl-topology.xml",
                    f"{model.name} is a virtual machine: it may hide which NIC sits beside which GPU. The "
                    "cloud's image or plugin brings the file; one made elsewhere has other bus ids.",
                    "GPUDirect on every channel, NICs used by their nearest GPU", "channel lines end in /GDRDMA",
                    "https://github.com/NVIDIA/nccl-tests/issues/256", optional=True)
        )  # fmt: skip
    if system.path in ("PHB", "SYS") and system.network in ("infiniband", "roce") and system.num_islands > 1:
        found.append(
            Setting("NCCL_NET_GDR_LEVEL", system.path,
                    f"GPU and NIC meet at the {'CPU' if system.path == 'PHB' else 'other socket'} here, and NCCL uses "
                    "GPUDirect up to PXB only. Right where the CPU forwards peer-to-peer at full rate; measure both.",
                    "no copy through host memory", "channel lines end in /GDRDMA", optional=True)
        )  # fmt: skip
    if system.collnet:
        found.append(
            Setting("NCCL_COLLNET_ENABLE", "1", "the switches can reduce (SHARP), and NCCL does not use it unasked.",
                    "half the bytes per NIC in all-reduce", "Using network IBext and CollNet channels")
        )  # fmt: skip
    return found


def _vendor(fabric: Fabric, system: NcclSystem) -> list[Setting]:
    """Return what the cloud's own guide sets, beside what is set already."""
    profile = cloud_profile(fabric, system)
    if profile is None:
        return []
    source = f"{profile.source} (read: {profile.read})"
    found = [
        Setting(name, value, f"{reason} ({profile.cloud}).", "what the cloud's network was tuned for", "", source)
        for name, (value, reason) in profile.variables.items()
    ]
    known = {setting.name for setting in found} | set(profile.profile_variable)
    extra = {} if profile.profile else {name: value for name, value in system.env.items() if name not in known}
    return found + [
        Setting(name, value, "the vendor's guide sets it: the plugin does other choices badly.",
                "what the plugin was tuned for", "", source)
        for name, value in extra.items()
        if system.network in ("tcpx", "tcpxo")
    ]  # fmt: skip


def cloud_profile(fabric: Fabric, system: NcclSystem) -> CloudProfile | None:
    """Return the profile of the cloud whose machines these are, if any."""
    model = model_of_host(fabric, 0, load_catalog().with_parts(fabric.spec.parts))
    return cloud_of(model.name, system.network) if system.num_islands > 1 else None


def _tuner(system: NcclSystem) -> list[Setting]:
    return [
        Setting("NCCL_TUNER_PLUGIN", "libnccl-tuner-example.so",
                "the example tuner that comes with NCCL (ext-tuner/example) reads choices from a file.",
                "the choices of tuner.csv instead of NCCL's own", "TUNER/Plugin: Using"),
        Setting("NCCL_TUNER_CONFIG_FILE", "/etc/nccl-tuner.csv", "where the plugin finds the choices.", "as above"),
    ]  # fmt: skip


def _watching(system: NcclSystem) -> list[Setting]:
    return [
        Setting("NCCL_DEBUG", "WARN", "errors are said, and nothing else.", "a log that can be diagnosed"),
        Setting("NCCL_DEBUG_FILE", "/tmp/nccl.%h.%p", "one file a process, so that lines do not interleave.",  # noqa: S108
                "`syncline diagnose` tells hosts apart"),
        Setting("TORCH_FR_BUFFER_SIZE", "2000",
                "the flight recorder keeps the last collectives of each rank (TORCH_NCCL_TRACE_BUFFER_SIZE before "
                "PyTorch 2.8).",
                "a time-out names the rank that is missing", "",
                "https://docs.pytorch.org/tutorials/prototype/flight_recorder_tutorial.html"),
        Setting("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", "and writes them when a collective times out.", "as above", "",
                "https://docs.pytorch.org/tutorials/prototype/flight_recorder_tutorial.html"),
    ]  # fmt: skip
