"""Paths between devices are those NCCL finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.fabric.formats.nccl_paths import integer, path_kind, pci_devices
from syncline.fabric.formats.nccl_xml import parse_nccl, read_nccl

FIXTURES = Path(__file__).parent / "fixtures" / "nccl"


def kinds(name, gpu=0):
    return kinds_in(read_nccl(FIXTURES / name), gpu)


def kinds_in(topology, gpu=0):
    devices = pci_devices(topology.root)
    gpus, nics = ([device for device in devices if device.kind == kind] for kind in ("GPU", "NIC"))
    return [path_kind(gpus[gpu], nic) for nic in nics]


def test_one_switch_is_pix_another_of_the_socket_phb_the_other_socket_sys():
    assert kinds("azure-ndv5.xml") == ["PIX", "PHB", "PHB", "PHB", "SYS", "SYS", "SYS", "SYS"]
    assert kinds("aws-p4d.24xl.xml", gpu=2) == ["PHB", "PIX", "SYS", "SYS"]


def test_a_device_on_the_root_complex_is_phb():
    assert kinds("azure-ndv2.xml", gpu=0) == ["PHB"]
    assert kinds("azure-ndv2.xml", gpu=7) == ["SYS"]


def test_the_bridge_above_a_gpu_makes_pxb():
    assert kinds("own-a100-nested.xml")[:4] == ["PXB", "PXB", "PHB", "PHB"]


@pytest.mark.parametrize(("device", "kind"), [("0xc010", "PIX"), ("0xc012", "PXB")])
def test_the_two_levels_of_a_broadcom_switch_count_as_one(device, kind):
    def switch(i, inner):
        ids = f'vendor="0x1000" device="{device}" subsystem_vendor="0x1000" subsystem_device="0xa096"'
        return f'<pci busid="0000:{i:02x}:00.0" class="0x060400" {ids}>{inner}</pci>'

    gpu, nic = ('<pci busid="0001:00:00.0" class="0x030200"/>', '<pci busid="0002:00:00.0" class="0x020700"/>')
    text = f'<system version="1"><cpu numaid="0">{switch(1, switch(2, gpu) + switch(3, nic))}</cpu></system>'
    assert kinds_in(parse_nccl(text)) == [kind]


def test_c2c_and_a_root_port_make_p2c():
    assert kinds("own-gb200-tray.xml") == ["P2C", "SYS"]


def test_a_link_between_two_switches_keeps_traffic_off_the_processor():
    def switch(i, peer, inner):
        return f'<pci busid="ffff:ff:0{i}.0" class="0x060400"><pcilink target="ffff:ff:0{peer}.0"/>{inner}</pci>'

    gpu, nic = ('<pci busid="0001:00:00.0" class="0x030200"/>', '<pci busid="0002:00:00.0" class="0x020700"/>')
    text = f'<system version="1"><cpu numaid="0">{switch(1, 2, gpu)}{switch(2, 1, nic)}</cpu></system>'
    assert kinds_in(parse_nccl(text)) == ["PXB"]


def test_two_ports_of_a_card_are_one_nic():
    devices = pci_devices(read_nccl(FIXTURES / "own-gb200-tray.xml").root)
    assert [len(device.functions) for device in devices if device.kind == "NIC"] == [1, 1]


def test_unknown_devices_are_disconnected():
    text = '<system version="1"><cpu numaid="0" host_hash="0x1"><pci busid="0001:00:00.0" class="0x03"/></cpu>'
    text += '<cpu numaid="0" host_hash="0x2"><pci busid="0002:00:00.0" class="0x02"/></cpu></system>'
    assert kinds_in(parse_nccl(text)) == ["DIS"]


def test_numbers_are_read_as_c_reads_them():
    assert [integer(t) for t in ("0x1f", "017", "7 lanes", " -3", "0", "")] == [31, 15, 7, -3, 0, 0]
    assert integer("x", 3) == 3
