"""RDMA devices: port state, rate, MTU, GID table, firmware, user access."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from syncline.auditing.expect import Expect, nic_part
from syncline.auditing.rule import AuditRule, CannotTell, Sight, odd_ones
from syncline.describe import units
from syncline.finding import Action, Severity
from syncline.host.host import Host
from syncline.host.rdma import Gid, RdmaPort, chosen_gid


def port_down(host: Host, expect: Expect) -> Iterator[Sight]:
    for port in host.fabric_ports:
        if port.state and not port.is_active and not port.state.startswith("2"):
            observed = f"{port.state}, {port.physical or 'physical state unknown'}"
            evidence = (f"{port.folder}/state", f"{port.folder}/phys_state")
            yield Sight(port.name, observed, "4: ACTIVE, 5: LinkUp", evidence)


def port_init(host: Host, expect: Expect) -> Iterator[Sight]:
    for port in host.fabric_ports:
        if port.state.startswith("2") and not port.is_roce:
            yield Sight(port.name, port.state, "4: ACTIVE", (f"{port.folder}/state",))


def _siblings(host: Host, *, by_layer: bool) -> dict[tuple[str, str], list[RdmaPort]]:
    """Return active fabric ports by part and, where it is asked for, by link layer."""
    groups: dict[tuple[str, str], list[RdmaPort]] = defaultdict(list)
    for port in host.fabric_ports:
        if port.is_active and port.rate_Bps:
            groups[_part(host, port), port.layer if by_layer else ""].append(port)
    return groups


def port_rate(host: Host, expect: Expect) -> Iterator[Sight]:
    for (part, _), group in _siblings(host, by_layer=True).items():
        wanted = expect.rate_Bps or max(port.rate_Bps for port in group)
        by = expect.by(f"{part or 'the same card'} beside it")
        for port in group:
            if port.rate_Bps < wanted * 0.99:
                observed = f"{units.show_rate(port.rate_Bps)} ({port.rate_text})"
                yield Sight(port.name, observed, f"{units.show_rate(wanted)} ({by})", (f"{port.folder}/rate",))


def below_part(host: Host, expect: Expect) -> Iterator[Sight]:
    for (name, _), ports in _siblings(host, by_layer=False).items() if expect.rate_Bps is None else ():
        device = host.pci.devices.get(ports[0].pci)
        part = nic_part(device.id) if device else None
        rate = max(port.rate_Bps for port in ports)
        if part is not None and rate < part.max_Bps / part.num_ports * 0.99:
            expected = f"{units.show_rate(part.max_Bps / part.num_ports)} ({name})"
            evidence = tuple(f"{port.folder}/rate" for port in ports[:2])
            names = ", ".join(port.name for port in ports[:8])
            yield Sight(names, units.show_rate(rate), expected, evidence, confidence=0.5)


def layer_mixed(host: Host, expect: Expect) -> Iterator[Sight]:
    layers = Counter(port.layer for port in host.fabric_ports if port.is_active and port.layer)
    if len(layers) > 1:
        rare = min(layers, key=lambda layer: layers[layer])
        odd = ", ".join(port.name for port in host.fabric_ports if port.layer == rare)
        observed = f"{rare} beside {', '.join(layer for layer in layers if layer != rare)}"
        yield Sight(odd, observed, "one link layer", ("sys/class/infiniband/*/ports/*/link_layer",))


def user_access(host: Host, expect: Expect) -> Iterator[Sight]:
    verbs = [name for name in host.root.names("sys/class/infiniband_verbs") if name.startswith("uverbs")]
    there = set(host.root.names("dev/infiniband"))
    missing = [name for name in verbs if name not in there]
    if not verbs:
        wanted = "one uverbs device for each RDMA device"
        yield Sight("", "ib_uverbs is not loaded", wanted, ("sys/class/infiniband_verbs",))
    elif missing:
        observed, wanted = f"no device file for {', '.join(missing)}", f"{len(missing)} more in /dev/infiniband"
        yield Sight("", observed, wanted, ("dev/infiniband",))


def mtu(host: Host, expect: Expect) -> Iterator[Sight]:
    for port in host.fabric_ports:
        active, largest = (0, 0) if port.is_roce else host.active_mtu.get(port.name, (0, 0))
        wanted = min(expect.mtu_bytes or largest, largest)
        if active < wanted:
            yield Sight(port.name, f"active_mtu {active}", f"{wanted}", ("ibv_devinfo -v",))


def _routable_v2(gid: Gid) -> bool:
    return "v2" in gid.type and not gid.is_link_local


def gid_rocev2(host: Host, expect: Expect) -> Iterator[Sight]:
    for port in host.fabric_ports:
        if port.is_roce and port.is_active and not any(map(_routable_v2, port.gids)):
            kinds = ", ".join(f"{g.index}: {g.address} {g.type}" for g in port.gids[:4]) or "an empty GID table"
            yield Sight(port.name, kinds, "a RoCE v2 entry with a routable address", (f"{port.folder}/gids",))


def gid_index(host: Host, expect: Expect) -> Iterator[Sight]:
    text = host.environment.get("NCCL_IB_GID_INDEX", "")
    for port in host.fabric_ports if text.isdecimal() else ():
        gid = next((gid for gid in port.gids if gid.index == int(text)), None)
        if port.is_roce and (gid is None or not _routable_v2(gid)):
            good = " or ".join(str(g.index) for g in port.gids if _routable_v2(g)) or "of a RoCE v2 address"
            observed = f"GID index {text} " + ("is empty" if gid is None else f"is {gid.address} {gid.type}")
            yield Sight(port.name, observed, f"index {good}", ("NCCL_IB_GID_INDEX", f"{port.folder}/gids/{text}"))


def gid_family(host: Host, expect: Expect) -> Iterator[Sight]:
    ports = {port.name: port for port in host.fabric_ports if port.is_roce and port.is_active}
    taken = {name: gid for name, port in ports.items() if (gid := chosen_gid(port, host.environment)) is not None}
    usual, odd = odd_ones({name: gid.family for name, gid in taken.items()})
    for name, family in odd.items():
        index, folder = taken[name].index, ports[name].folder
        evidence = (f"{folder}/gids/{index}", f"{folder}/gid_attrs/types/{index}")
        yield Sight(name, f"{family} (index {index})", f"{usual} as on {len(taken) - len(odd)} others", evidence)


def firmware_mixed(host: Host, expect: Expect) -> Iterator[Sight]:
    boards: dict[str, dict[str, str]] = defaultdict(dict)
    for port in host.ports:
        if port.firmware and port.board:
            boards[port.board][port.device] = port.firmware
    for board, cards in boards.items():
        usual, odd = odd_ones(cards)
        if odd:
            shown = ", ".join(f"{device} {firmware}" for device, firmware in odd.items())
            expected = f"{usual} ({board}, {len(cards) - len(odd)} cards)"
            yield Sight(", ".join(odd), shown, expected, ("sys/class/infiniband/*/fw_ver",))


def library(host: Host, expect: Expect) -> Iterator[Sight]:
    folders = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib")
    listed = [name for folder in folders for name in host.root.names(folder)]
    if not listed:
        raise CannotTell("no library folder can be listed")
    if not any(name.startswith("libibverbs.so") for name in listed):
        yield Sight("", "no libibverbs.so", "libibverbs.so.1", folders[:1])


def _part(host: Host, port: RdmaPort) -> str:
    device = host.pci.devices.get(port.pci)
    part = nic_part(device.id) if device else None
    return part.name if part else (device.id if device else "")


RULES = (
    AuditRule("rdma.port.down", "every fabric port is ACTIVE", port_down,
        "NCCL leaves the port out: fewer NICs than on other hosts, a wrong rail, or a hang.",
        "Check cable and optic at both ends and the switch port; then ibstat / ip link.",
        "gcm iblink; nccl #234", needs="rdma", severity=Severity.CRITICAL, action=Action.INSPECT),
    AuditRule("rdma.port.init", "a subnet manager has brought every InfiniBand port up", port_init,
        "The cable works, but no subnet manager has configured the port: it carries no traffic.",
        "Check that a subnet manager runs (sminfo) and sees this port (ibdiagnet); the fabric's owner must look.",
        "InfiniBand port state INIT; ibstat(8)",
        needs="infiniband", severity=Severity.CRITICAL, action=Action.ESCALATE),
    AuditRule("rdma.port.rate", "every fabric port runs at full rate", port_rate,
        "The slowest rail sets the pace of every ring through it.",
        "Check cable, optic and the switch port's configured speed; a lost lane shows as 2X or 1X in the rate.",
        "gpud infiniband component; nccl #1412", needs="rdma", severity=Severity.CRITICAL, action=Action.INSPECT),
    AuditRule("rdma.port.below_part",
        "fabric ports run at the rate their card is sold for, or the cluster description says otherwise", below_part,
        "All ports agree, but their cards can do more: slow switch ports, cables, or a firmware setting.",
        "If the fabric is meant to be this fast, say so with --cluster FILE; else check the switch's port speed.",
        "the part catalogue (`syncline fabric parts nic`)", needs="rdma", action=Action.INSPECT),
    AuditRule("rdma.layer.mixed", "fabric ports are all InfiniBand or all Ethernet", layer_mixed,
        "NCCL refuses to connect devices of different link layers.",
        "Name the fabric's devices: NCCL_IB_HCA==mlx5_0:1,mlx5_1:1,...",
        "NCCL source: Attempted to connect incompatible devices; nccl #1363", needs="rdma", severity=Severity.CRITICAL),
    AuditRule("rdma.user_access", "programs may open every RDMA device", user_access,
        "NCCL finds no device and falls back to sockets.",
        "Load ib_uverbs; in a container pass /dev/infiniband (rdma device plugin, --device=/dev/infiniband).",
        "nccl #952 #958", needs="rdma", severity=Severity.CRITICAL),
    AuditRule("rdma.mtu", "InfiniBand ports use their largest MTU", mtu,
        "Small packets cost bandwidth; hosts with different MTU hang or fail with a local length error.",
        "Set the partition's MTU to 4096 in the subnet manager (partitions.conf mtu=5).",
        "nccl #1524, PR #2135", needs="infiniband"),
    AuditRule("rdma.gid.rocev2", "every RoCE port has a RoCE v2 address that can be routed", gid_rocev2,
        "Peers cannot reach the port: connections fail with status 12 or EINVAL.",
        "Give the interface an IPv4 (or global IPv6) address; check show_gids.",
        "nccl #426 #1405", needs="roce", severity=Severity.CRITICAL),
    AuditRule("rdma.gid.index", "NCCL_IB_GID_INDEX names a routable RoCE v2 entry on every fabric port", gid_index,
        "ibv_modify_qp fails with Invalid argument, or peers never answer (status 12).",
        "Unset NCCL_IB_GID_INDEX (NCCL 2.21 and later choose), or use the index of RoCE v2 with IPv4 (show_gids).",
        "NCCL_IB_GID_INDEX in the NCCL user guide; nccl #1664", needs="roce", severity=Severity.CRITICAL),
    AuditRule("rdma.gid.family",
        "all fabric ports have addresses of one family: RoCE version, IPv4 or IPv6", gid_family,
        "A port of one family cannot talk to ports of another: connections fail or never answer (status 12).",
        "Give every rail the same kinds of address; then show_gids must list RoCE v2 with IPv4 on each port.",
        "NCCL_IB_ADDR_FAMILY, NCCL_IB_ROCE_VERSION_NUM in the NCCL user guide; nccl #1405",
        needs="roce", severity=Severity.CRITICAL),
    AuditRule("rdma.firmware.mixed", "cards of one kind run one firmware", firmware_mixed,
        "Cards behave differently: defects, congestion control and defaults change between versions.",
        "Bring all cards to one version (mlxfwmanager / mstflint).",
        "gcm iblink; imbue cluster-health", needs="rdma"),
    AuditRule("rdma.library", "the verbs library is installed", library,
        "NCCL logs `Failed to open libibverbs.so` and falls back to sockets.",
        "Install rdma-core (libibverbs1) in this image or host.",
        "pytorch #68893", needs="rdma", severity=Severity.CRITICAL),
)  # fmt: skip
