"""The generated opensm files, given to opensm on a simulated fabric: four hosts, two leaves, two spines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import opensm_fabric
from syncline.fabric import load
from syncline.install.installation import install

pytestmark = pytest.mark.skipif(bool(opensm_fabric.missing()), reason=f"needs {opensm_fabric.missing()}")


def test_a_switch_without_adaptive_routing_gets_the_trees_own() -> None:
    built = install(load(opensm_fabric.OLDER))
    seen = opensm_fabric.swept(built, built.wiring.wires)
    assert seen["engine"] == ["ftree"] and not seen["engines_unknown"]
    assert seen["paths_reached"] == seen["paths"] == 16 * 15


def test_partitions_engine_lanes_and_every_path() -> None:
    small = opensm_fabric.CLUSTER | {
        "hosts": 4,
        "host": {"gpu": "H100", "gpus": 8, "nics": 2, "nic": "ConnectX-7", "link": "NDR"},
        "network": {"topology": "leaf-spine", "link": "NDR", "switch": "QM9700", "hosts_per_leaf": 2, "spines": 2},
    }
    built = install(load(small))
    seen = opensm_fabric.swept(built, built.wiring.wires)
    assert seen["guids_found"] == 4 and not seen["guids_missing"]
    assert seen["subnet_up"] and seen["errors"] == [] and seen["engine"] == ["updn"]
    assert seen["keys"] == ["0x7fff", "0x8001", "0x8003"]
    assert seen["lanes_by_service_level"][:4] == [0, 1, 2, 3]
    assert seen["paths_reached"] == seen["paths"] == 8 * 7
    assert seen["ibtracert_arrived"] == seen["ibtracert_asked"] == 3
    assert seen["cables_read_back"] == len(built.cables)
