"""PCI Express: link width and speed, slots, emulated bridges, ACS, ATS, ordering, IOMMU, errors, and GPU-NIC paths."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from syncline.auditing.expect import Expect
from syncline.auditing.rule import AuditRule, CannotTell, Sight
from syncline.describe.names import few
from syncline.finding import Action, Severity
from syncline.host.host import NEAR, Host
from syncline.host.pci import ConfigSpace, PciDevice, read_config

FAST_PORT_BPS = 200e9 / 8
"""From here on a ConnectX card needs large read requests to fill its port."""
_NOT_P0 = re.compile(r"P([1-9]|1[0-5])")


def endpoints(host: Host) -> list[tuple[str, PciDevice]]:
    """Return GPUs and the cards of RDMA ports and fabric interfaces, each once, with a name."""
    named: dict[str, str] = {gpu.pci.address: gpu.name for gpu in host.gpus}
    for port in host.ports:
        named.setdefault(port.pci, port.device)
    for interface in host.fabric_interfaces:
        named.setdefault(interface.pci, interface.name)
    return [(name, host.pci.devices[at]) for at, name in named.items() if at in host.pci.devices]


def network_cards(host: Host) -> list[tuple[str, PciDevice]]:
    """Return the cards of fabric ports, each once."""
    named = {port.pci: port.device for port in host.fabric_ports}
    return [(name, host.pci.devices[at]) for at, name in named.items() if at in host.pci.devices]


def link_width(host: Host, expect: Expect) -> Iterator[Sight]:
    for name, device in endpoints(host):
        able = _able(host, device, lambda end: end.max_width)
        if 0 < device.width < able:
            yield _seen(name, device, f"PCIe x{device.width}", f"x{able:g}", "current_link_width")


def link_speed(host: Host, expect: Expect) -> Iterator[Sight]:
    idle = {gpu.pci.address for gpu in host.gpus if _NOT_P0.match(gpu.value("Performance State"))}
    for name, device in endpoints(host):
        able = _able(host, device, lambda end: end.max_speed)
        if 0 < device.speed < able and device.address not in idle:  # an idle GPU lowers its link to save power
            yield _seen(name, device, f"PCIe {device.speed:g} GT/s", f"{able:g} GT/s", "current_link_speed")


def slot(host: Host, expect: Expect) -> Iterator[Sight]:
    for name, device in endpoints(host):
        for port in host.pci.above(device.address)[:1]:
            if 0 < port.max_width < device.max_width:
                slot_is, wanted = f"x{port.max_width}", f"x{device.max_width}"
                yield _seen(name, device, f"a slot of {slot_is}", wanted, "max_link_width", port)
            elif 0 < port.max_speed < device.max_speed and not _emulated(port):
                slot_is, wanted = f"{port.max_speed:g} GT/s", f"{device.max_speed:g} GT/s"
                yield _seen(name, device, f"a slot of {slot_is}", wanted, "max_link_speed", port)


def emulated_bridge(host: Host, expect: Expect) -> Iterator[Sight]:
    if host.environment.get("NCCL_TOPO_FILE"):
        return
    slow: dict[str, list[str]] = {}
    for name, device in endpoints(host):
        for bridge in (*host.pci.above(device.address), device):
            if _emulated(bridge):
                slow.setdefault(bridge.address, []).append(name)
    for address, names in slow.items():
        observed = f"2.5 GT/s x1 above {', '.join(names)}"
        evidence = (f"sys/bus/pci/devices/{address}/current_link_speed",)
        yield Sight(f"bridge {address}", observed, "the speed of the real slot", evidence)


def acs(host: Host, expect: Expect) -> Iterator[Sight]:
    wanted = {bridge.address: bridge for _, device in endpoints(host) for bridge in host.pci.above(device.address)}
    ports = [("bridge", bridge) for bridge in wanted.values() if bridge.parent is not None]

    def look(config: ConfigSpace) -> str | None:
        bits = config.acs_control() or ()
        return f"ACSCtl {' '.join(f'{bit}+' for bit in bits)}" if bits else "" if config.is_whole else None

    yield from _by_config(host, ports, look, "all minus", "bridges")


def ats(host: Host, expect: Expect) -> Iterator[Sight]:
    def look(config: ConfigSpace) -> str | None:
        return "ATS is off" if config.ats_enabled() is False else "" if config.is_whole else None

    yield from _by_config(host, network_cards(host), look, "on")


def relaxed_ordering(host: Host, expect: Expect) -> Iterator[Sight]:
    def look(config: ConfigSpace) -> str | None:
        allowed = config.relaxed_ordering()
        return None if allowed is None else "" if allowed else "DevCtl RlxdOrd-"

    yield from _by_config(host, network_cards(host), look, "RlxdOrd+")


def max_read_request(host: Host, expect: Expect) -> Iterator[Sight]:
    fast = {port.pci for port in host.fabric_ports if port.rate_Bps >= FAST_PORT_BPS * 0.99}
    cards = [(name, device) for name, device in network_cards(host) if device.address in fast]

    def look(config: ConfigSpace) -> str | None:
        size = config.max_read_request_bytes()
        return None if size is None else f"MaxReadReq {size}" if size < 4096 else ""

    yield from _by_config(host, cards, look, "4096")


def iommu(host: Host, expect: Expect) -> Iterator[Sight]:
    translated: dict[str, list[str]] = {}
    coherent = {gpu.pci.address for gpu in host.gpus if gpu.is_coherent}  # Grace translates for them, with ATS
    for name, device in endpoints(host):
        kind = host.root.text(f"{device.folder}/iommu_group/type") or ""
        if kind.startswith("DMA") and device.address not in coherent:
            translated.setdefault(kind, []).append(name)
    words = (host.root.text("proc/cmdline") or "").split()
    options = " ".join(word for word in words if "iommu" in word) or "no iommu option"
    for kind, names in translated.items():
        evidence = (f"iommu_group/type: {kind}", f"proc/cmdline: {options}")
        yield Sight("", f"IOMMU groups of {few(names)} are of type {kind}", "identity", evidence)


def errors(host: Host, expect: Expect) -> Iterator[Sight]:
    for name, device in endpoints(host):
        for kind in ("fatal", "nonfatal"):
            text = host.root.text(f"{device.folder}/aer_dev_{kind}") or ""
            match = re.search(rf"TOTAL_ERR_{kind.upper()} (\d+)", text)
            if match and int(match.group(1)) > 0:
                yield _seen(name, device, f"{int(match.group(1)):,} {kind} errors", "0", f"aer_dev_{kind}")


def gpu_nic_path(host: Host, expect: Expect) -> Iterator[Sight]:
    cards = network_cards(host)
    if host.environment.get("NCCL_TOPO_FILE") or len(cards) < len(host.gpus):
        return  # fewer cards than GPUs: some GPU has to reach across
    if all(gpu.is_coherent for gpu in host.gpus):
        return  # on Grace the way leads through the processor, by design
    best: dict[str, tuple[str, str]] = {}
    for gpu in host.gpus:
        kinds = [(host.pci.path_kind(gpu.pci.address, device.address), name) for name, device in cards]
        best[gpu.label] = min(kinds, key=lambda pair: ("PIX", "PXB", "PHB", "NODE", "SYS").index(pair[0]))
    far = {label: path for label, path in best.items() if path[0] not in NEAR}
    if len(far) == len(best):
        by = "/".join(sorted({kind for kind, _ in far.values()}))
        observed = f"all {len(far)} GPUs reach a network card only by {by}"
        yield Sight("", observed, "PIX or PXB", ("sys/bus/pci/devices",))
        return
    for label, (kind, name) in far.items():
        yield Sight(label, f"nearest network card {name} by {kind}", "PIX or PXB", ("sys/bus/pci/devices",))


def numa_unknown(host: Host, expect: Expect) -> Iterator[Sight]:
    lost = [name for name, device in endpoints(host) if device.numa < 0]
    if lost:
        yield Sight("", f"numa_node -1 for {few(lost)}", "0 or more", ("sys/bus/pci/devices/*/numa_node",))


def _able(host: Host, device: PciDevice, most: Callable[[PciDevice], float]) -> float:
    """Return what a link can do: the lesser of its two ends, 0 where neither tells."""
    ends = (device, *host.pci.above(device.address)[:1])
    return min((most(end) for end in ends if most(end)), default=0)


def _seen(name: str, device: PciDevice, observed: str, expected: str, file: str, at: PciDevice | None = None) -> Sight:
    """Return what was seen of a device, by a file of its own folder or of the port above it."""
    return Sight(f"{name} ({device.address})", observed, expected, (f"{(at or device).folder}/{file}",))


def _by_config(
    host: Host,
    devices: list[tuple[str, PciDevice]],
    look: Callable[[ConfigSpace], str | None],
    expected: str,
    what: str = "network cards",
) -> Iterator[Sight]:
    """Report what `look` says of configuration spaces: "" where all is well, None where it takes root to read."""
    hidden = 0
    for name, device in devices:
        observed = look(read_config(host.root, device))
        hidden += observed is None
        if observed:
            yield _seen(name, device, observed, expected, "config")
    if hidden:
        raise CannotTell(f"the configuration space of {hidden} of {len(devices)} {what} needs root")


def _emulated(device: PciDevice) -> bool:
    return device.speed == 2.5 and device.width == 1


RULES = (
    AuditRule("pcie.link.width", "GPUs and network cards use all lanes of their slot", link_width,
        "Bandwidth falls with the lanes; NCCL counts width times speed of the narrower end of the link.",
        "Reseat the card or riser, check the slot's bifurcation in the BIOS; then replace card or riser.",
        "NCCL topology search; imbue cluster-health fix_pcie_limited", needs="pci", action=Action.INSPECT),
    AuditRule("pcie.link.speed", "GPUs and network cards run at the speed of their slot", link_speed,
        "A link that trained down carries half or a quarter: the slowest card sets the pace of all ranks.",
        "Reboot to train the link again; then reseat or replace the card, riser or retimer; look for AER errors.",
        "NCCL topology search; kernel Documentation/PCI", needs="pci", action=Action.INSPECT),
    AuditRule("pcie.slot", "slots are as wide and fast as the cards in them", slot,
        "The card can do more than its slot: the slot is the limit.",
        "Move the card to a slot of its own width and generation, or set the slot's speed in the BIOS.",
        "NCCL topology search takes the slower end of a PCIe link", needs="pci metal", action=Action.INSPECT),
    AuditRule("pcie.bridge.emulated",
        "no emulated bridge of 2.5 GT/s x1 above GPUs and network cards, or a topology file says better",
        emulated_bridge,
        "NCCL believes the path has 0.2 GB/s and avoids it.",
        "Set NCCL_TOPO_FILE to a topology file of this machine type (`syncline fabric export ... nccl`).",
        "nccl-tests #256, nccl #1843 #1674", needs="vm pci"),
    AuditRule("pcie.acs", "ACS is off on the PCIe switches between GPUs and network cards", acs,
        "Peer traffic goes up to the root complex and back: GPUDirect is slow, hangs, or fails with status 4.",
        "On each boot: setpci -s BRIDGE ECAP_ACS+6.w=0000 for every PCIe switch port; or turn ACS off in the BIOS.",
        "NCCL troubleshooting, PCI Access Control Services; nccl #214 #304 #523 #606",
        needs="metal gpu rdma", severity=Severity.CRITICAL),
    AuditRule("pcie.ats", "address translation services are on for network cards of a virtual machine", ats,
        "Without ATS, peer traffic of a virtual machine goes through the root complex.",
        "Turn ATS on in the card's firmware (mlxconfig ATS_ENABLED=1) and hypervisor. Keep ACS on in a VM.",
        "NCCL troubleshooting, virtual machines", needs="vm gpu rdma"),
    AuditRule("pcie.relaxed_ordering", "network cards may use relaxed ordering", relaxed_ordering,
        "Strictly ordered writes wait for each other: bandwidth is lost on AMD processors and in virtual machines.",
        "Turn PCI relaxed ordering on in the BIOS and the card's firmware (mlxconfig PCI_WR_ORDERING=1).",
        "NCCL_IB_PCI_RELAXED_ORDERING in the NCCL user guide", needs="rdma"),
    AuditRule("pcie.max_read_request", "fast network cards ask for 4,096 bytes at once", max_read_request,
        "Small read requests keep a card of 200 Gb/s and more from filling its port.",
        "setpci -s CARD CAP_EXP+8.w (bits 14:12 = 5), or the BIOS setting Max Read Request; lasts until reboot.",
        "NVIDIA ConnectX performance tuning", needs="mlx"),
    AuditRule("kernel.iommu", "the IOMMU is off or passes GPUs and network cards through", iommu,
        "Every DMA is translated: GPUDirect is slow or fails with status 4 (local protection error).",
        "Add iommu=pt (and intel_iommu=on or amd_iommu=on where SR-IOV needs it) to the kernel command line; reboot.",
        "NCCL troubleshooting; nccl #928", needs="metal rdma", action=Action.RESTART),
    AuditRule("pcie.errors", "no fatal or non-fatal PCIe errors", errors,
        "The link lost transactions; expect retraining, resets, or a GPU that falls off the bus.",
        "Reseat the card and riser, update firmware; replace it if the count grows.",
        "kernel Documentation/PCI/pcieaer-howto", needs="pci", action=Action.INSPECT),
    AuditRule("topo.gpu_nic.path", "every GPU has a network card below the same PCIe switch", gpu_nic_path,
        "Beyond a PCIe switch GPUDirect is off (NCCL allows PXB by default) or slow: data goes through the CPU.",
        "Compare slots with the vendor's layout; in a VM set NCCL_TOPO_FILE; else NCCL_NET_GDR_LEVEL=PHB.",
        "NCCL_NET_GDR_LEVEL in the NCCL user guide; nccl #1464, nccl-tests #321",
        needs="gpu rdma", action=Action.ESCALATE),
    AuditRule("topo.numa.unknown", "GPUs and network cards have a NUMA node", numa_unknown,
        "Processes, interrupts and buffers land on a random socket.",
        "Update the BIOS (it must say _PXM for each root port); in a VM expose the NUMA topology.",
        "kernel ABI sysfs-bus-pci numa_node", needs="numa pci"),
)  # fmt: skip
