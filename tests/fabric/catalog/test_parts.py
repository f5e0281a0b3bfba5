"""Parts of the catalogue: every data file, the arithmetic that claims rest on, hosts that fit together."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import yaml

from syncline.errors import CatalogError
from syncline.fabric.catalog import (
    KINDS,
    Cable,
    Gpu,
    HostModel,
    LinkType,
    Nic,
    PricedPart,
    Switch,
    load_catalog,
)
from syncline.fabric.catalog.catalog import _FILES, _key

CATALOG = load_catalog()
HOSTS = [part for part in CATALOG.parts("host") if isinstance(part, HostModel)]
GPUS = [part for part in CATALOG.parts("gpu") if isinstance(part, Gpu)]
NICS = [part for part in CATALOG.parts("nic") if isinstance(part, Nic)]
LINKS = [part for part in CATALOG.parts("link") if isinstance(part, LinkType)]
SWITCHES = [part for part in CATALOG.parts("switch") if isinstance(part, Switch)]
CABLES = [part for part in CATALOG.parts("cable") if isinstance(part, Cable)]
GB = 1e9


def by_name(part: Any) -> str:
    return str(part.name)


def test_loaded_once() -> None:
    assert load_catalog() is CATALOG


def test_every_kind_has_parts_and_every_part_a_source() -> None:
    for kind in KINDS:
        assert CATALOG.names(kind), kind
        assert all(part.source.strip() for part in CATALOG.parts(kind))


def test_every_price_says_who_says_so() -> None:
    for kind in KINDS:
        for part in CATALOG.parts(kind):
            if isinstance(part, PricedPart) and part.price_usd is not None:
                assert part.price_source
                # What is only remembered may not pass for a quote.
                assert part.price_is_estimate or "estimate" not in part.price_source, part.name
    assert all(cable.price_source for cable in CABLES)


@pytest.mark.parametrize("kind", KINDS)
def test_names_and_aliases_are_unique(kind: str) -> None:
    keys = [_key(name) for part in CATALOG.parts(kind) for name in (part.name, *part.aliases)]
    assert len(keys) == len(set(keys))


def test_data_files_hold_only_known_kinds() -> None:
    from importlib import resources

    folder = resources.files("syncline.fabric.catalog") / "data"
    on_disk = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    assert on_disk == sorted(f"{name}.yaml" for name in _FILES)
    for name in on_disk:
        assert set(yaml.safe_load((folder / name).read_text("utf-8"))) <= set(KINDS)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (
            "gpu",
            "V100 A100-40GB A100-80GB A100-PCIe H100-SXM H100-PCIe H100-96GB H800 H200 GH200 B200 GB200 B300 GB300",
        ),
        ("gpu", "MI250X MI300X MI355X TPU-v4 TPU-v5e TPU-v5p TPU-v7 GB10 L40S A10 T4"),
        ("scale_up", "NVLink1 NVLink2 NVLink3 NVLink4 NVLink5 xGMI2 xGMI3 xGMI4 ICI-v4 ICI-v5e ICI-v5p NVLink-C2C"),
        ("link", "EDR HDR HDR100 NDR NDR200 XDR 1GbE 10GbE 25GbE 40GbE 50GbE 100GbE 200GbE 400GbE 800GbE WAN"),
        ("link", "EFAv1 EFAv2 EFAv3 EFAv4 Slingshot-10 Slingshot-11 OPA100 OPA400 TCPX TCPXO"),
        (
            "nic",
            "ConnectX-4 ConnectX-5 ConnectX-6 ConnectX-7 ConnectX-8 BlueField-3 EFA2 Cassini Thor2 X520 X710 gVNIC",
        ),
        ("switch", "SB7800 QM8700 QM8790 CS8500 QM9700 QM9790 Q3400 SN4700 SN5400 SN5600 Spectrum-4 Minipack2 Rosetta"),
        (
            "host",
            "dgx-1-v100 dgx-2 dgx-a100 hgx-a100-4 dgx-h100 hgx-h100-8 dgx-h200 dgx-b200 dgx-b300 gb200-nvl72 p3dn",
        ),
        (
            "host",
            "gb300-nvl72 gh200-blade mi250x-blade mi300x-8 mi355x-8 p4d p4de p5 p5en p6-b200 p6e-gb200 nd-h100-v5",
        ),
        (
            "host",
            "nd-a100-v4 a3-high a3-mega a3-ultra a4 tpu-v4-host tpu-v5e-host tpu-v5p-host tpu-v7-host dgx-spark l40s-8",
        ),
    ],
)
def test_asked_for_parts_are_there(kind: str, names: str) -> None:
    for name in names.split():
        assert getattr(CATALOG, kind)(name)


def test_nvlink4_is_fourteen_times_pcie5() -> None:  # claim C36
    h100 = CATALOG.gpu("H100-SXM")
    assert h100.num_scale_up_links == 18
    one_way_Bps = CATALOG.scale_up_Bps(h100)
    assert one_way_Bps == 450 * GB
    pcie_Bps = CATALOG.pcie("PCIe5 x16").raw_Bps
    assert pcie_Bps == 64 * GB
    # The claim sets NVLink's both directions against one of PCIe; like against like it is 7.
    assert 2 * one_way_Bps / pcie_Bps == pytest.approx(14, rel=0.01)
    assert one_way_Bps / pcie_Bps == pytest.approx(7, rel=0.01)


@pytest.mark.parametrize(("name", "rate"), [("EDR", 12.5), ("HDR", 25), ("NDR", 50), ("XDR", 100)])  # claim C37
def test_infiniband_rates(name: str, rate: float) -> None:
    assert CATALOG.link(name).rate_Bps == rate * GB


@pytest.mark.parametrize(
    ("host", "interfaces", "total_Gbps"),
    [
        ("p3dn", 1, 100),
        ("p4d", 4, 400),
        ("p5", 32, 3200),
        ("p5en", 16, 3200),
        ("p6-b200", 8, 3200),
        ("p6e-gb200", 4, 1600),
    ],
)
def test_efa_of_each_instance(host: str, interfaces: int, total_Gbps: float) -> None:  # claim C40
    model = CATALOG.host(host)
    assert model.num_ports == interfaces
    assert model.link is not None
    assert model.num_ports * CATALOG.link(model.link).rate_Bps == total_Gbps * GB / 8


def test_gb200_domain() -> None:  # claim C41
    gb200 = CATALOG.gpu("GB200")
    assert 2 * CATALOG.scale_up_Bps(gb200) == 1800 * GB
    host = CATALOG.host("gb200-nvl72")
    assert host.scale_up_domain_gpus == 72 == 18 * host.num_gpus
    assert host.scale_up_switch is not None
    switch = CATALOG.scale_up_switch(host.scale_up_switch)
    assert switch.max_domain_gpus == 576
    # One link of each GPU to each switch chip: all ports used, none left.
    assert host.num_scale_up_switches * switch.num_ports == 72 * gb200.num_scale_up_links


@pytest.mark.parametrize(
    ("gpu", "both_ways_GB"),
    [
        *[
            ("V100", 300),
            ("A100", 600),
            ("H100", 900),
            ("H800", 400),
            ("H100-PCIe", 600),
            ("B200", 1800),
            ("GB300", 1800),
        ],
        *[
            ("MI300X", 896),
            ("MI355X", 1075.2),
            ("TPU-v4", 600),
            ("TPU-v5e", 400),
            ("TPU-v5p", 1200),
            ("TPU-v7", 1200),
            ("L40S", 0),
        ],
    ],
)
def test_scale_up_total_as_vendors_print_it(gpu: str, both_ways_GB: float) -> None:
    assert 2 * CATALOG.scale_up_Bps(CATALOG.gpu(gpu)) == pytest.approx(both_ways_GB * GB)


def test_nccl_sums_per_gpu() -> None:
    for gpu, sum_GB in [("A100", 240), ("H100", 370.8), ("B200", 721.8)]:
        part = CATALOG.gpu(gpu)
        assert part.scale_up is not None
        link_Bps = CATALOG.scale_up(part.scale_up).nccl_link_Bps
        assert link_Bps is not None
        assert part.num_scale_up_links * link_Bps == pytest.approx(sum_GB * GB)


@pytest.mark.parametrize("generation", [3, 4, 5, 6])
def test_pcie_doubles_each_generation(generation: int) -> None:
    full, half = CATALOG.pcie(f"PCIe{generation} x16"), CATALOG.pcie(f"gen{generation} x8")
    assert full.raw_Bps == 16 * GB * 2 ** (generation - 3) == 2 * half.raw_Bps
    assert 0.75 * full.raw_Bps < full.usable_Bps < full.raw_Bps


@pytest.mark.parametrize("gpu", GPUS, ids=by_name)
def test_dense_rates_rise_as_precision_falls(gpu: Gpu) -> None:
    ladder = [gpu.flops_at(precision) for precision in ("tf32", "bf16", "fp8", "fp4")]
    known = [rate for rate in ladder if rate is not None]
    most = 4.5 if gpu.architecture == "Rubin" else 3.1  # Rubin has few FP16 units for its FP8 ones
    assert all(2 * low * 0.98 <= high <= most * low for low, high in pairwise(known))
    assert gpu.flops.fp16 is None or gpu.flops.bf16 in (None, gpu.flops.fp16)


def test_rates_are_dense_not_sparse() -> None:
    for name, bf16 in [
        ("A100", 312e12),
        ("H100", 989.4e12),
        ("B200", 2250e12),
        ("GB200", 2500e12),
        ("MI300X", 1307.4e12),
    ]:
        assert CATALOG.gpu(name).flops_at("bf16") == bf16


@pytest.mark.parametrize("nic", NICS, ids=by_name)
def test_slot_feeds_the_card(nic: Nic) -> None:
    assert nic.max_Bps <= CATALOG.pcie(nic.pcie).raw_Bps
    assert max(CATALOG.link(link).rate_Bps for link in nic.links) <= nic.max_Bps


@pytest.mark.parametrize("switch", SWITCHES, ids=by_name)
def test_splitting_a_switch_adds_no_capacity(switch: Switch) -> None:
    assert len({_key(mode.link) for mode in switch.modes}) == len(switch.modes)
    if switch.reconfiguration_s is None:
        first = switch.modes[0]
        capacity = first.num_ports * CATALOG.link(first.link).rate_Bps
        assert all(mode.num_ports * CATALOG.link(mode.link).rate_Bps <= capacity for mode in switch.modes)


def test_switch_ports_by_rate() -> None:
    sn5600 = CATALOG.switch("SN5600")
    assert [CATALOG.num_ports(sn5600, CATALOG.link(n)) for n in ("800GbE", "400GbE", "200GbE")] == [64, 128, 256]
    qm9700 = CATALOG.switch("QM9700")
    assert CATALOG.num_ports(qm9700, CATALOG.link("NDR")) == 64
    # EFA rides on Ethernet ports.
    assert CATALOG.num_ports(CATALOG.switch("Tomahawk 3"), CATALOG.link("EFAv2")) == 128
    with pytest.raises(CatalogError) as caught:
        CATALOG.num_ports(qm9700, CATALOG.link("800GbE"))
    assert str(caught.value) == (
        'switch "QM9700" has no 800GbE ports.\n'
        "  It can be used as: 64 x NDR, 128 x NDR200, 64 x HDR.\n"
        "  Pick another link type or switch (list them with `syncline fabric parts switch`)."
    )


@pytest.mark.parametrize("link", LINKS, ids=by_name)
def test_usual_switch_has_ports_and_a_cable_exists(link: LinkType) -> None:
    assert link.usual_switch is not None
    assert CATALOG.num_ports(CATALOG.switch(link.usual_switch), link) >= 32
    assert CATALOG.cable_for(link, 2.0).rate_Bps >= link.rate_Bps


@pytest.mark.parametrize("host", HOSTS, ids=by_name)
def test_host_is_made_of_parts_that_fit(host: HostModel) -> None:
    gpu = CATALOG.gpu(host.gpu)
    assert host.nic is not None
    assert host.link is not None
    nic = CATALOG.nic(host.nic)
    assert _key(host.link) in {_key(link) for link in nic.links}
    assert host.ports_per_nic <= nic.num_ports
    assert CATALOG.pcie(host.gpu_pcie).generation <= CATALOG.pcie(gpu.pcie).generation
    assert (host.scale_up_topology in ("pcie", "none")) or gpu.scale_up is not None
    assert (host.scale_up_topology == "nvswitch") == (host.scale_up_switch is not None)
    assert host.scale_up_domain_gpus % host.num_gpus == 0
    assert host.power_w > host.num_gpus * gpu.power_w * 0.9


@pytest.mark.parametrize("host", [h for h in HOSTS if h.scale_up_switch], ids=by_name)
def test_nvswitch_host_has_ports_for_its_links(host: HostModel) -> None:
    gpu, switch = CATALOG.gpu(host.gpu), CATALOG.scale_up_switch(str(host.scale_up_switch))
    domain = host.scale_up_domain_gpus or host.num_gpus
    assert _key(switch.link) == _key(str(gpu.scale_up))
    assert domain <= switch.max_domain_gpus
    assert domain * gpu.num_scale_up_links <= host.num_scale_up_switches * switch.num_ports


@pytest.mark.parametrize("host", [h for h in HOSTS if h.scale_up_topology == "mesh"], ids=by_name)
def test_mesh_gives_each_pair_whole_links(host: HostModel) -> None:
    assert CATALOG.gpu(host.gpu).num_scale_up_links % (host.num_gpus - 1) == 0


def test_pcie_layout_divides() -> None:
    for host in HOSTS:
        if host.gpus_per_pcie_switch:
            assert host.num_gpus % host.gpus_per_pcie_switch == 0, host.name
            if host.nics_per_pcie_switch:
                num_pcie_switches = host.num_gpus // host.gpus_per_pcie_switch
                assert host.num_nics == num_pcie_switches * host.nics_per_pcie_switch, host.name


def test_polaris_path_cap() -> None:
    host = CATALOG.host("polaris")
    assert host.nic_path == "PHB"
    assert host.nic_path_cap_Bps == 19.2 * GB
    assert host.nic_path_cap_Bps < CATALOG.link("Slingshot-11").rate_Bps
