"""Changes that break a healthy host, one thing at a time; `plants` says which rules must find which."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from tests.auditing.samples.commands import ethtool_features, ethtool_rings, getent
from tests.auditing.samples.draft import HostDraft
from tests.auditing.samples.hosts import huge_pages

from syncline.describe.plain import JsonValue

Change = Callable[[HostDraft], None]


def gpu(draft: HostDraft, at: int = 2) -> str:
    """Return the PCI address of one GPU."""
    found = sorted(draft.smi)
    return found[min(at, len(found) - 1)]


def device(draft: HostDraft) -> str:
    """Return one RDMA device beside a GPU."""
    near = {"dgx-01": "mlx5_4", "roce-01": "mlx5_3", "nd-01": "mlx5_ib2", "nvl-01": "mlx5_2"}
    return near[draft.host]


def port(draft: HostDraft) -> str:
    """Return the sysfs folder of one fabric port."""
    return f"sys/class/infiniband/{device(draft)}/ports/1"


def card(draft: HostDraft) -> str:
    """Return the sysfs folder of one fabric card, or of a fast interface."""
    if any(path.startswith("sys/class/infiniband/") for path in draft.files):
        return draft.real(f"sys/class/infiniband/{device(draft)}/x").rsplit("/", 3)[0]
    return draft.real("sys/class/net/eth0/x").rsplit("/", 3)[0]


def interface(draft: HostDraft) -> str:
    """Return an interface of the fabric, or of sockets."""
    names = {"roce-01": "rdma3", "old-01": "eth1", "vm-01": "eth0", "nd-01": "eth0", "dgx-01": "eno3"}
    return (names | {"nvl-01": "enP22p1s0"})[draft.host]


def put(make: Callable[[HostDraft], str], text: str | int) -> Change:
    """Return a change that writes one file."""
    return lambda draft: draft.put(make(draft), text)


def file(path: str, text: str | int) -> Change:
    """Return a change that writes a file of a fixed path."""
    return lambda draft: draft.put(path, text)


def sub(path: str, old: str, new: str) -> Change:
    """Return a change of part of a file."""
    return lambda draft: draft.sub(path, old, new)


def smi(path: str, value: str) -> Change:
    """Return a change of what nvidia-smi says of one GPU."""
    return lambda draft: draft.smi[gpu(draft)].__setitem__(path, value)


def env(**variables: str) -> Change:
    """Return a change of the environment."""
    return lambda draft: draft.environment.update(variables)


def command(name: str, text: str) -> Change:
    """Return a change of a command's output."""
    return lambda draft: draft.commands.__setitem__(name, text)


def log(line: str, times: int = 1) -> Change:
    """Return a change that adds lines to the kernel log."""
    return lambda draft: draft.commands.__setitem__(
        "dmesg", draft.commands["dmesg"] + f"[   99.100000] {line}\n" * times
    )


def limit(name: str, value: str) -> Change:
    """Return a change of one line of /proc/self/limits."""

    def change(draft: HostDraft) -> None:
        text = re.sub(rf"^({name}\s+)\S+", rf"\g<1>{value}", draft.text("proc/self/limits"), flags=re.MULTILINE)
        draft.put("proc/self/limits", text)

    return change


def config(make: Callable[[HostDraft], str], at: int, value: int) -> Change:
    """Return a change of two bytes of a function's configuration space."""

    def change(draft: HostDraft) -> None:
        path = f"{make(draft)}/config"
        data = bytearray(draft.files[path])  # type: ignore[arg-type]
        data[at : at + 2] = value.to_bytes(2, "little")
        draft.files[path] = bytes(data)

    return change


def qdisc(**row: JsonValue) -> Change:
    """Return a change that adds a queueing discipline."""
    return lambda draft: draft.qdiscs.append({"dev": interface(draft), "root": True, **row})


def gpu_folder(draft: HostDraft) -> str:
    """Gpu folder."""
    return draft.real(f"sys/bus/pci/devices/{gpu(draft)}/x").removesuffix("/x")


def bridge(draft: HostDraft) -> str:
    """Bridge."""
    return card(draft).rpartition("/")[0]


def move_card(draft: HostDraft) -> None:
    """Put one network card on a root port of its own, away from its GPU."""
    old = card(draft)
    address = old.rpartition("/")[2]
    new = f"sys/devices/pci0000:e0/{address}"
    for path in [p for p in draft.files if p.startswith(f"{old}/")]:
        entry = draft.files.pop(path)
        draft.files[path.replace(old, new, 1)] = entry
    draft.link(f"sys/bus/pci/devices/{address}", new)
    for name in ("infiniband", "net"):
        for path in [p for p in draft.files if p.startswith(f"sys/class/{name}/")]:
            if draft.real(f"{path}/x").startswith(old):
                leaf = path.rpartition("/")[2]
                draft.link(path, f"{new}/{name}/{leaf}")
                draft.link(f"{new}/{name}/{leaf}/device", new)
    for link, to in (("driver", "sys/bus/pci/drivers/mlx5_core"), ("iommu_group", "sys/kernel/iommu_groups/1")):
        draft.link(f"{new}/{link}", to)
    draft.environment["NCCL_IB_HCA"] = (
        "mlx5" if draft.host == "roce-01" else "=" + ",".join(f"mlx5_{n}" for n in (0, 3, 4, 5, 6, 9, 10, 11))
    )


def roce_without_gid(draft: HostDraft) -> None:
    """Roce without gid."""
    for at in (1, 2, 3):
        draft.drop(f"{port(draft)}/gids/{at}")


def storage_too(draft: HostDraft) -> None:
    """Leave a storage port, which is Ethernet, in the list of devices."""
    draft.environment["NCCL_IB_HCA"] = "^mlx5_2,mlx5_7,mlx5_8"


def two_in_one_subnet(draft: HostDraft) -> None:
    """Two in one subnet."""
    for at, name in enumerate(("rdma0", "rdma1") if draft.host == "roce-01" else ("eth0", "eth1")):
        draft.interfaces[name]["addr_info"] = [
            {"family": "inet", "local": f"10.9.0.{at + 1}", "prefixlen": 24, "scope": "global"}
        ]


def no_gpu_in_smi(draft: HostDraft) -> None:
    """No gpu in smi."""
    del draft.smi[gpu(draft)]


def cards_without_rdma(draft: HostDraft) -> None:
    """Cards without rdma."""
    address = "0000:88:00.0"
    draft.pci(address, above=("0000:87",), id="15b3:1021", kind="ethernet", numa=1, driver="mlx5_core")


def cnp(draft: HostDraft) -> None:
    """Cnp."""
    draft.put(f"{port(draft)}/hw_counters/rp_cnp_handled", 400_000_000)


def grown(kind: str, name: str, first: int, later: int) -> Change:
    """Grown."""

    def change(draft: HostDraft) -> None:
        draft.put(f"{port(draft)}/{kind}/{name}", first)
        draft.files[f"syncline/later/{port(draft)}/{kind}/{name}"] = f"{later}\n".encode()

    return change


def container_first(draft: HostDraft) -> None:
    """Let a CNI bridge come first in the kernel's list, and nobody name an interface."""
    draft.environment.pop("NCCL_SOCKET_IFNAME", None)
    rows = draft.interfaces
    draft.interfaces = {}
    draft.interface("cni0", kind="bridge", address="10.244.1.1/24")
    draft.interfaces |= rows


def no_address(draft: HostDraft) -> None:
    """No address."""
    for row in draft.interfaces.values():
        if row["ifname"] != "lo":
            row["addr_info"] = []


def down(draft: HostDraft) -> None:
    """Down."""
    for name in ("eth0", "eth1") if draft.host == "old-01" else (interface(draft),):
        draft.put(f"sys/class/net/{name}/operstate", "down")
        draft.interfaces[name]["operstate"] = "DOWN"
    draft.environment["NCCL_SOCKET_IFNAME"] = "eth1"


def slow_name(draft: HostDraft) -> None:
    """Slow name."""
    draft.environment["NCCL_SOCKET_IFNAME"] = "mgmt0"
    draft.commands |= {"ethtool-k-mgmt0": ethtool_features(), "ethtool-g-mgmt0": ethtool_rings(2047, 2000)}


def default_on_fabric(draft: HostDraft) -> None:
    """Default on fabric."""
    draft.sub("proc/net/route", "bond0", "rdma0")


def irq_far(draft: HostDraft) -> None:
    """Irq far."""
    names = [p for p in draft.files if p.startswith(f"{card(draft)}/msi_irqs/")]
    for path in names:
        node = draft.text(f"{card(draft)}/numa_node").strip()
        draft.put(f"proc/irq/{path.rpartition('/')[2]}/smp_affinity_list", 60 if node == "0" else 3)


def deep_sleep(draft: HostDraft) -> None:
    """Deep sleep."""
    base = "sys/devices/system/cpu/cpu0/cpuidle/state3"
    for key, value in (("name", "C6"), ("latency", 170), ("disable", 0)):
        draft.put(f"{base}/{key}", value)


def emulated(draft: HostDraft) -> None:
    """Emulated."""
    folder = "sys/bus/pci/devices/0000:00:01.0"
    draft.put(f"{folder}/current_link_speed", "2.5 GT/s PCIe")
    draft.put(f"{folder}/current_link_width", 1)


def emulated_cloud(draft: HostDraft) -> None:
    """Emulated cloud."""
    del draft.environment["NCCL_TOPO_FILE"]


def slot(draft: HostDraft) -> None:
    """Slot."""
    bridge = card(draft).rpartition("/")[0] if "01.0" in card(draft) or draft.host != "old-01" else ""
    for name in ("max_link_width", "current_link_width"):
        draft.put(f"{bridge}/{name}", 8)
    draft.put(f"{card(draft)}/current_link_width", 8)


def all_half_rate(draft: HostDraft) -> None:
    """All half rate."""
    for path in [p for p in draft.files if p.endswith("/ports/1/rate")]:
        draft.put(path, "200 Gb/sec (2X NDR)")


def gpu_missing_driver(draft: HostDraft) -> None:
    """Gpu missing driver."""
    address = gpu(draft)
    draft.drop(f"{gpu_folder(draft)}/driver")
    draft.link(f"{gpu_folder(draft)}/driver", "sys/bus/pci/drivers/vfio-pci")
    draft.put("sys/bus/pci/drivers/vfio-pci/module", "")
    draft.smi.setdefault(address, {})


def half_nvlink(draft: HostDraft) -> None:
    """Half nvlink."""
    links = draft.nvlinks[gpu(draft)]
    links[4] = links[5] = "<inactive>"


def no_peermem(draft: HostDraft) -> None:
    """No peermem."""
    draft.put("proc/modules", "nvidia 54071296 1 - Live 0x0\nmlx5_core 2142208 1 - Live 0x0")
    draft.put(
        "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.127.05  Tue Oct  8 2024"
    )


def efa(draft: HostDraft) -> None:
    """Turn the host's InfiniBand functions into EFA devices, which AWS gives huge pages."""
    draft.put("sys/bus/pci/drivers/efa/module", "")
    for index in range(8):
        draft.link(f"sys/devices/pci010{index + 1}:00/010{index + 1}:00:00.0/driver", "sys/bus/pci/drivers/efa")


def loop_name(draft: HostDraft) -> None:
    """Name the host as Debian's installer does."""
    draft.put("etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {draft.host}")
    draft.commands["getent-hosts"] = getent(draft.host, "127.0.1.1")


def stale_name(draft: HostDraft) -> None:
    """Leave the address of before in /etc/hosts."""
    draft.put("etc/hosts", f"127.0.0.1 localhost\n10.20.0.99 {draft.host}")
    draft.commands["getent-hosts"] = getent(draft.host, "10.20.0.99")


def other_in_dns(draft: HostDraft) -> None:
    """Let DNS have another address than /etc/hosts."""
    draft.commands["getent-dns"] = getent(draft.host, "10.20.0.77")


def unknown_peer(draft: HostDraft) -> None:
    """Start a job of three hosts of which one has no name here."""
    draft.environment |= {"SLURM_JOB_NODELIST": f"{draft.host},node[1-2]", "SLURM_NNODES": "3"}
    draft.commands["getent-peer-node1"] = getent("node1", "10.20.0.12")
    asked = "`env RES_OPTIONS=timeout:1 attempts:1 getent ahosts node2`"
    draft.put("syncline/manifest.json", json.dumps({"unreadable": {asked: "exit status 2"}}))


def no_gpu(draft: HostDraft) -> None:
    """Take one GPU off the bus."""
    address = gpu(draft)
    draft.drop(f"sys/bus/pci/devices/{address}")
    del draft.smi[address], draft.nvlinks[address]


def no_card(draft: HostDraft) -> None:
    """Take one fabric card off the bus."""
    name, folder = device(draft), card(draft)
    draft.drop(f"sys/class/infiniband/{name}")
    draft.drop(f"sys/bus/pci/devices/{folder.rpartition('/')[2]}")


def both(*changes: Change) -> Change:
    """Return a change that makes several."""

    def change(draft: HostDraft) -> None:
        for one in changes:
            one(draft)

    return change


def unset(name: str) -> Change:
    """Return a change that takes a variable away."""

    def change(draft: HostDraft) -> None:
        draft.environment.pop(name, None)

    return change


def other_gid_family(draft: HostDraft) -> None:
    """Give one rail an IPv6 address where the others have IPv4."""
    for at in (2, 3):
        draft.put(f"{port(draft)}/gids/{at}", "fd00:0000:0000:0003:0000:0000:0000:000b")


def reserve(pages: dict[int, int], size_kB: int = 2048) -> Change:
    """Return a change that sets huge pages aside, so many on each NUMA node."""

    def change(draft: HostDraft) -> None:
        for node, count in pages.items():
            huge_pages(draft, size_kB, node, count)

    return change


def no_library(draft: HostDraft) -> None:
    """Take the verbs library away."""
    draft.drop("usr/lib/x86_64-linux-gnu/libibverbs.so.1")
    draft.put("usr/lib/x86_64-linux-gnu/libc.so.6", "")
