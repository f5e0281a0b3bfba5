"""Fabrics of every topology, small enough to be exchanged in tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from syncline.fabric import ClusterSpec, Fabric, build

TWO_PORTS = {"model": "dgx-h100", "nic": "ConnectX-7 2x200G", "ports_per_nic": 2, "link": "NDR200"}
SPECS: dict[str, dict[str, Any]] = {
    "single host": {"hosts": 1, "host": "dgx-h100"},
    "rail-optimized": {"hosts": 36, "host": "dgx-h100", "network": "rail-optimized NDR"},
    "fat-tree": {"hosts": 12, "host": "dgx-h100", "network": "fat-tree NDR"},
    "three tiers": {"hosts": 24, "host": "dgx-h100", "network": {"topology": "fat-tree", "link": "NDR", "tiers": 3}},
    "oversubscribed": {"hosts": 20, "host": "dgx-a100", "network": "leaf-spine HDR 3:1"},
    "rail-only": {"hosts": 8, "host": "dgx-h100", "network": "rail-only NDR"},
    "multi-plane": {
        "hosts": 8,
        "host": TWO_PORTS,
        "network": {"topology": "multi-plane", "planes": 2, "plane": {"topology": "fat-tree", "link": "NDR200"}},
    },
    "bonded": {"hosts": 8, "host": TWO_PORTS | {"bond": True}, "network": "fat-tree NDR200"},
    "dragonfly": {
        "hosts": 16,
        "host": "dgx-h100",
        "network": {
            "topology": "dragonfly",
            "link": "NDR",
            "endpoints_per_switch": 8,
            "switches_per_group": 4,
            "global_ports_per_switch": 2,
        },
    },
    "torus of chips": {"hosts": 16, "host": "tpu-v4-host", "network": "torus 4x4x4"},
    "large torus": {"hosts": 32, "host": "tpu-v4-host", "network": "torus 8x4x4"},
    "torus of hosts": {
        "hosts": 9,
        "host": "dgx-h100",
        "network": {"topology": "torus", "shape": [3, 3], "of": "hosts", "link": "NDR"},
    },
    "nvl72": {"hosts": 36, "host": "gb200-nvl72", "network": "rail-optimized NDR"},
    "optical": {"hosts": 16, "host": "dgx-h100", "network": {"topology": "optical", "link": "NDR", "hosts_per_pod": 8}},
    "two sites": {
        "sites": [
            {"name": "east", "hosts": 4, "host": "dgx-h100", "network": "fat-tree NDR"},
            {"name": "west", "hosts": 2, "host": "dgx-a100", "network": "fat-tree HDR"},
        ],
        "wan": {"rate": "100Gbps", "latency": "5ms", "lines": 2},
    },
    "mixed hosts": {
        "hosts": [{"count": 3, "host": "dgx-h100"}, {"count": 2, "host": "dgx-h200"}],
        "network": "fat-tree NDR",
    },
    "faults": {
        "hosts": 4,
        "host": "dgx-h100",
        "network": "fat-tree NDR",
        "faults": [
            {"link": "leaf-00 <-> host-00/nic-0"},
            {"device": "host-01/nic-2", "rate": "100Gbps"},
            {"link": "host-02/gpu-0 <-> host-02/nvswitch-0", "rate": "100GB/s"},
            {"link": "leaf-00 <-> host-00/nic-1", "latency": "5us"},
        ],
    },
}


@cache
def _fabric(name: str) -> Fabric:
    return build(ClusterSpec.model_validate({"name": name} | SPECS[name]))


@pytest.fixture
def fabric_of() -> Callable[[str], Fabric]:
    """Builds one of the fabrics by name, once."""
    return _fabric


@pytest.fixture(params=list(SPECS))
def any_fabric(request: pytest.FixtureRequest) -> Fabric:
    """Every fabric in turn."""
    return _fabric(request.param)
