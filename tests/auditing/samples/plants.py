"""Faults to plant in healthy trees: each says on which hosts it makes sense and which rules must find it, and no other.

for plant in PLANTS:
    for name in plant.hosts:
        draft = plant.into(HOSTS[name]())
        report = audit(Root.of(draft.tree()), plant.expect)
        assert {finding.rule for finding in report.findings} == plant.rules
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.auditing.samples.changes import (
    Change,
    all_half_rate,
    both,
    bridge,
    card,
    cards_without_rdma,
    cnp,
    command,
    config,
    container_first,
    deep_sleep,
    default_on_fabric,
    device,
    efa,
    emulated,
    emulated_cloud,
    env,
    file,
    gpu_folder,
    gpu_missing_driver,
    grown,
    half_nvlink,
    interface,
    irq_far,
    limit,
    log,
    loop_name,
    move_card,
    no_address,
    no_card,
    no_gpu,
    no_gpu_in_smi,
    no_library,
    no_peermem,
    other_gid_family,
    other_in_dns,
    port,
    put,
    qdisc,
    reserve,
    roce_without_gid,
    slot,
    slow_name,
    smi,
    stale_name,
    storage_too,
    sub,
    two_in_one_subnet,
    unknown_peer,
    unset,
)
from tests.auditing.samples.commands import devinfo, ethtool_features, ethtool_rings, ethtool_statistics, imex
from tests.auditing.samples.draft import HostDraft
from tests.auditing.samples.hosts import TRAYS

from syncline.auditing.expect import Expect

ALL = ("dgx-h100", "roce-h100", "ethernet-t4", "cloud-vm", "plain-vm")
BOARD = ("dgx-h100", "roce-h100")
INFINIBAND = ("dgx-h100", "cloud-vm", "gb200-nvl72")
EIGHT = ("dgx-h100", "cloud-vm")
RDMA = ("dgx-h100", "roce-h100", "cloud-vm")
ROCE = ("roce-h100",)
METAL = ("dgx-h100", "roce-h100", "ethernet-t4")
NUMA = ("dgx-h100", "roce-h100", "ethernet-t4", "cloud-vm")
NVLINK = ("dgx-h100", "roce-h100", "cloud-vm", "gb200-nvl72")
NVL72 = ("gb200-nvl72",)
SOCKETS = ("ethernet-t4", "plain-vm")
SERVER = ("ethernet-t4",)


@dataclass(frozen=True)
class Plant:
    """One fault, the rules that must find it, and where it can be planted."""

    name: str
    rules: frozenset[str]
    hosts: tuple[str, ...]
    change: Change
    expect: Expect = field(default_factory=Expect)

    def into(self, draft: HostDraft) -> HostDraft:
        """Return a copy of a healthy host with the fault in it."""
        broken = draft.copy()
        self.change(broken)
        return broken


def _p(name: str, rules: str, hosts: tuple[str, ...], change: Change, expect: Expect | None = None) -> Plant:
    return Plant(name, frozenset(rules.split()), hosts, change, expect or Expect())


SUPERPOD = Expect(
    num_gpus=8, num_nics=8, rate_Bps=50e9, mtu_bytes=4096, link="NDR", is_rdma=True, rails=True,
    source="cluster pod.yaml",
)  # fmt: skip

PLANTS: tuple[Plant, ...] = (
    _p("card at half width", "pcie.link.width", ("dgx-h100", "roce-h100", "cloud-vm"),
       put(lambda d: f"{card(d)}/current_link_width", 8)),
    _p("GPU at half width", "pcie.link.width", ALL, put(lambda d: f"{gpu_folder(d)}/current_link_width", 8)),
    _p("card trained down", "pcie.link.speed", ("dgx-h100", "roce-h100", "ethernet-t4", "cloud-vm"),
       put(lambda d: f"{card(d)}/current_link_speed", "5.0 GT/s PCIe")),
    _p("GPU trained down", "pcie.link.speed", ALL,
       put(lambda d: f"{gpu_folder(d)}/current_link_speed", "5.0 GT/s PCIe")),
    _p("card in a narrow slot", "pcie.slot", BOARD, slot),
    _p("emulated bridge", "pcie.bridge.emulated", ("plain-vm",), emulated),
    _p("ACS on a switch port", "pcie.acs", BOARD, config(bridge, 0x146, 0x1D)),
    _p("ATS off", "pcie.ats", ("cloud-vm",), config(card, 0x146, 0)),
    _p("strict ordering", "pcie.relaxed_ordering", RDMA, config(card, 0x68, 5 << 12)),
    _p("small reads", "pcie.max_read_request", RDMA, config(card, 0x68, 1 << 4 | 2 << 12)),
    _p("IOMMU translates", "kernel.iommu", BOARD, put(lambda d: f"{card(d)}/iommu_group/type", "DMA-FQ")),
    _p("PCIe errors", "pcie.errors", ALL, put(lambda d: f"{gpu_folder(d)}/aer_dev_fatal", "TLP 3\nTOTAL_ERR_FATAL 3")),
    _p("card moved away from its GPU", "topo.gpu_nic.path", BOARD, move_card),
    _p("flat tree without a topology file", "topo.gpu_nic.path", ("cloud-vm",), emulated_cloud),
    _p("no NUMA node", "topo.numa.unknown", NUMA, put(lambda d: f"{gpu_folder(d)}/numa_node", -1)),
    _p("port down", "rdma.port.down", RDMA, put(lambda d: f"{port(d)}/state", "1: DOWN")),
    _p("no subnet manager", "rdma.port.init", INFINIBAND, put(lambda d: f"{port(d)}/state", "2: INIT")),
    _p("port at half rate", "rdma.port.rate", RDMA, put(lambda d: f"{port(d)}/rate", "200 Gb/sec (2X NDR)")),
    _p("all ports at half rate", "rdma.port.below_part", BOARD, all_half_rate),
    _p("a storage port in the fabric", "rdma.layer.mixed", ("dgx-h100",), storage_too),
    _p("a GPU is missing", "gpu.count", ("dgx-h100", "cloud-vm"), no_gpu, SUPERPOD),
    _p("a GPU is missing from a DGX", "gpu.count.model", ("dgx-h100",), no_gpu),
    _p("a card is missing", "net.nic.count", ("cloud-vm",), no_card, SUPERPOD),
    _p("half the rate of the description", "rdma.port.rate", EIGHT, all_half_rate, SUPERPOD),
    _p("PXN off on rails", "nccl.env.pxn-off-on-rails", EIGHT, env(NCCL_PXN_DISABLE="1"), SUPERPOD),
    _p("rings across rails", "nccl.env.cross-nic-on-rails", EIGHT, env(NCCL_CROSS_NIC="1"), SUPERPOD),
    _p("no uverbs device file", "rdma.user_access", RDMA, lambda d: d.drop("dev/infiniband/uverbs2")),
    _p("small InfiniBand MTU", "rdma.mtu", INFINIBAND,
       lambda d: d.commands.__setitem__("ibv-devinfo", devinfo({device(d): 2048}))),
    _p("no routable GID", "rdma.gid.rocev2", ROCE, roce_without_gid),
    _p("GID index of RoCE v1", "rdma.gid.index nccl.env.gid-index", ROCE, env(NCCL_IB_GID_INDEX="2")),
    _p("GID index forced, right today", "nccl.env.gid-index", ROCE, env(NCCL_IB_GID_INDEX="3")),
    _p("a rail of another GID family", "rdma.gid.family", ROCE, other_gid_family),
    _p("old firmware on one card", "rdma.firmware.mixed", RDMA,
       put(lambda d: f"sys/class/infiniband/{device(d)}/fw_ver", "28.36.0000")),
    _p("no verbs library", "rdma.library", RDMA, no_library),
    _p("PFC off", "roce.pfc.off", ROCE, lambda d: d.qos.__setitem__("rdma3", {"pfc": "00000000"})),
    _p("PFC on another class", "roce.pfc.class roce.pause.class", ROCE,
       lambda d: d.qos.__setitem__("rdma3", {"pfc": "00001000"})),
    _p("traffic class not set", "roce.pfc.class", ROCE, unset("NCCL_IB_TC")),
    _p("trust PCP", "roce.trust", ROCE, lambda d: d.qos.__setitem__("rdma3", {"trust": "pcp"})),
    _p("ECN off", "roce.ecn", ROCE, file("sys/class/net/rdma3/ecn/roce_rp/enable/3", 0)),
    _p("pauses of another class", "roce.pause.class", ROCE,
       command("ethtool-S-rdma3", ethtool_statistics(rx_prio5_pause=80_000))),
    _p("global pause", "roce.pause.class", ROCE,
       command("ethtool-S-rdma3", ethtool_statistics(rx_global_pause=80_000))),
    _p("paused all the time", "roce.pause", ROCE,
       command("ethtool-S-rdma3", ethtool_statistics(rx_prio3_pause=80_000_000))),
    _p("no credits", "rdma.credits", INFINIBAND,
       put(lambda d: f"{port(d)}/counters/port_xmit_wait", 3_000_000_000)),
    _p("RDMA loss, grown", "rdma.loss", RDMA, grown("hw_counters", "out_of_sequence", 40, 93)),
    _p("RDMA loss since boot", "rdma.loss", RDMA,
       put(lambda d: f"{port(d)}/hw_counters/local_ack_timeout_err", 90_000)),
    _p("receiver not ready", "rdma.rnr", RDMA, put(lambda d: f"{port(d)}/hw_counters/rnr_nak_retry_err", 50_000)),
    _p("congestion", "rdma.congestion", ROCE, cnp),
    _p("bad cable", "rdma.cable", RDMA, put(lambda d: f"{port(d)}/counters/symbol_error", 5210)),
    _p("flapping port", "rdma.flaps", RDMA, put(lambda d: f"{port(d)}/counters/link_downed", 9)),
    _p("discards", "rdma.discards", RDMA, put(lambda d: f"{port(d)}/counters/port_xmit_discards", 80_000)),
    _p("interface errors", "net.errors", ALL,
       put(lambda d: f"sys/class/net/{interface(d)}/statistics/rx_errors", 9000)),
    _p("interface drops", "net.drops", ALL,
       put(lambda d: f"sys/class/net/{interface(d)}/statistics/rx_dropped", 900_000)),
    _p("flapping interface", "net.flaps", ALL, put(lambda d: f"sys/class/net/{interface(d)}/carrier_changes", 31)),
    _p("TCP retransmits", "net.tcp.retransmits", ALL, sub("proc/net/snmp", " 90817263 412", " 90817263 912000")),
    _p("GPU bound to vfio", "gpu.driver", METAL, gpu_missing_driver),
    _p("GPU off the bus for the driver", "gpu.lost", ALL[:4], no_gpu_in_smi),
    _p("driver half updated", "gpu.driver.mismatch", ALL, lambda d: setattr(d, "driver_version", "550.144.03")),
    _p("no peermem", "gpu.direct", RDMA, no_peermem),
    _p("fabric not set up", "gpu.fabric.state", NVLINK, smi("Fabric/State", "In Progress")),
    _p("fabric manager dead", "gpu.fabric.manager", BOARD, command("systemctl-nvidia-fabricmanager", "failed\n")),
    _p("another clique", "gpu.fabric.clique", NVLINK, smi("Fabric/CliqueId", "7")),
    _p("no IMEX channel", "imex.channel", NVL72, lambda d: d.drop("dev/nvidia-caps-imex-channels")),
    _p("closed IMEX channel", "imex.channel", NVL72,
       command("imex-channels", "crw-rw---- 1 root root 235, 0 Nov 15 08:00 channel0\n")),
    _p("IMEX dead", "imex.service", NVL72,
       both(command("systemctl-nvidia-imex", "failed\n"), lambda d: d.commands.__delitem__("imex-ctl"))),
    _p("a tray without IMEX", "imex.domain", NVL72,
       command("imex-ctl", imex(TRAYS, state="DEGRADED", node="UNAVAILABLE", cell="I"))),
    _p("trays apart", "imex.domain", NVL72, command("imex-ctl", imex(TRAYS, state="DEGRADED", cell="N"))),
    _p("another IMEX release", "imex.version", NVL72,
       command("imex-ctl", imex(TRAYS, state="DEGRADED", cell="!V!", version="565.57"))),
    _p("node map of another rack", "imex.nodes", NVL72,
       file("etc/nvidia-imex/nodes_config.cfg", "10.20.9.1\n10.20.9.2")),
    _p("two NVLinks inactive", "gpu.nvlink", NVLINK, half_nvlink),
    _p("thermal slowdown", "gpu.clock.slowdown", ALL,
       smi("Clocks Event Reasons/HW Slowdown/HW Thermal Slowdown", "Active")),
    _p("lowered clocks", "gpu.clock.lowered", ALL, smi("Applications Clocks/Graphics", "405 MHz")),
    _p("lowered power", "gpu.power.lowered", ALL, smi("GPU Power Readings/Current Power Limit", "50.00 W")),
    _p("ECC off", "gpu.ecc.off", ALL, smi("ECC Mode/Current", "Disabled")),
    _p("uncorrectable errors", "gpu.ecc.uncorrectable", ALL, smi("ECC Errors/Volatile/DRAM Uncorrectable", "2")),
    _p("row remapping pending", "gpu.rows", ALL, smi("Remapped Rows/Pending", "Yes")),
    _p("GPU asks for a reset", "gpu.recovery", ALL, smi("GPU Recovery Action", "Reset")),
    _p("no persistence", "gpu.persistence", METAL, smi("Persistence Mode", "Disabled")),
    _p("PCIe replays", "gpu.replays", ALL, smi("PCI/Replays Since Reset", "52210")),
    _p("another VBIOS", "gpu.vbios.mixed", ALL[:4], smi("VBIOS Version", "96.00.89.00.01")),
    _p("MIG left on", "gpu.mig", ALL, smi("MIG Mode/Current", "Enabled")),
    _p("RDMA driver not loaded", "net.rdma.missing", SERVER, cards_without_rdma),
    _p("two NCCL", "software.nccl.several", BOARD, file("usr/local/lib/libnccl.so.2.18.3", "")),
    _p("Xid", "kernel.xid.gpu-lost", ALL, log("NVRM: Xid (PCI:0000:52:00): 79, GPU has fallen off the bus.")),
    _p("flaps in the log", "kernel.link.flap", ALL, log("mlx5_core 0000:18:00.0 rdma0: Link down", 6)),
    _p("slot power", "kernel.nic.power", ALL,
       log("mlx5_core 0000:18:00.0: mlx5_pcie_event: Detected insufficient power on the PCIe slot (27W).")),
    _p("limited PCIe", "kernel.pcie.limited", METAL,
       log("mlx5_core 0000:18:00.0: 126.024 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x8 link")),
    _p("hot optic", "kernel.nic.hot", ALL,
       log("mlx5_core 0000:18:00.0: Port module event[error]: module 0, Cable error, High Temperature")),
    _p("exporter floods", "kernel.access-reg", ALL,
       log("mlx5_core 0000:18:00.0: mlx5_cmd_out_err:808:(pid 81): ACCESS_REG(0x805) op_mod(0x1) failed", 40)),
    _p("health compromised", "kernel.nic.stuck", ALL,
       log("mlx5_core 0000:18:00.0: poll_health:841:(pid 0): device's health compromised - reached miss count")),
    _p("firmware command", "kernel.nic.firmware", ALL,
       log("mlx5_core 0000:18:00.0: wait_func:1172:(pid 81): QUERY_VPORT_COUNTER(0x770) timeout. Will cause a leak of "
           "a command resource")),
    _p("transmit timeout", "kernel.nic.stuck", ALL, log("mlx5_core 0000:18:00.0 rdma0: TX timeout detected")),
    _p("watchdog of the network", "kernel.nic.stuck", ALL,
       log("NETDEV WATCHDOG: rdma0 (mlx5_core): transmit queue 3 timed out")),
    _p("soft lockup", "kernel.lockup", ALL, log("watchdog: BUG: soft lockup - CPU#41 stuck for 22s! [python3:8123]")),
    _p("memory kill", "kernel.oom", ALL,
       log("Out of memory: Killed process 8123 (python3) total-vm:812345678kB, anon-rss:512345678kB, file-rss:0kB")),
    _p("memory errors", "kernel.machine-check", ALL,
       log("EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0xee30a0)")),
    _p("machine check", "kernel.machine-check", ALL, log("mce: [Hardware Error]: Machine check events logged")),
    _p("PCIe errors", "kernel.pcie.error", ALL,
       log("pcieport 0000:17:01.0: AER: Corrected error received: 0000:18:00.0", 40)),
    _p("hung task", "kernel.hung-task", ALL, log("INFO: task python3:8123 blocked for more than 120 seconds.")),
    _p("locked memory", "limits.memlock", RDMA, limit("Max locked memory", "67108864")),
    _p("few files", "limits.files", ALL, limit("Max open files", "1024")),
    _p("unlimited stack", "limits.stack", ALL, limit("Max stack size", "unlimited")),
    _p("container's shared memory", "limits.shm", ALL,
       sub("proc/self/mounts", "rw,nosuid,nodev", "rw,nosuid,nodev,size=65536k")),
    _p("EFA without huge pages", "memory.hugepages.efa", ("cloud-vm",), efa),
    _p("huge pages for nobody", "memory.hugepages.idle", SERVER, reserve({0: 90_000, 1: 90_000})),
    _p("huge pages on one node", "memory.hugepages.numa", NUMA, reserve({0: 512, 1: 0})),
    _p("fork protection and huge pages", "memory.hugepages.fork", RDMA,
       both(reserve({0: 512, 1: 512}), env(RDMAV_FORK_SAFE="1"))),
    _p("stalls for huge pages", "memory.thp.defrag", ALL,
       both(file("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never"),
            file("sys/kernel/mm/transparent_hugepage/defrag", "[always] defer defer+madvise madvise never"))),
    _p("no transparent huge pages", "memory.thp", ALL,
       file("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]")),
    _p("powersave", "cpu.governor", METAL, file("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave")),
    _p("NUMA balancing", "cpu.numa_balancing", NUMA, file("proc/sys/kernel/numa_balancing", 1)),
    _p("deep sleep", "cpu.idle", BOARD, deep_sleep),
    _p("interrupts far away", "cpu.irq", ("roce-h100", "ethernet-t4"), irq_far),
    _p("name on loopback", "name.resolves", ALL, loop_name),
    _p("stale hosts file", "name.own_address name.sources", ALL, stale_name),
    _p("DNS and hosts file differ", "name.sources", ALL, other_in_dns),
    _p("hosts file not asked", "name.order", ALL, file("etc/nsswitch.conf", "hosts: dns")),
    _p("peer without a name", "name.peers", ALL, unknown_peer),
    _p("clock not synchronised", "time.sync", ALL, lambda d: d.commands.__setitem__("chronyc-tracking",
       d.commands["chronyc-tracking"].replace("Normal", "Not synchronised"))),
    _p("slow clock source", "time.source", ALL,
       file("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet")),
    _p("small MTU", "net.mtu", ("roce-h100", "ethernet-t4"), lambda d: d.set_mtu(interface(d), 1500)),
    _p("another MTU", "net.mtu.mixed", ("roce-h100", "ethernet-t4"), lambda d: d.set_mtu(interface(d), 9216)),
    _p("rail without address", "net.address.missing", ROCE,
       lambda d: d.interfaces["rdma3"].__setitem__("addr_info", [])),
    _p("rails in one subnet", "net.subnet.shared", ("roce-h100", "ethernet-t4"), two_in_one_subnet),
    _p("strict reverse path", "net.rp_filter", ROCE, file("proc/sys/net/ipv4/conf/all/rp_filter", 1)),
    _p("default route on a rail", "net.isolation", ROCE, default_on_fabric),
    _p("shaped", "net.shaped", ("roce-h100", "ethernet-t4", "plain-vm"),
       qdisc(kind="tbf", options={"rate": 125_000_000, "burst": 1600})),
    _p("netem left behind", "net.loss_emulated", ("roce-h100", "ethernet-t4", "plain-vm"),
       qdisc(kind="netem", options={"limit": 1000, "loss-random": {"loss": 0.01, "correlation": 0}})),
    _p("bond member down", "net.bond", ROCE,
       sub("proc/net/bonding/bond0", "eno2\nMII Status: up", "eno2\nMII Status: down")),
    _p("slow port", "net.rate", SERVER, file("sys/class/net/eth1/speed", 10000)),
    _p("half duplex", "net.duplex", ("roce-h100", "ethernet-t4", "plain-vm"),
       put(lambda d: f"sys/class/net/{interface(d)}/duplex", "half")),
    _p("a bridge first", "net.interface.choice", ("dgx-h100", "roce-h100", "cloud-vm", "plain-vm"), container_first),
    _p("no address at all", "net.interface.default", ("plain-vm", "cloud-vm", "dgx-h100"), no_address),
    _p("reno", "net.tcp.congestion", SOCKETS, file("proc/sys/net/ipv4/tcp_congestion_control", "reno")),
    _p("small windows", "net.tcp.buffers", SERVER, file("proc/sys/net/ipv4/tcp_rmem", "4096\t87380\t212992")),
    _p("no segmentation offload", "net.offload", SOCKETS, lambda d: d.commands.__setitem__(
       f"ethtool-k-{interface(d)}", ethtool_features(tcp_segmentation_offload="off"))),
    _p("small ring", "net.ring", SERVER, lambda d: d.commands.__setitem__("ethtool-g-eth1", ethtool_rings(4096, 512))),
    _p("few ports", "net.port_range", ALL, file("proc/sys/net/ipv4/ip_local_port_range", "60000\t61000")),
    _p("interface that is not there", "env.socket_ifname.missing", ("dgx-h100", "roce-h100", "cloud-vm"),
       env(NCCL_SOCKET_IFNAME="enp9s0")),
    _p("interface that is down", "env.socket_ifname.down", ("roce-h100",),
       both(env(NCCL_SOCKET_IFNAME="eno1"), file("sys/class/net/eno1/operstate", "down"))),
    _p("bridge as interface", "env.socket_ifname.wrong", ("dgx-h100",),
       both(env(NCCL_SOCKET_IFNAME="docker0"), file("sys/class/net/docker0/operstate", "up"))),
    _p("management network as interface", "env.socket_ifname.wrong", SERVER, slow_name),
    _p("HCA that is not there", "env.hca_missing", ROCE, env(NCCL_IB_HCA="mlx5,mlx9_0")),
    _p("one NIC of eight", "env.few_nics", ("dgx-h100",), env(NCCL_IB_HCA="=mlx5_0")),
    _p("prefix that takes too many", "nccl.env.hca-prefix rdma.layer.mixed", ("dgx-h100",),
       env(NCCL_IB_HCA="mlx5_0,mlx5_1,mlx5_10,mlx5_11,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9")),
    _p("topology file that is not there", "env.file_missing", ALL, env(NCCL_GRAPH_FILE="/etc/nccl/graph.xml")),
    _p("loopback master", "env.master_addr", ALL, env(MASTER_ADDR="localhost", WORLD_SIZE="16", LOCAL_WORLD_SIZE="8")),
)  # fmt: skip

# Settings the lint of the environment must report on these hosts.
LINTED: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "nccl.env.rdma-off": (RDMA, {"NCCL_IB_DISABLE": "1"}),
    "nccl.env.p2p-off": (ALL, {"NCCL_P2P_DISABLE": "1"}),
    "nccl.env.nvls-off": (BOARD, {"NCCL_NVLS_ENABLE": "0"}),
    "nccl.env.ring-forced": (BOARD, {"NCCL_ALGO": "Ring"}),
    "nccl.env.protocol-forced": (ALL, {"NCCL_PROTO": "LL128"}),
    "nccl.env.bad-value": (ALL, {"NCCL_ALGO": "Rung"}),
    "nccl.env.obsolete": (ALL, {"NCCL_TREE_THRESHOLD": "0"}),
    "nccl.env.deprecated": (ALL, {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}),
    "nccl.env.gdr-level-number": (ALL, {"NCCL_NET_GDR_LEVEL": "3"}),
    "nccl.env.gdr-off": (ALL, {"NCCL_NET_GDR_LEVEL": "LOC"}),
    "nccl.env.debug-to-one-stream": (ALL, {"NCCL_DEBUG": "INFO", "WORLD_SIZE": "64"}),
    "nccl.env.checks-off": (ALL, {"NCCL_CHECKS_DISABLE": "1"}),
    "nccl.env.rdmav-on-efa": (ALL, {"RDMAV_FORK_SAFE": "1", "OFI_NCCL_PROTOCOL": "RDMA"}),
    "nccl.env.efa-device-rdma": (ALL, {"FI_EFA_USE_DEVICE_RDMA": "1"}),
    "nccl.env.tuned-on-efa": (ALL, {"NCCL_BUFFSIZE": "8388608", "OFI_NCCL_PROTOCOL": "RDMA"}),
    "nccl.env.socket-threads-on-rdma": (RDMA, {"NCCL_SOCKET_NTHREADS": "8"}),
    "nccl.env.few-channels": (BOARD, {"NCCL_MAX_NCHANNELS": "2"}),
    "nccl.env.ib-timeout": (ALL, {"NCCL_IB_TIMEOUT": "10"}),
    "nccl.env.relaxed-ordering-off": (ALL, {"NCCL_IB_PCI_RELAXED_ORDERING": "0"}),
    "nccl.env.mismatch-ignored": (ALL, {"NCCL_IGNORE_NET_MISMATCH": "1"}),
    "nccl.env.blocking-debug": (ALL, {"CUDA_LAUNCH_BLOCKING": "1"}),
    "nccl.env.torch-debug": (ALL, {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
    "nccl.env.mistyped": (ALL, {"NCCL_IB_TIMEOUTS": "22"}),
}  # fmt: skip
PLANTS += tuple(
    Plant(f"{rule} set", frozenset({rule}), hosts, env(**settings)) for rule, (hosts, settings) in LINTED.items()
)
