"""A topology becomes a host that builds, with the hardware the file names."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.errors import DescriptionError
from syncline.fabric import build
from syncline.fabric.catalog import load_catalog
from syncline.fabric.fabric import DeviceKind
from syncline.fabric.formats.nccl_host import describe, pci_ids, to_host
from syncline.fabric.formats.nccl_xml import parse_nccl, read_nccl

FIXTURES = Path(__file__).parent / "fixtures" / "nccl"


def host_of(name, **options):
    return to_host(read_nccl(FIXTURES / name), **options)


def test_a_dump_says_what_its_gpus_and_cards_are():
    host = describe(read_nccl(FIXTURES / "own-h100-nvswitch.xml"))
    assert {gpu.part for gpu in host.gpus} == {"H100-SXM5-80GB"}
    assert [gpu.numa for gpu in host.gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert (host.gpus[0].sm, host.gpus[0].num_nvlinks, host.num_nvswitches) == (90, 18, 4)
    assert (host.nics[0].part, host.nics[0].speed_Mbps, host.nics[0].infiniband) == ("ConnectX-7", 400_000, True)
    assert (host.path(0, 0), host.path(0, 1), host.path(0, 7), host.nic_path) == ("PIX", "PHB", "SYS", "PIX")
    assert (host.gpus_per_switch, host.nics_per_switch) == (1, 1)


def test_c2c_and_cards_of_two_functions():
    host = describe(read_nccl(FIXTURES / "own-gb200-tray.xml"))
    assert host.gpus[0].c2c_Bps == pytest.approx(447.12e9)
    assert host.nics[0].nets == ("mlx5_0", "mlx5_1")
    model = to_host(read_nccl(FIXTURES / "own-gb200-tray.xml")).parts["host"][0]
    assert (model["nic_path"], model["num_nics"], model["ports_per_nic"]) == ("C2C", 2, 2)


@pytest.mark.parametrize(
    ("name", "options", "gpu", "gpus", "nics", "link", "path"),
    [
        ("own-h100-nvswitch.xml", {}, "H100-SXM5-80GB", 8, 8, "NDR", "PIX"),
        ("own-a100-nested.xml", {}, "A100-SXM4-80GB", 8, 8, "HDR", "PXB"),
        ("own-gb200-tray.xml", {}, "GB200", 4, 2, "NDR", "C2C"),
        ("aws-p5.48xl.xml", {"nic": "EFA-v2 adapter"}, "H100-SXM5-80GB", 8, 32, "EFAv2", "PIX"),
        ("aws-p4d.24xl.xml", {"gpu": "A100-40GB"}, "A100-SXM4-40GB", 8, 4, None, "PIX"),
        ("azure-ndv5.xml", {"gpu": "H100", "link": "NDR"}, "H100-SXM5-80GB", 8, 8, "NDR", "PIX"),
        ("azure-ndv4.xml", {"gpu": "A100", "link": "HDR"}, "A100-SXM4-80GB", 8, 8, "HDR", "PIX"),
        ("azure-ndv2.xml", {"gpu": "V100"}, "V100-SXM2-32GB", 8, 1, None, "SYS"),
        ("azure-ncv4.xml", {}, "A100-PCIe-80GB", 4, 1, None, "SYS"),
        ("rccl-4p-942.xml", {"gpu": "MI300X"}, "MI300X", 4, 4, None, "PHB"),
    ],
)
def test_every_kind_of_file_builds_a_host(name, options, gpu, gpus, nics, link, path):
    spec = host_of(name, **options)
    fabric = build(spec)
    assert (fabric.num_hosts, fabric.num_gpus, len(fabric.nics)) == (1, gpus, nics)
    row = spec.parts["host"][0]
    assert (row["gpu"], row["nic_path"]) == (gpu, path)
    assert link is None or row["link"] == link
    assert (fabric.devices.kind == DeviceKind.CPU).sum() == describe(read_nccl(FIXTURES / name)).num_numa


def test_pcie_generation_processor_and_switches_follow_the_file():
    spec = host_of("own-a100-nested.xml")
    row = spec.parts["host"][0]
    assert (row["gpu_pcie"], row["gpus_per_pcie_switch"], row["nics_per_pcie_switch"]) == ("PCIe4 x16", 2, 2)
    assert (row["cpu"]["nccl_vendor"], row["cpu"]["nccl_family"]) == ("AuthenticAMD", 143)
    assert row["num_scale_up_switches"] == 6
    assert (build(spec).devices.kind == DeviceKind.PCIE).sum() == 4


def test_files_that_do_not_name_the_gpu_ask_for_it():
    with pytest.raises(DescriptionError, match="has 8 GPUs but does not say which") as caught:
        host_of("azure-ndv5.xml")
    assert "H100" in caught.value.hint


def test_a_file_without_classes_names_no_gpu():
    with pytest.raises(DescriptionError, match="names no GPU"):
        host_of("aws-g5.48xl.xml")


def test_a_card_without_speed_counts_ten_gigabit():
    text = '<system version="1"><cpu numaid="0"><pci busid="0001:00:00.0" class="0x03"><gpu sm="80"/></pci>'
    text += '<nic><net name="eth0" speed="-1"/></nic></cpu></system>'
    assert describe(parse_nccl(text)).nics[0].speed_Mbps == 10_000


def test_all_pci_numbers_lead_to_parts_of_the_catalogue():
    catalog = load_catalog()
    for kind in ("gpu", "nic"):
        assert set(pci_ids()[kind].values()) <= set(catalog.names(kind))
    assert set(pci_ids()["sm"].values()) <= set(catalog.names("gpu"))


def test_amd_counts_sm_otherwise():
    """RCCL's dumps of a two-socket machine with MI210: sm 90 is no H100, and a host of one socket lends no rate."""
    gpu = '<pci busid="0000:{0}:00.0" class="0x038000" vendor="0x1002" device="0x740f" link_width="16">'
    cpu = '<cpu numaid="{0}" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">'
    inner = '<gpu dev="{0}" sm="90" gcn="910" arch="38911" rank="{0}" gdr="1"/></pci>'
    parts = "".join(cpu.format(i) + gpu.format(f"{i + 1}3") + inner.format(i) + "</cpu>" for i in range(2))
    topology = parse_nccl(f'<system version="2">{parts}</system>', "topo.xml")
    with pytest.raises(DescriptionError, match="1002:740f, which are no parts of the catalogue"):
        to_host(topology)
    assert build(to_host(topology, gpu="MI250X")).num_gpus == 2
