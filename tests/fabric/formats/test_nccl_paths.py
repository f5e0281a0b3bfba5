"""Paths between devices are those NCCL finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from lxml.etree import Element

from syncline.fabric.formats.nccl_paths import NcclGraph, integer, link_GBps, socket_GBps
from syncline.fabric.formats.nccl_xml import parse_nccl, read_nccl

FIXTURES = Path(__file__).parent / "fixtures" / "nccl"


def kinds(name, gpu=0):
    graph = NcclGraph(read_nccl(FIXTURES / name).root)
    return [graph.path(graph.gpus[gpu], nic).kind for nic in graph.nics]


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
    graph = NcclGraph(parse_nccl(text).root)
    assert graph.path(graph.gpus[0], graph.nics[0]).kind == kind


def test_c2c_and_a_root_port_make_p2c():
    assert kinds("own-gb200-tray.xml") == ["P2C", "SYS"]


def test_gpus_behind_nvswitches_are_nvl_to_all():
    graph = NcclGraph(read_nccl(FIXTURES / "own-h100-nvswitch.xml").root)
    first, *others = graph.gpus
    path = graph.path(others[-1], first)
    assert {graph.path(other, first).kind for other in others} == {"NVL"}
    assert path.rate_GBps == pytest.approx(18 * 20.6)


def test_an_nvlink_ring_relays_once():
    def gpu(i):
        links = "".join(f'<nvlink target="{j % 5:04x}:00:00.0" count="1" tclass="0x030200"/>' for j in (i + 1, i + 4))
        return f'<pci busid="{i:04x}:00:00.0" class="0x030200"><gpu dev="{i}" sm="70">{links}</gpu></pci>'

    text = f'<system version="1"><cpu numaid="0" arch="x86_64">{"".join(map(gpu, range(5)))}</cpu></system>'
    graph = NcclGraph(parse_nccl(text).root)
    assert [graph.path(g, graph.gpus[0]).kind for g in graph.gpus] == ["LOC", "NVL", "NVB", "NVB", "NVL"]


def test_a_link_between_two_switches_keeps_traffic_off_the_processor():
    def switch(i, peer, inner):
        return f'<pci busid="ffff:ff:0{i}.0" class="0x060400"><pcilink target="ffff:ff:0{peer}.0"/>{inner}</pci>'

    gpu, nic = ('<pci busid="0001:00:00.0" class="0x030200"/>', '<pci busid="0002:00:00.0" class="0x020700"/>')
    text = f'<system version="1"><cpu numaid="0">{switch(1, 2, gpu)}{switch(2, 1, nic)}</cpu></system>'
    graph = NcclGraph(parse_nccl(text).root)
    assert graph.path(graph.gpus[0], graph.nics[0]).kind == "PXB"


def test_two_ports_of_a_card_are_one_nic():
    graph = NcclGraph(read_nccl(FIXTURES / "own-gb200-tray.xml").root)
    assert [len(graph.places[nic].functions) for nic in graph.nics] == [1, 1]


def test_unknown_devices_are_disconnected():
    text = '<system version="1"><cpu numaid="0" host_hash="0x1"><pci busid="0001:00:00.0" class="0x03"/></cpu>'
    text += '<cpu numaid="0" host_hash="0x2"><pci busid="0002:00:00.0" class="0x02"/></cpu></system>'
    graph = NcclGraph(parse_nccl(text).root)
    assert graph.path(graph.gpus[0], graph.nics[0]).kind == "DIS"


@pytest.mark.parametrize(
    ("speed", "width", "rate"),
    [("8 GT/s", "16", 12), ("16.0 GT/s PCIe", "16", 24), ("32.0 GT/s PCIe", "16", 48), ("64.0 GT/s PCIe", "16", 96),
     ("2.5 GT/s PCIe", "1", 0.1875), ("", "0", 12), ("nonsense", "", 12)],
)  # fmt: skip
def test_pcie_bandwidths_are_ncclss(speed, width, rate):
    assert link_GBps(Element("pci", {"link_speed": speed, "link_width": width})) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("arch", "vendor", "family", "model", "rate"),
    [("x86_64", "GenuineIntel", 6, 143, 22), ("x86_64", "GenuineIntel", 6, 207, 40),
     ("x86_64", "GenuineIntel", 6, 173, 40), ("x86_64", "GenuineIntel", 6, 85, 10),
     ("x86_64", "GenuineIntel", 6, 79, 6), ("x86_64", "AuthenticAMD", 23, 49, 16),
     ("x86_64", "AuthenticAMD", 175, 1, 24), ("x86_64", "AuthenticAMD", 26, 2, 32), ("arm64", "ARM", 0, 0, 6)],
)  # fmt: skip
def test_socket_bandwidths_are_ncclss(arch, vendor, family, model, rate):
    pairs = (("arch", arch), ("vendor", vendor), ("familyid", str(family)), ("modelid", str(model)))
    assert socket_GBps(Element("cpu", dict(pairs))) == rate


def test_numbers_are_read_as_c_reads_them():
    assert [integer(t) for t in ("0x1f", "017", "7 lanes", " -3", "0", "")] == [31, 15, 7, -3, 0, 0]
    assert integer("x", 3) == 3
