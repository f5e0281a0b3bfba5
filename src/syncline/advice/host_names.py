"""What NCCL must be told by name, read on a host or in a capture of one, and the topology that its PCI tree shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

from syncline.host.host import Host
from syncline.host.pci import PciDevice
from syncline.host.rdma import RdmaPort, chosen_gid
from syncline.host.root import Root

_FILES = ("/opt/microsoft/ndv5-topo.xml", "/opt/microsoft/ndv4-topo.xml", "/dev/aperture_devices")


@dataclass(frozen=True)
class HostNames:
    """Names on one host: NICs in the order of their GPUs, interfaces, the bootstrap's, files, and NCCL's release."""

    source: str
    nics: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()
    bootstrap: str = ""
    gid_index: int | None = None
    files: frozenset[str] = frozenset()
    nccl: str = ""
    plugins: tuple[str, ...] = ()
    topology: str = ""


def read_names(root: Root) -> HostNames:
    """Return what a host (or a capture of one) says."""
    host = Host(root)
    ports = sorted(host.fabric_ports, key=lambda port: _order(host, port))
    fabric = {name for port in ports for name in port.interfaces}
    own = [name for name in host.default_routes if name not in fabric] or list(host.default_routes)
    indices = {gid.index for port in ports if port.is_roce and (gid := chosen_gid(port, {})) is not None}
    return HostNames(
        host.name,
        tuple(port.device for port in ports if port.driver != "efa"),
        tuple(
            dict.fromkeys("EFA" if port.driver == "efa" else "RoCE" if port.is_roce else "InfiniBand" for port in ports)
        ),
        tuple(interface.name for interface in host.interfaces),
        own[0] if own else "",
        indices.pop() if len(indices) == 1 else None,
        frozenset(path for path in _FILES if root.exists(path)),
        host.nccl_versions[-1] if host.nccl_versions else "",
        host.nccl_plugins,
        "\n".join(_topology(host, ports)) if host.gpus else "",
    )


def _order(host: Host, port: RdmaPort) -> tuple[int, str]:
    """Return where a NIC stands: beside the first GPU that it is nearest to."""
    kinds = ("PIX", "PXB", "PHB", "NODE", "SYS")
    near = [
        (kinds.index(host.pci.path_kind(gpu.pci.address, port.pci)), gpu.index)
        for gpu in host.gpus
        if port.pci in host.pci.devices
    ]
    return min(near)[1] if near else 0, port.pci


def _topology(host: Host, ports: Iterable[RdmaPort]) -> Iterator[str]:
    """Yield the lines of an NCCL topology: CPUs by NUMA node, PCI bridges, GPUs and NICs as the bus has them."""
    nics = {port.pci: (number, port) for number, port in enumerate(ports)}
    wanted = {gpu.pci.address for gpu in host.gpus} | set(nics)
    arch = "x86_64" if "flags" in (host.root.text("proc/cpuinfo") or "flags") else "arm64"
    yield '<system version="1">'
    for numa in sorted({max(host.pci.devices[address].numa, 0) for address in wanted}):
        yield f'  <cpu numaid="{numa}" affinity="" arch="{arch}">'
        tops = {
            device.chain[1]: None
            for address in sorted(wanted)
            if max((device := host.pci.devices[address]).numa, 0) == numa and len(device.chain) > 1
        }
        for top in tops:
            if top in host.pci.devices:
                yield from _branch(host, host.pci.devices[top], wanted, nics, "    ")
        yield "  </cpu>"
    yield "</system>"


def _branch(
    host: Host, device: PciDevice, wanted: set[str], nics: dict[str, tuple[int, RdmaPort]], indent: str
) -> Iterator[str]:
    below = [
        one
        for one in host.pci
        if one.parent == device.address and any(one.address in host.pci.devices[leaf].chain for leaf in wanted)
    ]
    speed, width = f"{device.speed:.1f} GT/s PCIe" if device.speed else "", device.width or 16
    head = f'{indent}<pci busid="{device.address}" class="0x{device.class_code:06x}" vendor="0x{device.vendor:04x}" '
    head += f'device="0x{device.device:04x}" link_speed="{speed}" link_width="{width}"'
    gpu = next((gpu for gpu in host.gpus if gpu.pci.address == device.address), None)
    if gpu is not None:
        yield from (f"{head}>", f'{indent}  <gpu dev="{gpu.index}"/>', f"{indent}</pci>")
    elif device.address in nics:
        number, port = nics[device.address]
        speed_Mbps = f"{port.rate_Bps * 8 / 1e6:.0f}"
        net = f'<net name={quoteattr(port.device)} dev="{number}" speed="{speed_Mbps}" port="{port.port}"/>'
        yield from (f"{head}>", f"{indent}  <nic>", f"{indent}    {net}", f"{indent}  </nic>", f"{indent}</pci>")
    elif below:
        yield f"{head}>"
        for one in sorted(below, key=lambda each: each.address):
            yield from _branch(host, one, wanted, nics, indent + "  ")
        yield f"{indent}</pci>"
