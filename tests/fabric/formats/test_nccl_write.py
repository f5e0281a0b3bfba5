"""A topology file can be written for any host, and NCCL's rules hold for it."""

from __future__ import annotations

import pytest

from syncline.errors import DescriptionError, FabricError
from syncline.fabric import ClusterSpec, build
from syncline.fabric.catalog import HostModel, load_catalog
from syncline.fabric.formats.nccl_check import check_nccl_topology
from syncline.fabric.formats.nccl_host import describe, to_host
from syncline.fabric.formats.nccl_write import nccl_topology
from syncline.fabric.formats.nccl_xml import parse_nccl, write_nccl

MODELS = {p.name: p for p in load_catalog().parts("host") if isinstance(p, HostModel)}
NVIDIA = [name for name, model in MODELS.items() if load_catalog().gpu(model.gpu).vendor == "nvidia"]


def fabric_of(host, count=2, **more):
    model = MODELS[host] if isinstance(host, str) else None
    link = model.link if model else "NDR"
    network = {"network": {"topology": "fat-tree", "link": link}} if link else {}
    return build(ClusterSpec.model_validate({"hosts": count if link else 1, "host": host, **network, **more}))


@pytest.mark.parametrize("name", NVIDIA)
def test_every_nvidia_host_of_the_catalogue_makes_a_file_nccl_takes(name):
    model = MODELS[name]
    text = write_nccl(nccl_topology(fabric_of(name), 0))
    report = check_nccl_topology(text)
    assert report.warnings == ()
    assert report.num_gpus == model.num_gpus
    assert report.num_nets == model.num_nics * (1 if model.bond else model.ports_per_nic)


@pytest.mark.parametrize("name", [n for n in NVIDIA if MODELS[n].nic_path in ("PIX", "PXB", "C2C")])
def test_nccl_finds_the_path_that_the_host_model_promises(name):
    model = MODELS[name]
    host = describe(nccl_topology(fabric_of(name), 0))
    assert host.nic_path == {"C2C": "P2C"}.get(model.nic_path, model.nic_path)


def test_reading_a_written_file_gives_the_same_host_again():
    fabric = fabric_of("dgx-h100")
    again = build(to_host(parse_nccl(write_nccl(nccl_topology(fabric, 1)))))
    model, old = again.spec.parts["host"][0], MODELS["dgx-h100"]
    assert (again.num_gpus, len(again.nics), len(again.devices)) == (8, 8, 8 + 8 + 2 + 1 + 4)
    for key in ("gpu", "nic", "link", "gpu_pcie", "nic_path", "gpus_per_pcie_switch", "num_sockets"):
        assert model[key] == getattr(old, key)


def test_nvlinks_counts_speeds_and_processors():
    text = write_nccl(nccl_topology(fabric_of("dgx-1-v100"), 0))
    assert '<nvlink target="0004:00:00.0" count="2" tclass="0x030200"/>' in text
    assert 'vendor="GenuineIntel"' in text
    h100 = write_nccl(nccl_topology(fabric_of("dgx-h100"), 0))
    assert h100.count('<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>') == 8
    assert h100.count('link_speed="32.0 GT/s PCIe" link_width="16"') == 4 + 8 + 8 + 8
    assert h100.count('class="0x020700" vendor="0x15b3" device="0x1021"') == 8
    assert 'speed="400000"' in h100
    assert "affinity" not in h100


def test_real_bus_ids_names_and_affinity_can_be_given():
    fabric = fabric_of("dgx-h100")
    topology = nccl_topology(
        fabric, 0, bus_ids={"gpu-0": "0000:1B:00.0"}, net_names=[f"rocep{i}" for i in range(8)], affinity=["ff", "ff00"]
    )
    text = write_nccl(topology)
    assert 'busid="0000:1b:00.0"' in text
    assert 'name="rocep7"' in text
    assert 'affinity="ff00"' in text


def test_a_down_nvlink_is_left_out_and_a_slow_port_is_slow():
    faults = [
        {"link": "host-00/gpu-0 <-> host-00/nvswitch-0"},
        {"link": "host-00/nic-3 <-> leaf-00", "rate": "100Gbps"},
    ]
    text = write_nccl(nccl_topology(fabric_of("dgx-h100", faults=faults), 0))
    assert text.count("<nvlink") == 7
    assert text.count('speed="100000"') == 1


def test_hosts_nccl_does_not_run_on_are_refused():
    with pytest.raises(FabricError, match="NCCL runs on NVIDIA GPUs only"):
        nccl_topology(fabric_of("mi300x-8"), 0)


@pytest.mark.parametrize(
    ("host", "options", "message"),
    [
        (99, {}, "cluster has no host 99."),
        (-1, {}, "cluster has no host -1."),
        (0, {"bus_ids": {"gpu-9": "0000:00:00.0"}}, 'bus_ids names "gpu-9", which the host does not have.'),
        (0, {"net_names": ["a"]}, "more than 1 network ports"),
        (0, {"net_names": ["a"] * 8, "bus_ids": {"gpu-0": "nonsense"}}, 'busid="nonsense" is not a bus id'),
    ],
)
def test_wrong_options_are_named(host, options, message):
    with pytest.raises((FabricError, DescriptionError)) as caught:
        nccl_topology(fabric_of("dgx-h100"), host, **options)
    assert message in str(caught.value)
