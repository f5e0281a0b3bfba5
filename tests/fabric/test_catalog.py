"""The catalogue: every data file, the arithmetic that claims rest on, cable choice, and the texts of its errors."""

from __future__ import annotations

import csv
from itertools import pairwise
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from syncline.errors import CatalogError, DescriptionError
from syncline.fabric.catalog import (
    KINDS,
    Cable,
    Catalog,
    Gpu,
    HostModel,
    LinkType,
    Nic,
    PricedPart,
    Switch,
    load_catalog,
)
from syncline.fabric.catalog.catalog import _FILES, _key
from syncline.report.text.fabric import part_rows

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


# --- the files ---


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
                assert part.price_is_estimate or "recalled" not in part.price_source, part.name
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
        ("gpu", "MI250X MI300X MI355X TPU-v4 TPU-v5e TPU-v5p L40S A10 T4"),
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
            "nd-a100-v4 a3-high a3-mega a3-ultra a4 tpu-v4-host tpu-v5e-host tpu-v5p-host old-server-10gbe l40s-8",
        ),
    ],
)
def test_asked_for_parts_are_there(kind: str, names: str) -> None:
    for name in names.split():
        assert getattr(CATALOG, kind)(name)


# --- arithmetic that claims rest on ---


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
        *[("MI300X", 896), ("MI355X", 1075.2), ("TPU-v4", 600), ("TPU-v5e", 400), ("TPU-v5p", 1200), ("L40S", 0)],
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
    assert all(2 * low * 0.98 <= high <= 3.1 * low for low, high in pairwise(known))
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


# --- hosts ---


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


# --- cables and money ---


def network_capex(num_gpus: int, num_uplinks: int) -> float:
    """Connectors and cables: one NDR link of 20 m per GPU to its leaf, uplinks of 30 m."""
    ndr = CATALOG.link("NDR")
    access, uplink = CATALOG.cable_for(ndr, 20), CATALOG.cable_for(ndr, 30)
    assert access.kind == uplink.kind == "multimode"
    return num_gpus * access.price_usd(20) + num_uplinks * uplink.price_usd(30)


SHEET = """num_gpus,num_switches,switches_usd,cables_usd
512,8,288000,675840
1024,48,1728000,2621440
"""
"""H100 Freakonomics spreadsheet (substack.tech-talk-cto.com), Aug 2024: network of 512 and 1,024 H100."""


@pytest.mark.parametrize("row", list(csv.DictReader(SHEET.splitlines())), ids=lambda row: row["num_gpus"])
def test_cable_prices_reproduce_published_bill(row: dict[str, str]) -> None:
    num_gpus, num_switches = int(row["num_gpus"]), int(row["num_switches"])
    # 8 switches x 64 ports are 512 endpoints in one tier; 48 are 32 leaves with 1,024 uplinks and 16 spines.
    num_uplinks = (num_switches * 64 - num_gpus) // 2
    assert network_capex(num_gpus, num_uplinks) == pytest.approx(float(row["cables_usd"]), rel=0.05)
    third_party = CATALOG.switch("FS-NDR-64").price_usd
    assert third_party is not None
    assert num_switches * third_party == float(row["switches_usd"])


def test_published_prices() -> None:
    assert CATALOG.switch("QM9700").price_usd == 50_000
    assert CATALOG.host("dgx-h100").price_usd == CATALOG.host("hgx-h100-8").price_usd == 310_000
    assert CATALOG.host("p5").price_per_hour_usd == 55.04


def test_ndr_cables_by_length() -> None:
    ndr = CATALOG.link("NDR")
    kinds = [CATALOG.cable_for(ndr, length_m).kind for length_m in (1, 3, 5, 6, 50, 51, 2000)]
    assert kinds == ["dac", "dac", "aec", "multimode", "multimode", "single_mode", "single_mode"]


def test_cable_numbers() -> None:
    sr4 = CATALOG.cable("400G SR4")
    assert sr4.price_usd(20) == 2 * 620 + 2 * 20
    assert sr4.power_w == 15.5
    assert sr4.delay_s(20) == pytest.approx(200e-9)


REACH_M = {link.name: max(c.reach_m for c in CABLES if CATALOG.wire(link).family in c.families and
                          c.rate_Bps == CATALOG.cable_for(link, 1.0).rate_Bps) for link in LINKS}  # fmt: skip


@given(link=st.sampled_from(LINKS), a=st.floats(0.1, 1.0), b=st.floats(0.1, 1.0), log=st.booleans())
def test_longer_cable_never_costs_less(link: LinkType, a: float, b: float, log: bool) -> None:
    reach_m = REACH_M[link.name]
    short, long = sorted(reach_m ** (x if log else 1.0) * (1.0 if log else x) for x in (a, b))
    near, far = CATALOG.cable_for(link, short), CATALOG.cable_for(link, long)
    assert near.reach_m >= short
    assert far.reach_m >= long
    assert near.price_usd(short) <= far.price_usd(long)
    assert near.rate_Bps == far.rate_Bps >= link.rate_Bps


def test_no_cable_reaches() -> None:
    with pytest.raises(CatalogError) as caught:
        CATALOG.cable_for(CATALOG.link("NDR"), 5000)
    assert str(caught.value) == (
        "no cable for NDR reaches 5000 m.\n"
        "  The longest is 400G FR4, 2000 m.\n"
        "  Shorten the link, or add a cable under `parts:` (list them with `syncline fabric parts cable`)."
    )


# --- names ---


@pytest.mark.parametrize("name", ["H100-SXM", "h100 sxm", "H100_SXM5", "h100", "H100-SXM5-80GB"])
def test_names_forgive_case_and_hyphens(name: str) -> None:
    assert CATALOG.gpu(name).name == "H100-SXM5-80GB"


def test_unknown_name() -> None:
    with pytest.raises(CatalogError) as caught:
        CATALOG.gpu("H1000")
    lines = str(caught.value).split("\n")
    assert lines[0] == 'no gpu named "H1000" in the catalogue.'
    assert lines[1].startswith("  Close: H100-SXM5-80GB, ")
    assert lines[1].count(",") <= 2
    assert lines[2] == "  List them with `syncline fabric parts gpu`."


def test_unknown_name_far_from_all() -> None:
    with pytest.raises(CatalogError) as caught:
        CATALOG.switch("zzzzzzzz")
    assert str(caught.value) == (
        'no switch named "zzzzzzzz" in the catalogue.\n  List them with `syncline fabric parts switch`.'
    )


def test_unknown_kind() -> None:
    with pytest.raises(CatalogError, match='there is no kind of part "gpus"'):
        CATALOG.names("gpus")


# --- a cluster file's own parts ---

LAB_SWITCH = {
    "name": "Lab-8",
    "vendor": "us",
    "modes": [{"link": "10GbE", "num_ports": 8}],
    "latency_s": "2us",
    "power_w": 20,
    "power_kind": "max",
    "price_usd": 99,
}


def extended(**parts: Any) -> Catalog:
    return CATALOG.with_parts(parts)


def test_own_part_is_added_and_the_catalogue_unchanged() -> None:
    own = extended(switch=[LAB_SWITCH])
    part = own.switch("lab 8")
    assert (part.latency_s, part.source, part.price_source, part.price_is_estimate) == (
        2e-6,
        "cluster file",
        "cluster file",
        False,
    )
    assert "Lab-8" not in CATALOG.names("switch")
    assert own.gpu("H100") is CATALOG.gpu("H100")


def test_own_price_replaces_ours() -> None:
    own = extended(switch=[{"name": "QM9700", "like": "QM9700", "price_usd": 31_000}])
    part = own.switch("QM9700")
    assert part.price_usd == 31_000
    assert (part.price_source, part.price_is_estimate) == ("cluster file", False)
    assert part.modes == CATALOG.switch("QM9700").modes
    assert own.names("switch").count("QM9700") == 1


def test_like_takes_the_rest_from_another_part() -> None:
    own = extended(gpu=[{"name": "H100-mine", "like": "H100", "memory_bytes": "94GiB"}])
    assert own.gpu("H100-mine").memory_bytes == 94 * 2**30
    assert own.gpu("H100-mine").power_w == 700


@pytest.mark.parametrize(
    ("parts", "error", "text"),
    [
        ({"gadget": []}, CatalogError, 'there is no kind of part "gadget".'),
        ({"switch": {"name": "x"}}, DescriptionError, 'parts of kind "switch" must be a list.'),
        ({"switch": ["x"]}, DescriptionError, "a part of kind \"switch\" must be a mapping, not 'x'."),
        ({"switch": [LAB_SWITCH | {"colour": "red"}]}, DescriptionError, 'switch "Lab-8": unknown key "colour"'),
        (
            {"switch": [LAB_SWITCH | {"latency_s": "2 parsecs"}]},
            DescriptionError,
            "latency_s: cannot read time",
        ),
        ({"switch": [LAB_SWITCH | {"latency_s": None}]}, DescriptionError, 'switch "Lab-8": latency_s: '),
        ({"switch": [LAB_SWITCH | {"modes": []}]}, DescriptionError, 'switch "Lab-8": modes: '),
        ({"switch": [{"name": "x", "like": "QM97000"}]}, CatalogError, 'no switch named "QM97000" in the catalogue.'),
        ({"switch": [LAB_SWITCH | {"aliases": ["QM9700"]}]}, DescriptionError, 'switch name "QM9700" belongs to both'),
        (
            {"switch": [LAB_SWITCH | {"modes": [{"link": "11GbE", "num_ports": 8}]}]},
            CatalogError,
            'switch "Lab-8": no link named "11GbE" in the catalogue.',
        ),
        ({"switch": [LAB_SWITCH | {"price_source": ""}]}, DescriptionError, "a price needs price_source"),
        (
            {"host": [{"name": "x", "like": "dgx-h100", "nic": None}]},
            DescriptionError,
            "nic, link and num_nics go together",
        ),
        (
            {"gpu": [{"name": "x", "like": "H100", "scale_up": None}]},
            DescriptionError,
            "scale_up and num_scale_up_links",
        ),
    ],
)
def test_bad_own_parts(parts: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        CATALOG.with_parts(parts)
    assert text in str(caught.value)


def test_own_cable_wins_when_cheaper() -> None:
    own = extended(cable=[{"name": "bargain", "like": "400G DR4", "price_per_end_usd": 100}])
    assert own.cable_for(own.link("NDR"), 40).name == "bargain"
    assert CATALOG.cable_for(CATALOG.link("NDR"), 40).name == "400G SR4"


def test_what_nobody_publishes_is_an_estimate_with_its_range() -> None:
    for kind in ("scale_up", "scale_up_switch"):
        for part in load_catalog().parts(kind):
            (latency,) = part.estimates
            assert latency.figure == "latency_s" and latency.high == pytest.approx(4 * latency.low), part.name
    rows = dict(part_rows(load_catalog().scale_up("NVLink4").model_dump(mode="json", exclude_none=True)))
    assert rows["latency_s"] == "500 ns (estimate: 250 ns to 1 us)" and "estimates" not in rows


def test_a_figure_of_the_cluster_file_is_no_estimate() -> None:
    mine = {"name": "mine", "like": "NVLink4", "latency_s": "5us"}
    assert load_catalog().with_parts({"scale_up": [mine]}).scale_up("mine").estimates == ()
    with pytest.raises(DescriptionError, match="latency_s is 5e-06, outside 1e-06 to 2e-06"):
        load_catalog().with_parts({"scale_up": [mine | {"estimates": {"latency_s": ["1us", "2us"]}}]})
