"""Sockets: which interface collectives take, its rate, and how TCP is set; for bootstrap and hosts without RDMA."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from syncline.auditing.expect import Expect
from syncline.auditing.rule import AuditRule, CannotTell, Sight
from syncline.describe import units
from syncline.finding import Action, Severity
from syncline.host.host import Host, interface_matches
from syncline.host.interface import IP_ADDRESS, Interface

RTT_S = 1e-3
"""A window for this round trip: within a data centre under load."""
GOOD_CONTROL = ("cubic", "bbr", "bbr2", "bbr3", "dctcp", "htcp")
MIN_PORTS = 10_000
MIN_RING = 1024
_OFFLOADS = (
    "tcp-segmentation-offload", "generic-segmentation-offload", "generic-receive-offload", "rx-checksumming",
    "tx-checksumming",
)  # fmt: skip


def rate(host: Host, expect: Expect) -> Iterator[Sight]:
    groups: dict[str, list[Interface]] = defaultdict(list)
    for interface in host.fabric_interfaces:
        if interface.is_up and interface.speed_Mbps and interface.is_physical:
            device = host.pci.devices.get(interface.pci)
            groups[f"{interface.driver} {device.id if device else ''}"].append(interface)
    for group in groups.values():
        wanted = expect.rate_Bps or max(interface.rate_Bps for interface in group)
        expected = f"{units.show_rate(wanted)} ({expect.by('the same card beside it')})"
        for interface in group:
            if interface.rate_Bps < wanted * 0.99:
                observed, evidence = units.show_rate(interface.rate_Bps), (f"{interface.folder}/speed",)
                yield Sight(interface.name, observed, expected, evidence)


def duplex(host: Host, expect: Expect) -> Iterator[Sight]:
    for interface in host.fabric_interfaces:
        if interface.duplex == "half":
            yield Sight(interface.name, "half duplex", "full", (f"{interface.folder}/duplex",))


def choice(host: Host, expect: Expect) -> Iterator[Sight]:
    if host.environment.get("NCCL_SOCKET_IFNAME"):
        return
    with_address = [i for i in host.interfaces if i.is_up and i.addresses and not i.is_loopback]
    taken = [i for i in with_address if not i.name.startswith(("docker", "virbr"))]
    first = next((i for i in taken if i.name.startswith("ib")), None) or next(iter(_kernel_order(host, taken)), None)
    real = [i for i in with_address if not i.is_virtual_plumbing]
    if first is not None and first.is_virtual_plumbing and real:
        observed = f"NCCL would take {first.name} ({first.kind or 'virtual'})"
        yield Sight(first.name, observed, real[0].name, ("ip address",))


def no_address(host: Host, expect: Expect) -> Iterator[Sight]:
    answer = host.root.command("ip-address", IP_ADDRESS)
    if answer is not None and not any(i.addresses for i in host.interfaces if i.is_up and not i.is_loopback):
        yield Sight("", "no interface but loopback has an address", "one at least", ("ip address",))


def congestion(host: Host, expect: Expect) -> Iterator[Sight]:
    value = host.sysctl("net.ipv4.tcp_congestion_control")
    if value is None:
        raise CannotTell("the congestion control cannot be read")
    if value and value not in GOOD_CONTROL:
        yield Sight("TCP", value, "cubic, bbr or dctcp", ("proc/sys/net/ipv4/tcp_congestion_control",))


def buffers(host: Host, expect: Expect) -> Iterator[Sight]:
    fastest = max(expect.rate_Bps or 0.0, *(i.rate_Bps for i in host.fabric_interfaces if i.is_physical), 0.0)
    wanted = fastest * RTT_S
    for name in ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"):
        numbers = (host.sysctl(name) or "").split()
        if len(numbers) == 3 and numbers[2].isdecimal() and int(numbers[2]) < wanted:
            observed = f"{name} at most {units.show_size(int(numbers[2]))}"
            expected = f"{units.show_size(round(wanted))} ({units.show_rate(fastest)} for 1 ms)"
            yield Sight("TCP", observed, expected, (f"proc/sys/{name.replace('.', '/')}",))


def offload(host: Host, expect: Expect) -> Iterator[Sight]:
    for interface in host.fabric_interfaces:
        text = host.root.command(f"ethtool-k-{interface.name}", ("ethtool", "-k", interface.name))
        off = [name for name in _OFFLOADS if re.search(rf"^{name}: off(?! \[fixed\])", text or "", re.MULTILINE)]
        if off:
            yield Sight(interface.name, f"off: {', '.join(off)}", "on", (f"ethtool -k {interface.name}",))


def ring(host: Host, expect: Expect) -> Iterator[Sight]:
    for interface in host.fabric_interfaces:
        if not interface.is_physical or interface.driver.startswith("virtio"):
            continue
        text = host.root.command(f"ethtool-g-{interface.name}", ("ethtool", "-g", interface.name)) or ""
        sizes = [int(number) for number in re.findall(r"^RX:\s+(\d+)", text, re.MULTILINE)]
        if len(sizes) == 2 and sizes[1] < MIN_RING <= sizes[0] / 2:
            yield Sight(interface.name, f"RX ring {sizes[1]}", f"up to {sizes[0]}", (f"ethtool -g {interface.name}",))


def port_range(host: Host, expect: Expect) -> Iterator[Sight]:
    numbers = (host.sysctl("net.ipv4.ip_local_port_range") or "").split()
    if len(numbers) == 2 and all(n.isdecimal() for n in numbers) and int(numbers[1]) - int(numbers[0]) < MIN_PORTS:
        observed, evidence = f"local ports {numbers[0]} to {numbers[1]}", ("proc/sys/net/ipv4/ip_local_port_range",)
        yield Sight("TCP", observed, f"at least {MIN_PORTS:,}", evidence)


def ifname_missing(host: Host, expect: Expect) -> Iterator[Sight]:
    for name, value in _choices(host):
        if not any(interface_matches(value, i.name) for i in host.interfaces):
            known = ", ".join(i.name for i in host.interfaces if not i.is_loopback)
            yield Sight(name, f"{name}={value} matches nothing", f"one of {known}", (name, "ip address"))


def ifname_down(host: Host, expect: Expect) -> Iterator[Sight]:
    for name, value in _choices(host):
        matching = [i for i in host.interfaces if interface_matches(value, i.name) and not value.startswith("^")]
        if matching and not any(i.is_up for i in matching):
            first = matching[0]
            observed, evidence = f"{name}={value}, but it is {first.state}", (name, f"{first.folder}/operstate")
            yield Sight(first.name, observed, "up", evidence)


def ifname_wrong(host: Host, expect: Expect) -> Iterator[Sight]:
    usable = [i for i in host.interfaces if i.is_up and i.addresses and not i.is_loopback and not i.is_virtual_plumbing]
    best = max(usable, key=lambda i: i.speed_Mbps, default=None)
    up = [i for i in host.interfaces if i.is_up]
    for name, value in _choices(host):
        matching = [i for i in up if interface_matches(value, i.name) and not value.startswith("^")]
        for interface in matching[:1]:
            if (interface.is_loopback or interface.is_virtual_plumbing) and usable:
                yield Sight(interface.name, f"{name}={value}", usable[0].name, (name,))
            elif best and not host.ports and 0 < 2 * interface.speed_Mbps <= best.speed_Mbps:
                observed = f"{name}={value} at {units.show_rate(interface.rate_Bps)}"
                expected = f"{best.name} at {units.show_rate(best.rate_Bps)}"
                yield Sight(interface.name, observed, expected, (name, f"{interface.folder}/speed"))


def _choices(host: Host) -> list[tuple[str, str]]:
    names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
    return [(name, host.environment[name]) for name in names if host.environment.get(name)]


def _kernel_order(host: Host, interfaces: list[Interface]) -> list[Interface]:
    """Return interfaces in the order in which the kernel lists them, as NCCL sees them."""
    lines = (host.root.text("proc/net/dev") or "").splitlines()[2:]
    order = {line.split(":", 1)[0].strip(): at for at, line in enumerate(lines)}
    return sorted(interfaces, key=lambda i: order.get(i.name, len(order)))


RULES = (
    AuditRule("net.rate", "interfaces for sockets run at full rate", rate,
        "The slowest interface sets the pace of every ring through it.",
        "Check cable, optic and the switch port; ethtool IF shows what both ends advertise.",
        "kernel ABI sysfs-class-net speed",
        needs="sockets fabric_interface", severity=Severity.CRITICAL, action=Action.INSPECT),
    AuditRule("net.duplex", "interfaces send and receive at once", duplex,
        "Half duplex: collisions, and less than half of the rate.",
        "Let both ends negotiate (ethtool -s IF autoneg on).",
        "kernel ABI sysfs-class-net duplex",
        needs="fabric_interface", severity=Severity.CRITICAL, action=Action.INSPECT),
    AuditRule("net.interface.choice", "collectives pick a real interface by default", choice,
        "NCCL takes the first that is neither loopback nor docker: peers cannot reach a bridge.",
        "Set NCCL_SOCKET_IFNAME (and GLOO_SOCKET_IFNAME) to the interface that reaches the other hosts.",
        "nccl-tests #15, horovod #310, nccl #177", needs="interface"),
    AuditRule("net.interface.default", "Gloo and the rendezvous have an address to use", no_address,
        "No interface but loopback has an address: ranks on other hosts cannot connect.",
        "Bring the interface up and give it an address.",
        "NCCL: no socket interface found", needs="interface", severity=Severity.CRITICAL),
    AuditRule("net.tcp.congestion", "TCP uses a congestion control made for fast links", congestion,
        "An old congestion control fills a fast link slowly after every loss.",
        "sysctl net.ipv4.tcp_congestion_control=cubic (or bbr, or dctcp where switches mark)",
        "kernel ip-sysctl tcp_congestion_control", needs="sockets own_tcp"),
    AuditRule("net.tcp.buffers", "TCP windows can grow to what the link holds in flight", buffers,
        "One connection cannot fill the link: it waits for acknowledgements.",
        "sysctl net.ipv4.tcp_rmem and tcp_wmem (third number), net.core.rmem_max and wmem_max: rate times round trip.",
        "kernel ip-sysctl tcp_rmem", needs="sockets fabric_interface"),
    AuditRule("net.offload", "interfaces cut and join packets in hardware", offload,
        "The processor handles every packet of 1,500 bytes itself: a core is full long before the link.",
        "ethtool -K IF tso on gso on gro on rx on tx on",
        "ethtool(8)", needs="sockets fabric_interface"),
    AuditRule("net.ring", "receive rings are not at their smallest", ring,
        "Bursts overflow the ring: packets are dropped before the processor sees them.",
        "ethtool -G IF rx MAXIMUM",
        "ethtool(8)", needs="sockets fabric_interface"),
    AuditRule("net.port_range", "there are enough ports for connections", port_range,
        "Bootstrap of a large job runs out of local ports.",
        'sysctl net.ipv4.ip_local_port_range="32768 60999"',
        "nccl #526", needs="interface"),
    AuditRule("env.socket_ifname.missing",
        "NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME name an interface that is there", ifname_missing,
        "Bootstrap finds no interface and the job does not start.",
        "Name an interface of `ip address`, or unset it.",
        "NCCL_SOCKET_IFNAME in the NCCL user guide", needs="environment", severity=Severity.CRITICAL),
    AuditRule("env.socket_ifname.down", "the interface chosen for sockets is up and has an address", ifname_down,
        "Ranks bind to an interface that carries nothing, and hang.",
        "Bring it up, or choose another.",
        "NCCL_SOCKET_IFNAME in the NCCL user guide",
        needs="environment", severity=Severity.CRITICAL, action=Action.INSPECT),
    AuditRule("env.socket_ifname.wrong", "the interface chosen for sockets is the fabric's", ifname_wrong,
        "Collectives over sockets use loopback, a bridge or the slow management network.",
        "Name the fast interface.",
        "nccl #177, horovod #789", needs="environment", severity=Severity.CRITICAL),
)  # fmt: skip
