"""Files of one host: netplan with a routing table for each rail, the NIC's classes, and what NCCL must be told."""

from __future__ import annotations

import json
from collections.abc import Sequence

from syncline.install.addresses import HOST_PORTS, HostPort
from syncline.install.names import interface_of
from syncline.install.qos import CLASSES, HOST_MTU_BYTES, TRAINING

FIRST_TABLE = 100


def netplan(host: str, ports: Sequence[HostPort]) -> str:
    """Return a netplan file: an address and a routing table for each NIC."""
    lines = [
        f"# {host}: each rail answers over its own leaf; without a table a rail the kernel sends all over the first",
        "network:",
        "  version: 2",
        "  renderer: networkd",
        "  ethernets:",
    ]
    for number, port in enumerate(ports):
        table, name = FIRST_TABLE + number, interface_of(port.nic, port.nic_port)
        lines += [
            f"    {name}:  # {port.nic} to {port.leaf}",
            f"      mtu: {HOST_MTU_BYTES}  # a RoCE packet of 4,096 B and its headers, whole",
            "      dhcp4: false",
            f"      addresses: [{port.address}/31]",
            "      routes:",
            f"        - {{to: {HOST_PORTS}, via: {port.leaf_address}, table: {table}}}",
            f"        - {{to: {HOST_PORTS}, via: {port.leaf_address}, metric: {table}}}",
            "      routing-policy:",
            f"        - {{from: {port.address}/32, table: {table}}}",
        ]
    return "\n".join(lines) + "\n"


def udev_rules(host: str, ports: Sequence[HostPort]) -> str:
    """Return the rule that names NICs by rail; their PCI addresses are filled in on the host."""
    lines = [f"# {host}: rail N is the NIC of GPU N; put each NIC's PCI address where it says PCI-ADDRESS"]
    lines += [
        f'SUBSYSTEM=="net", ACTION=="add", KERNELS=="PCI-ADDRESS-{number}", NAME="{name}"'
        for number, name in enumerate(interface_of(port.nic, port.nic_port) for port in ports)
    ]
    return "\n".join(lines) + "\n"


def qos_script(host: str, ports: Sequence[HostPort]) -> str:
    """Return what sets the NICs' classes like the switches'."""
    pfc = ",".join("1" if queue == TRAINING.queue else "0" for queue in range(8))
    control = next(one for one in CLASSES if one.name == "control")
    lines = ["#!/bin/sh -e", f"# {host}: the same classes as on the switches; a NIC that differs is the one that drops"]
    for port in ports:
        name = interface_of(port.nic, port.nic_port)
        lines += [
            f"# {name}: the IP header says the class, there is no VLAN tag",
            f"mlnx_qos -i {name} --trust dscp",
            "# pause the training class only",
            f"mlnx_qos -i {name} --pfc {pfc}",
        ]
        lines += [f"mlnx_qos -i {name} --dscp2prio set,{dscp},{one.queue}" for one in CLASSES for dscp in one.dscp]
        lines += [
            "# answer marks with notices and slow down on them (DCQCN); notices travel in the control class",
            f"echo 1 > /sys/class/net/{name}/ecn/roce_np/enable/{TRAINING.queue}",
            f"echo 1 > /sys/class/net/{name}/ecn/roce_rp/enable/{TRAINING.queue}",
            f"echo {control.dscp[0]} > /sys/class/net/{name}/ecn/roce_np/cnp_dscp",
        ]
    return "\n".join(lines) + "\n"


def lldp_expected(ports: Sequence[HostPort], leaf_port: dict[tuple[str, int], str]) -> str:
    """Return what `lldpctl -f json` must show on this host, in the same form: `discover` reads either."""
    rows = [
        {
            interface_of(p.nic, p.nic_port): {
                "chassis": {p.leaf: {}},
                "port": {"id": {"type": "ifname", "value": leaf_port[p.leaf, p.leaf_port]}},
            }
        }
        for p in ports
    ]
    return json.dumps({"lldp": {"interface": rows}}, indent=1) + "\n"
