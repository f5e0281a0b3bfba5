"""The generated FRR files, run in namespaces: four hosts, two leaves, two spines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import frr_fabric

pytestmark = pytest.mark.skipif(bool(frr_fabric.missing()), reason=f"needs {frr_fabric.missing()}")


def test_paths_widths_failures_and_marks_are_as_designed() -> None:
    small = frr_fabric.CLUSTER | {
        "hosts": 4,
        "host": {"gpu": "H100", "gpus": 8, "nics": 1, "nic": "ConnectX-7", "link": "400GbE"},
        "network": {"topology": "leaf-spine", "link": "400GbE", "switch": "SN5600", "hosts_per_leaf": 2, "spines": 2},
    }
    seen = frr_fabric.prove(small)
    assert seen["width"] == seen["designed_width"] == {"leaf-00": 2, "leaf-01": 2, "spine-00": 1, "spine-01": 1}
    assert seen["pairs_reached"] == seen["pairs"] == 12
    for one in seen["classes"].values():
        assert one["first_leaf"] == one["spines"] == one["last_leaf"] == one["sent"]
    assert seen["link_down"]["pairs_reached"] == 12
    assert seen["link_down"]["width"]["leaf-00"] == 1
    assert seen["spine_down"]["pairs_reached"] == 12
    assert seen["spine_down"]["width"] == {"leaf-00": 1, "leaf-01": 1, "spine-01": 1}
