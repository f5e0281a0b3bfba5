"""Cables that discovery tools list become clusters, and are compared with what is described."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.errors import DescriptionError, SynclineError, UsageError
from syncline.fabric import build
from syncline.fabric.fabric import Fabric, Tier
from syncline.fabric.formats import MAX_BYTES, import_fabric
from syncline.fabric.formats.cabling import in_order, levels_from_hosts
from syncline.fabric.formats.infiniband import ibnetdiscover
from syncline.fabric.formats.lldp_tables import read_lldp
from syncline.questions.clusters.diff import fabric_diff

FOUND = Path(__file__).parent / "found"


def fabric_of(name: str, host: str = "8 x H100", link: str | None = None) -> Fabric:
    return build(import_fabric(FOUND / name, host=host, link=link))


def cables(fabric: Fabric) -> set[tuple[str, str, float]]:
    links = fabric.links
    laid = [i for i in range(0, len(links), 2) if links.tier[i] in (Tier.ACCESS, Tier.LEAF_SPINE)]
    ends = [sorted((fabric.device_name(int(links.src[i])), fabric.device_name(int(links.dst[i])))) for i in laid]
    return {(a, b, float(links.rate_Bps[i]) * 8e-9) for (a, b), i in zip(ends, laid, strict=True)}


def test_ibnetdiscover_is_the_subnet_it_lists() -> None:
    found = ibnetdiscover((FOUND / "ibnetdiscover.txt").read_text(), "ibnetdiscover.txt")
    assert found is not None
    assert found.hosts == ("gpu01", "gpu02", "gpu03", "gpu04")
    assert set(found.switches) == {"leaf-1", "leaf-2", "spine-1", "spine-2"}
    assert set(found.switches.values()) == {"QM9700"}
    assert len(found.cables) == 16, "4 hosts x 2 HCAs, 2 leaves x 2 spines x 2 cables; SHARP nodes are no cable"
    fabric = fabric_of("ibnetdiscover.txt")
    assert (fabric.num_hosts, fabric.num_gpus) == (4, 32)
    assert ("gpu03/nic-1", "leaf-2", 400.0) in cables(fabric)


def test_iblinkinfo_tells_slow_and_dead_ports() -> None:
    found = cables(fabric_of("iblinkinfo.txt"))
    assert ("gpu03/nic-1", "leaf-2", 200.0) in found, "4X at 53.125 is HDR"
    assert not any("gpu04/nic-1" in ends for ends in found)
    assert ("gpu04/nic-0", "leaf-1", 400.0) in found


def test_a_dead_first_port_renumbers_nothing(tmp_path: Path) -> None:
    text = "\n".join(line for line in (FOUND / "iblinkinfo.txt").read_text().splitlines() if "gpu02 mlx5_0" not in line)
    blocks = text.replace("CA: gpu02 mlx5_0:", "").splitlines()
    (tmp_path / "links.txt").write_text("\n".join(line for line in blocks if " 7    1[  ]" not in line))
    found = cables(build(import_fabric(tmp_path / "links.txt", host="8 x H100")))
    assert ("gpu02/nic-1", "leaf-2", 400.0) in found and not any("gpu02/nic-0" in ends for ends in found)


def test_ufm_links_name_hosts_and_switches() -> None:
    assert cables(fabric_of("ufm.json", link="NDR")) == {
        ("gpu01/nic-0", "leaf-1", 400.0), ("gpu02/nic-0", "leaf-1", 400.0), ("leaf-1", "spine-1", 400.0),
    }  # fmt: skip


def test_eos_tables_with_prompts() -> None:
    found = read_lldp(FOUND / "eos.txt", MAX_BYTES)
    assert found is not None
    assert found.hosts == ("gpu01", "gpu02") and set(found.switches) == {"leaf-1", "leaf-2", "spine-1"}
    assert len(found.cables) == 6, "a cable between switches is listed from both of its ends, under two spellings"
    assert "management ports left out: 1" in found.remarks


def test_nx_os_wraps_long_names() -> None:
    found = read_lldp(FOUND / "nx-os.txt", MAX_BYTES)
    assert found is not None
    assert set(found.hosts) == {"gpu01", "a-very-long-name-for-a-gpu-host"}
    assert set(found.switches) == {"leaf-1", "spine-1"} and len(found.cables) == 3


def test_a_folder_has_one_file_a_device() -> None:
    found = read_lldp(FOUND / "lldp", MAX_BYTES)
    assert found is not None
    assert found.hosts == ("gpu01", "gpu02") and set(found.switches) == {"leaf-1", "spine-1"}
    assert len(found.cables) == 3, "SONiC's eth0 is for management; both ends of the uplink agree"
    assert {plug.port for cable in found.cables for plug in (cable.a, cable.b) if plug.device == "gpu01"} == {
        "enp5s0f0"
    }


def test_netq_rows_carry_both_ends(tmp_path: Path) -> None:
    row = '{"hostname": "leaf-1", "ifname": "swp1", "peerHostname": "gpu01", "peerIfname": "eth1"}'
    (tmp_path / "netq.json").write_text(f'{{"lldp": [{row}]}}')
    found = read_lldp(tmp_path / "netq.json", MAX_BYTES)
    assert found.hosts == ("gpu01",) and list(found.switches) == ["leaf-1"]


def test_netqs_graph_holds_every_cable_of_a_link(tmp_path: Path) -> None:
    cable = '{"interfaces": [{"interface": "swp%d", "node": "leaf-1"}, {"interface": "ens4f%dnp0", "node": "gpu01"}]}'
    links = ", ".join(cable % (port, port) for port in (1, 2))
    (tmp_path / "graph.json").write_text(f'[{{"links": [{{"compounded_links": [{links}], "size": 2}}]}}]')
    found = read_lldp(tmp_path / "graph.json", MAX_BYTES)
    assert found.hosts == ("gpu01",) and list(found.switches) == ["leaf-1"]
    assert len(found.cables) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Port          Neighbor Device ID       Neighbor Port ID    TTL\nEt1 a b 120\n", "which switch printed it"),
        ('{"lldpNeighbors": [{"port": "Et1", "neighborDevice": "a", "neighborPort": "b"}]}', "which device printed it"),
        ('[{"source_guid": "1", "destination_guid": ""}]', "destination_guid"),
        ('Switch\t36 "S-01"\t# "a"\n[1]\t"H-02"[1](2)\t# "b HCA-1" lid 1 4xHDR\n', "does not list"),
        ('Switch: 0x01 a:\n  1  1[  ] ==( 4X 11.5 Gbps Active/ LinkUp)==>  2  1[  ] "b HCA-1" ( )\n', "not an Infin"),
        ('Switch: 0x01 a:\n  1  1[  ] ==( Down/ Polling)==>     [  ] "" ( )\n', "no cable"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_said(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(DescriptionError, match=words):
        import_fabric(tmp_path / "file", host="dgx-h100")


def test_cables_need_a_host_model() -> None:
    with pytest.raises(UsageError, match="says nothing about the GPUs"):
        import_fabric(FOUND / "ufm.json")


def test_a_network_is_for_files_of_one_host() -> None:
    with pytest.raises(UsageError, match="`network` and `count` are for files of one host"):
        import_fabric(FOUND / "ufm.json", host="dgx-h100", count=4)


def test_differences_are_named_by_kind(tmp_path: Path) -> None:
    described = fabric_of("ibnetdiscover.txt")
    answer = fabric_diff(described, FOUND / "iblinkinfo.txt")
    assert [(one.kind, one.where) for one in answer.differences] == [
        ("missing", "gpu04/nic-1"), ("rate", "gpu03/nic-1 <-> leaf-2"),
    ]  # fmt: skip
    assert fabric_diff(described, FOUND / "ibnetdiscover.txt").differences == ()
    text = (FOUND / "ibnetdiscover.txt").read_text()
    moved = text.replace('"gpu01 mlx5_0"', '"GPU"').replace('"gpu02 mlx5_0"', '"gpu01 mlx5_0"')
    (tmp_path / "moved.txt").write_text(moved.replace('"GPU"', '"gpu02 mlx5_0"').replace("leaf-2", "rack7"))
    answer = fabric_diff(described, tmp_path / "moved.txt")
    assert answer.differences == () and answer.switches_taken_for == {"leaf-2": "rack7"}, (
        "two NICs of one leaf; a new name"
    )


def test_swapped_cables_are_moved(tmp_path: Path) -> None:
    described = fabric_of("ibnetdiscover.txt")
    text = (FOUND / "ibnetdiscover.txt").read_text()
    swapped = text.replace("gpu01 mlx5_0", "X").replace("gpu01 mlx5_1", "gpu01 mlx5_0").replace("X", "gpu01 mlx5_1")
    (tmp_path / "swapped.txt").write_text(swapped)
    answer = fabric_diff(described, tmp_path / "swapped.txt")
    assert [(d.kind, d.where, d.described, d.found) for d in answer.differences] == [
        ("moved", "gpu01/nic-0", "leaf-1", "leaf-2"), ("moved", "gpu01/nic-1", "leaf-2", "leaf-1"),
    ]  # fmt: skip
    assert "moved" in str(answer) and answer.to_json()["cables_found"] == 16


def test_other_hosts_are_an_error() -> None:
    with pytest.raises(SynclineError, match="no host is called the same"):
        fabric_diff("h100-64-rail", FOUND / "ufm.json", link="NDR")


def test_names_sort_by_their_numbers() -> None:
    assert sorted(["mlx5_10", "mlx5_2", "mlx5_1"], key=in_order) == ["mlx5_1", "mlx5_2", "mlx5_10"]
    assert levels_from_hosts([("h", "a"), ("a", "b")], ["h"]) == {"h": 0, "a": 1, "b": 2}


def test_a_broken_cluster_file_says_its_own_mistake(tmp_path: Path) -> None:
    (tmp_path / "found.yaml").write_text("hosts: 4\nhost: dgx-h100\nnetwork: rail-optimized NDR\ncolour: red\n")
    with pytest.raises(SynclineError, match="colour"):
        fabric_diff("h100-64-rail", tmp_path / "found.yaml")
