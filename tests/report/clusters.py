"""Fabrics that picture tests draw: one of each layout and level of detail."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from syncline.fabric.build import build
from syncline.fabric.fabric import Fabric
from syncline.fabric.spec import ClusterSpec


def fabric(**description: Any) -> Fabric:
    return build(ClusterSpec.model_validate(description))


def hosts(count: int, network: Any, host: Any = "dgx-h100", **more: Any) -> Fabric:
    return fabric(hosts=count, host=host, network=network, **more)


_TWO_PORTS = {"model": "dgx-h100", "ports_per_nic": 2}
_FLY = {"topology": "dragonfly", "link": "NDR", "endpoints_per_switch": 16, "switches_per_group": 4, "groups": 9,
        "global_ports_per_switch": 4}  # fmt: skip
_TPU = {"gpu": "TPU v4", "gpus": 4, "scale_up": "torus", "nics": 0}


def _planes(plane: str) -> dict[str, Any]:
    return {"topology": "multi-plane", "planes": 2, "plane": {"topology": plane, "link": "200GbE"}}


def _sites(*counts: int) -> Fabric:
    sites = [
        {"name": f"site-{i}", "hosts": n, "host": "dgx-h100", "network": "rail-optimized NDR"}
        for i, n in enumerate(counts)
    ]
    return fabric(sites=sites, wan={"rate": "100Gbps", "latency": "10ms"})


FAULTS = (
    {"link": "leaf-03 <-> spine-01"},
    {"device": "host-02/nic-0"},
    {"link": "host-40/nic-5 <-> leaf-13", "rate": "100Gbps"},
)
MAKERS: dict[str, Callable[[], Fabric]] = {
    "one host": lambda: fabric(hosts=1, host="dgx-h100"),
    "cube mesh": lambda: fabric(hosts=1, host={"model": "dgx-h100", "scale_up": "cube_mesh"}),
    "eight hosts, rails": lambda: hosts(8, "rail-optimized NDR"),
    "eight hosts, racks": lambda: hosts(8, {"topology": "leaf-spine", "link": "NDR", "hosts_per_leaf": 2, "spines": 4}),
    "mixed hosts": lambda: fabric(
        hosts=[{"count": 4, "host": "dgx-h100"}, {"count": 3, "host": "dgx-a100"}], network="leaf-spine NDR"
    ),
    "64 hosts, rails": lambda: hosts(64, "rail-optimized NDR"),
    "64 hosts, faults": lambda: hosts(64, "rail-optimized NDR", faults=FAULTS),
    "five NICs": lambda: hosts(20, "fat-tree NDR", {"model": "dgx-h100", "nics": 5}),
    "rail-only": lambda: hosts(48, {"topology": "rail-only", "link": "NDR", "tiers": 2}),
    "128 hosts, rails": lambda: hosts(128, "rail-optimized NDR"),
    "1,000 hosts, fat-tree": lambda: hosts(1000, "fat-tree NDR"),
    "1,024 hosts, rails": lambda: hosts(1024, "rail-optimized NDR"),
    "two planes": lambda: hosts(32, _planes("leaf-spine"), _TWO_PORTS),
    "two planes, 512 hosts": lambda: hosts(512, _planes("rail-optimized"), _TWO_PORTS),
    "dragonfly": lambda: hosts(72, _FLY),
    "dragonfly, 1,024 hosts": lambda: hosts(1024, "dragonfly NDR"),
    "2D torus": lambda: fabric(hosts=64, host=_TPU, network="torus 16x16"),
    "3D torus": lambda: fabric(hosts=16, host=_TPU, network="torus 4x4x4"),
    "3D torus, 4,096 chips": lambda: fabric(
        hosts=1024, host=_TPU, network={"topology": "torus", "shape": [16, 16, 16], "optical_switches": 48}
    ),
    "4D torus": lambda: hosts(16, {"topology": "torus", "link": "NDR", "shape": [2, 2, 2, 2], "of": "hosts"}),
    "torus of hosts": lambda: hosts(24, {"topology": "torus", "link": "NDR", "shape": [4, 6], "of": "hosts"}),
    "NVL72": lambda: fabric(hosts=18, host={"gpu": "GB200", "gpus": 4}),
    "eight NVL72": lambda: hosts(144, "rail-optimized NDR", {"gpu": "GB200", "gpus": 4}),
    "optical": lambda: hosts(64, {"topology": "optical", "link": "NDR", "hosts_per_pod": 16}),
    "optical, 1,024 hosts": lambda: hosts(1024, {"topology": "optical", "link": "NDR", "hosts_per_pod": 64}),
    "two sites": lambda: _sites(16, 8),
    "three large sites": lambda: _sites(256, 128, 256),
    "explicit": lambda: fabric(
        hosts=[{"names": ["a.b", "c_d", "gpu-server-with-a-long-name-3"], "host": {"model": "dgx-h100", "nics": 2}}],
        network={
            "topology": "explicit",
            "link": "NDR",
            "switches": ["s1", "s2", {"name": "top", "level": 2}],
            "cables": ["a.b/nic-0 <-> s1", "c_d/nic-0 <-> s1", "c_d/nic-1 <-> s2", "s1 <-> s2 : HDR", "s1 <-> top x4",
                       "s2 <-> top x4", "gpu-server-with-a-long-name-3/nic-0 <-> s2"],
        },
    ),
}  # fmt: skip


@cache
def cluster(name: str) -> Fabric:
    return MAKERS[name]()
