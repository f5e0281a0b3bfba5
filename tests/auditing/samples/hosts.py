"""Healthy hosts as captured trees: a DGX H100, a RoCE host, an NVL72 tray, an Ethernet server, two virtual machines.

Layouts: DGX H100 user guide (PCIe addresses as on shipped systems); HGX H100 with one BlueField-3 beside each GPU;
Azure's ND H100 v5 (flat PCI tree, virtual functions, topology file); a GB200 compute tray (domains of their own for
GPUs and cards, NVLink-C2C to Grace, IMEX). No text is copied from a real machine.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.auditing.samples.commands import devinfo, ethtool_features, ethtool_rings, ethtool_statistics, imex
from tests.auditing.samples.draft import HostDraft

H100, CX7, BF3 = "10de:2330", "15b3:1021", "15b3:a2dc"
GB200 = "10de:2941"
RACK = "7f0c1c2e-9d1a-4a53-8f0e-2b6d3f9a1c44"
TRAYS = tuple(f"10.20.0.{11 + tray}" for tray in range(18))
_DGX = (  # host bridge, GPU, fabric card, RDMA device: as on a DGX H100
    ("0000:15", "0000:1b:00.0", "0000:18:00.0", "mlx5_0"), ("0000:37", "0000:43:00.0", "0000:40:00.0", "mlx5_3"),
    ("0000:48", "0000:52:00.0", "0000:4f:00.0", "mlx5_4"), ("0000:59", "0000:61:00.0", "0000:5e:00.0", "mlx5_5"),
    ("0000:97", "0000:9d:00.0", "0000:9a:00.0", "mlx5_6"), ("0000:b7", "0000:c3:00.0", "0000:c0:00.0", "mlx5_9"),
    ("0000:c7", "0000:d1:00.0", "0000:ce:00.0", "mlx5_10"), ("0000:d7", "0000:df:00.0", "0000:dc:00.0", "mlx5_11"),
)  # fmt: skip
_LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max stack size            8388608              unlimited            bytes
Max processes             1030492              1030492              processes
Max open files            1048576              1048576              files
Max locked memory         unlimited            unlimited            bytes
Max address space         unlimited            unlimited            bytes"""
_SNMP = """Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails CurrEstab InSegs OutSegs RetransSegs
Tcp: 1 200 120000 -1 4182 2904 12 31 91827364 90817263 412"""
_CHRONY = """Reference ID    : 0A140001 (10.20.0.1)
Stratum         : 3
System time     : 0.000012845 seconds fast of NTP time
Leap status     : Normal
"""


def base(name: str, *, numa: int = 2, flags: str = "fpu vme avx2 avx512f", metal: bool = True) -> HostDraft:
    """Return what every Linux host has."""
    draft = HostDraft(name)
    for path, text in {
        "proc/sys/kernel/hostname": name,
        "proc/sys/kernel/osrelease": "5.15.0-1063-nvidia",
        "proc/sys/kernel/numa_balancing": "0",
        "proc/sys/net/ipv4/tcp_congestion_control": "cubic",
        "proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t67108864",
        "proc/sys/net/ipv4/tcp_wmem": "4096\t131072\t67108864",
        "proc/sys/net/ipv4/ip_local_port_range": "32768\t60999",
        "proc/sys/net/ipv4/conf/all/rp_filter": "0",
        "proc/sys/net/ipv4/conf/all/arp_ignore": "0",
        "proc/sys/net/ipv4/conf/all/arp_announce": "0",
        "proc/cmdline": "iommu=pt mitigations=off",
        "proc/cpuinfo": f"processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8480C\nflags\t\t: {flags}",
        "proc/meminfo": "MemTotal:       2113410512 kB\nMemFree:        2000000000 kB\nHugePages_Total:       0",
        "proc/self/limits": _LIMITS,
        "proc/self/mounts": "tmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0\n/dev/nvme0n1p2 / ext4 rw 0 0",
        "proc/net/snmp": _SNMP,
        "proc/net/route": "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT",
        "proc/modules": "overlay 151552 1 - Live 0x0",
        "etc/hosts": f"127.0.0.1 localhost\n10.20.0.11 {name}",
        "etc/nsswitch.conf": "passwd: files systemd\nhosts: files dns",
        "etc/resolv.conf": "nameserver 10.20.0.1\nsearch cluster.example",
        "etc/os-release": 'PRETTY_NAME="Ubuntu 22.04.5 LTS"',
        "usr/lib/x86_64-linux-gnu/libibverbs.so.1": "",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never",
        "sys/class/dmi/id/sys_vendor": "NVIDIA" if metal else "QEMU",
        "sys/class/dmi/id/product_name": "DGXH100" if metal else "Standard PC (Q35 + ICH9, 2009)",
    }.items():
        draft.put(path, text)
    for node in range(numa):
        draft.put(f"sys/devices/system/node/node{node}/cpulist", f"{node * 56}-{node * 56 + 55}")
        huge_pages(draft, 2048, node, 0)
    for cpu in range(4):
        draft.put(f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", 0)
        if metal:
            draft.put(f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", "performance")
    if metal:
        for at, (state, latency) in enumerate((("POLL", 0), ("C1", 1), ("C1E", 4))):
            for key, value in (("name", state), ("latency", latency), ("disable", 0)):
                draft.put(f"sys/devices/system/cpu/cpu0/cpuidle/state{at}/{key}", value)
    draft.interface("lo", mtu=65536, address="127.0.0.1/8")
    draft.commands |= {"chronyc-tracking": _CHRONY, "dmesg": "[    1.2] mlx5_core: firmware version: 28.42.1000\n"}
    return draft


def huge_pages(draft: HostDraft, size_kB: int, node: int, count: int) -> None:
    """Set huge pages aside on one NUMA node, all of them free, and count them for the host."""
    name = f"hugepages-{size_kB}kB"
    draft.put(f"sys/devices/system/node/node{node}/hugepages/{name}/nr_hugepages", count)
    for key in ("nr_hugepages", "free_hugepages"):
        path = f"sys/kernel/mm/hugepages/{name}/{key}"
        draft.put(path, count + (int(draft.text(path)) if path in draft.files else 0))


def _route(draft: HostDraft, interface: str) -> None:
    text = draft.text("proc/net/route")
    draft.put("proc/net/route", f"{text.rstrip()}\n{interface}\t00000000\t010014AC\t0003\t0\t0\t0\t00000000\t0\t0\t0")


def _board(draft: HostDraft, card: str, kind: str) -> None:
    """Lay eight PCIe switches, each with one GPU and one network card, and four NVSwitches."""
    for index, (bridge, gpu, nic, _) in enumerate(_DGX):
        numa = index // 4
        head = (bridge, f"{bridge}:01.0")
        bus = int(nic[5:7], 16)
        up, to_gpu, to_nic = (f"0000:{bus - 2:02x}:00.0", f"0000:{bus - 1:02x}:02.0", f"0000:{bus - 1:02x}:00.0")
        bridges = [(head[1], head[:1], None), (up, head, 0), (to_gpu, (*head, up), 0), (to_nic, (*head, up), 0)]
        for address, above, acs in bridges:
            draft.pci(address, above=above, id="1000:c030", kind="bridge", numa=numa, driver="pcieport", acs=acs)
        draft.pci(gpu, above=(*head, up, to_gpu), id=H100, kind="gpu", numa=numa, driver="nvidia")
        draft.pci(
            nic, above=(*head, up, to_nic), id=card, kind=kind, numa=numa, driver="mlx5_core", subsystem="0x15b3:0x0023"
        )
        draft.smi[gpu] = {}
        draft.nvlinks[gpu] = ["26.562 GB/s"] * 18
    for index in range(4):
        address = f"0000:{7 + index:02x}:00.0"
        draft.pci(address, above=("0000:00",), id="10de:22a3", kind="nvswitch", driver="nvidia-nvswitch",
                  speed=5.0, width=2, group="")  # fmt: skip
    draft.put(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.127.05",
    )
    draft.put(
        "proc/modules",
        "nvidia_peermem 16384 0 - Live 0x0\nnvidia 54071296 1 nvidia_peermem, Live 0x0\nmlx5_core 2142208 1 - Live 0x0",
    )
    draft.put("usr/lib/x86_64-linux-gnu/libnccl.so.2.23.4", "")
    draft.commands["systemctl-nvidia-fabricmanager"] = "active\n"


def _lossless(draft: HostDraft, name: str) -> None:
    """Turn PFC of priority 3 and ECN on."""
    draft.qos[name] = {}
    draft.commands[f"ethtool-S-{name}"] = ethtool_statistics()
    for side in ("roce_np", "roce_rp"):
        for priority in range(8):
            draft.put(f"sys/class/net/{name}/ecn/{side}/enable/{priority}", 1)


def dgx_h100() -> HostDraft:
    """Return a DGX H100: 8 InfiniBand ports beside GPUs, 4 storage ports, management."""
    draft = base("dgx-01")
    _board(draft, CX7, "infiniband")
    for index, (_, _, nic, device) in enumerate(_DGX):
        draft.rdma(device, nic, rate="400 Gb/sec (4X NDR)", uverbs=index)
    for index, (bridge, bus, devices) in enumerate(
        (("0000:26", "29", ("mlx5_1", "mlx5_2")), ("0000:a7", "aa", ("mlx5_7", "mlx5_8")))
    ):
        head = (bridge, f"{bridge}:01.0")
        draft.pci(head[1], above=head[:1], id="8086:352a", kind="bridge", numa=index, driver="pcieport")
        for port, device in enumerate(devices):
            address = f"0000:{bus}:00.{port}"
            draft.pci(
                address, above=head, id=CX7, kind="ethernet", numa=index, driver="mlx5_core", subsystem="0x15b3:0x0067"
            )
            name = f"enp{bus}s0f{port}np{port}"
            gids = (
                ("fe80:0000:0000:0000:a288:c2ff:fe17:0000", "RoCE v2", name),
                (f"0000:0000:0000:0000:0000:ffff:0a1e:{index:02x}{port + 11:02x}", "RoCE v2", name),
            )
            draft.rdma(device, address, rate="200 Gb/sec (4X HDR)", layer="Ethernet", board="MT_0000000891",
                       uverbs=8 + 2 * index + port, gids=gids)  # fmt: skip
            draft.put(f"sys/class/infiniband/{device}/tc/1/traffic_class", "Global tclass=106")
            draft.interface(name, pci=address, speed=200000, mtu=9000, address=f"10.30.{index}.{port + 11}/24")
            _lossless(draft, name)
    draft.pci(
        "0000:05:00.0",
        above=("0000:00",),
        id="8086:1563",
        kind="ethernet",
        driver="ixgbe",
        speed=8.0,
        width=4,
        group="",
    )
    draft.interface("eno3", pci="0000:05:00.0", speed=10000, address="10.20.0.11/24")
    _route(draft, "eno3")
    draft.interface("docker0", kind="bridge", address="172.17.0.1/16", up=False)
    draft.environment |= {"NCCL_SOCKET_IFNAME": "eno3", "NCCL_DEBUG": "WARN"}
    names = {device: 4096 for _, _, _, device in _DGX} | {
        "mlx5_1": 1024,
        "mlx5_2": 1024,
        "mlx5_7": 1024,
        "mlx5_8": 1024,
    }
    draft.commands["ibv-devinfo"] = devinfo(names)
    return draft


def roce_h100() -> HostDraft:
    """Return a host of a RoCE cluster: 8 BlueField-3 of 400 GbE, PFC on priority 3, management on a bond."""
    draft = base("roce-01")
    draft.put("sys/class/dmi/id/sys_vendor", "Supermicro")
    draft.put("sys/class/dmi/id/product_name", "SYS-821GE-TNHR")
    _board(draft, BF3, "ethernet")
    for index, (_, _, nic, _) in enumerate(_DGX):
        name = f"rdma{index}"
        gids = (
            (f"fe80:0000:0000:0000:5a4c:cfff:fe00:000{index}", "IB/RoCE v1", name),
            (f"fe80:0000:0000:0000:5a4c:cfff:fe00:000{index}", "RoCE v2", name),
            (f"0000:0000:0000:0000:0000:ffff:0a{index:02x}:000b", "IB/RoCE v1", name),
            (f"0000:0000:0000:0000:0000:ffff:0a{index:02x}:000b", "RoCE v2", name),
        )
        draft.rdma(f"mlx5_{index}", nic, rate="400 Gb/sec (4X NDR)", layer="Ethernet", gids=gids, firmware="32.42.1000",
                   board="MT_0000001069", uverbs=index)  # fmt: skip
        draft.interface(name, pci=nic, speed=400000, mtu=9000, address=f"10.{index}.0.11/24")
        _lossless(draft, name)
        for irq in range(2):
            number = 300 + 2 * index + irq
            draft.put(f"sys/bus/pci/devices/{nic}/msi_irqs/{number}", "msix")
            draft.put(f"proc/irq/{number}/smp_affinity_list", 56 * (index // 4) + irq)
    for port in range(2):
        address = f"0000:31:00.{port}"
        draft.pci(address, above=("0000:30",), id="14e4:16d7", kind="ethernet", driver="bnxt_en", speed=8.0, width=8)
        draft.interface(f"eno{port + 1}", pci=address, speed=25000, master="bond0")
    draft.interface("bond0", kind="bond", speed=50000, address="10.20.0.11/24")
    members = "\n\n".join(f"Slave Interface: {name}\nMII Status: up" for name in ("eno1", "eno2"))
    draft.put("proc/net/bonding/bond0", f"Bonding Mode: IEEE 802.3ad\nMII Status: up\n\n{members}")
    _route(draft, "bond0")
    draft.environment |= {"NCCL_SOCKET_IFNAME": "bond0", "NCCL_IB_TC": "106", "NCCL_IB_HCA": "mlx5"}
    return draft


def gb200_nvl72() -> HostDraft:
    """Return a compute tray of an NVL72 rack: 4 GB200, 4 InfiniBand cards, 2 Grace, IMEX over 18 trays."""
    draft = base("nvl-01", flags="")
    draft.put("sys/class/dmi/id/product_name", "GB200 NVL")
    draft.put("proc/cpuinfo", "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f")
    draft.put("proc/sys/kernel/osrelease", "6.8.0-1021-nvidia-64k")
    draft.put("sys/devices/system/clocksource/clocksource0/current_clocksource", "arch_sys_counter")
    draft.put("sys/devices/system/node/node2/cpulist", "")  # the memory of a GPU
    draft.driver_version = "570.172.08"
    for index, (gpu_domain, nic_domain) in enumerate(
        (("0008", "0000"), ("0009", "0002"), ("0018", "0010"), ("0019", "0012"))
    ):
        gpu, nic = f"{gpu_domain}:01:00.0", f"{nic_domain}:03:00.0"
        for domain, address, id_, kind, driver, group in (
            (gpu_domain, gpu, GB200, "gpu", "nvidia", "DMA-FQ"),
            (nic_domain, nic, CX7, "infiniband", "mlx5_core", "identity"),
        ):
            bridge = f"{domain}:00:00.0"
            draft.pci(
                bridge, above=(f"{domain}:00",), id="10de:22b8", kind="bridge", numa=index // 2, driver="pcieport"
            )
            draft.pci(
                address, above=(f"{domain}:00", bridge), id=id_, kind=kind, numa=index // 2, driver=driver, group=group
            )
        draft.rdma(f"mlx5_{index}", nic, rate="400 Gb/sec (4X NDR)", uverbs=index)
        draft.smi[gpu] = {
            "Product Name": "NVIDIA GB200", "Product Architecture": "Blackwell", "Addressing Mode": "ATS",
            "GPU C2C Mode": "Enabled", "Fabric/ClusterUUID": RACK, "Fabric/CliqueId": "32766",
            "GPU Power Readings/Current Power Limit": "1200.00 W",
            "GPU Power Readings/Default Power Limit": "1200.00 W",
        }  # fmt: skip
        draft.nvlinks[gpu] = ["50 GB/s"] * 18
    draft.pci(
        "0016:01:00.0", above=("0016:00",), id="8086:1533", kind="ethernet", driver="igb", speed=2.5, width=1, group=""
    )
    draft.interface("enP22p1s0", pci="0016:01:00.0", speed=1000, address="10.20.0.11/24")
    _route(draft, "enP22p1s0")
    draft.put(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  570.172.08  Release Build",
    )
    draft.put("usr/lib/x86_64-linux-gnu/libnccl.so.2.27.7", "")
    draft.put("dev/nvidia-caps-imex-channels/channel0", "")
    draft.put("etc/nvidia-imex/nodes_config.cfg", "\n".join(TRAYS))
    draft.commands |= {
        "imex-ctl": imex(TRAYS), "systemctl-nvidia-imex": "active\n",
        "ibv-devinfo": devinfo({f"mlx5_{index}": 4096 for index in range(4)}),
        "imex-channels": "total 0\ncrw-rw-rw- 1 root root 235, 0 Nov 15 08:00 channel0\n",
    }  # fmt: skip
    draft.environment |= {"NCCL_SOCKET_IFNAME": "enP22p1s0", "NCCL_MNNVL_ENABLE": "1"}
    return draft


def ethernet_t4() -> HostDraft:
    """Return an old server: 4 T4 and two ports of 25 GbE, no RDMA."""
    draft = base("old-01")
    draft.put("sys/class/dmi/id/sys_vendor", "Dell Inc.")
    draft.put("sys/class/dmi/id/product_name", "PowerEdge R740")
    for index in range(4):
        bridge = f"0000:{0x3A + 0x20 * index:02x}"
        root = f"{bridge}:00.0"
        draft.pci(root, above=(bridge,), id="8086:2030", kind="bridge", numa=index // 2, speed=8.0, driver="pcieport")
        address = f"0000:{0x3B + 0x20 * index:02x}:00.0"
        draft.pci(
            address, above=(bridge, root), id="10de:1eb8", kind="gpu", numa=index // 2, speed=8.0, driver="nvidia"
        )
        draft.smi[address] = _card("Tesla T4", "70.00 W", "585 MHz")
    for port in range(2):
        address = f"0000:18:00.{port}"
        draft.pci(address, above=("0000:17",), id="8086:158b", kind="ethernet", speed=8.0, width=8, driver="i40e")
        name = f"eth{port}"
        draft.interface(name, pci=address, speed=25000, mtu=9000, address=f"10.{40 + port}.0.11/24")
        draft.commands |= {f"ethtool-k-{name}": ethtool_features(), f"ethtool-g-{name}": ethtool_rings(4096, 2048)}
        draft.put(f"sys/bus/pci/devices/{address}/msi_irqs/{80 + port}", "msix")
        draft.put(f"proc/irq/{80 + port}/smp_affinity_list", port)
    draft.pci("0000:01:00.0", above=("0000:00",), id="14e4:165f", kind="ethernet", speed=5.0, width=1, driver="tg3")
    draft.interface("mgmt0", pci="0000:01:00.0", speed=1000, address="10.20.0.11/24")
    _route(draft, "mgmt0")
    draft.put(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.127.05",
    )
    draft.environment |= {"NCCL_SOCKET_IFNAME": "eth"}
    return draft


def cloud_vm() -> HostDraft:
    """Return a virtual machine like Azure's ND H100 v5: 8 GPUs and InfiniBand functions, flat, with a topology file."""
    draft = base("nd-01", flags="fpu vme avx2 hypervisor", metal=False)
    draft.put("sys/class/dmi/id/sys_vendor", "Microsoft Corporation")
    draft.put("sys/class/dmi/id/product_name", "Virtual Machine")
    for index in range(8):
        gpu, nic = f"000{index + 1}:00:00.0", f"010{index + 1}:00:00.0"
        draft.pci(gpu, above=(f"000{index + 1}:00",), id=H100, kind="gpu", numa=index // 4, driver="nvidia", group="")
        draft.pci(nic, above=(f"010{index + 1}:00",), id="15b3:101e", kind="infiniband", numa=index // 4, ats=True,
                  driver="mlx5_core", group="")  # fmt: skip
        draft.rdma(f"mlx5_ib{index}", nic, rate="400 Gb/sec (4X NDR)", uverbs=index)
        draft.smi[gpu] = {}
        draft.nvlinks[gpu] = ["26.562 GB/s"] * 18
    draft.pci("0000:00:02.0", above=("0000:00",), id="1af4:1041", kind="ethernet", speed=0, group="")
    draft.interface("eth0", pci="0000:00:02.0", driver="virtio", mtu=1500, address="10.20.0.11/16")
    _route(draft, "eth0")
    draft.put(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.127.05  Release Build",
    )
    draft.put("opt/microsoft/ndv5-topo.xml", "<system/>")
    draft.environment |= {"NCCL_TOPO_FILE": "/opt/microsoft/ndv5-topo.xml", "NCCL_SOCKET_IFNAME": "eth0"}
    draft.commands["ibv-devinfo"] = devinfo({f"mlx5_ib{index}": 4096 for index in range(8)})
    return draft


def plain_vm() -> HostDraft:
    """Return a small virtual machine: one GPU passed through, one virtio interface, no RDMA."""
    draft = base("vm-01", numa=1, flags="fpu vme hypervisor", metal=False)
    bridge = "0000:00:01.0"
    draft.pci(bridge, above=("0000:00",), id="1b36:000c", kind="bridge", speed=16.0, driver="pcieport", numa=-1)
    draft.pci(
        "0000:01:00.0",
        above=("0000:00", bridge),
        id="10de:26b9",
        kind="gpu",
        speed=16.0,
        driver="nvidia",
        numa=-1,
        group="",
    )
    draft.smi["0000:01:00.0"] = _card("NVIDIA L40S", "350.00 W", "2520 MHz")
    draft.pci("0000:00:03.0", above=("0000:00",), id="1af4:1041", kind="ethernet", speed=0, numa=-1, group="")
    draft.interface("eth0", pci="0000:00:03.0", driver="virtio", mtu=1460, address="10.20.0.11/24")
    draft.interface("docker0", kind="bridge", address="172.17.0.1/16", up=False)
    _route(draft, "eth0")
    draft.commands["ethtool-k-eth0"] = ethtool_features()
    draft.put(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.127.05  Release Build",
    )
    draft.put("sys/devices/system/clocksource/clocksource0/current_clocksource", "kvm-clock")
    draft.environment |= {"GLOO_SOCKET_IFNAME": "eth0"}
    return draft


def _card(name: str, power: str, clock: str) -> dict[str, str]:
    """Return what nvidia-smi says of a PCIe card without NVLink."""
    return {
        "Product Name": name, "Fabric/State": "N/A", "Fabric/Status": "N/A", "Fabric/CliqueId": "N/A",
        "Fabric/ClusterUUID": "N/A",
        "GPU Power Readings/Current Power Limit": power, "GPU Power Readings/Default Power Limit": power,
        "Applications Clocks/Graphics": clock, "Default Applications Clocks/Graphics": clock,
    }  # fmt: skip


HOSTS: dict[str, Callable[[], HostDraft]] = {
    "dgx-h100": dgx_h100,
    "roce-h100": roce_h100,
    "gb200-nvl72": gb200_nvl72,
    "ethernet-t4": ethernet_t4,
    "cloud-vm": cloud_vm,
    "plain-vm": plain_vm,
}
