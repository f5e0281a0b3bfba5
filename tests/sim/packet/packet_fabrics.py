"""Small fabrics for packet tests."""

from __future__ import annotations

from functools import cache
from typing import Any

from syncline.fabric import Fabric, build
from syncline.fabric.spec import ClusterSpec
from syncline.sim.packet import PacketNetwork, packet_network


@cache
def star(hosts: int = 9) -> PacketNetwork:
    """Hosts of one GPU and one NIC on one switch."""
    return packet_network(_cluster(hosts, {"topology": "fat-tree", "tiers": 1, "link": "NDR"}))


@cache
def leaf_spine(hosts: int = 16, per_leaf: int = 4) -> PacketNetwork:
    """Leaves of a few hosts under spines, without oversubscription."""
    return packet_network(
        _cluster(hosts, {"topology": "fat-tree", "tiers": 2, "link": "NDR", "hosts_per_leaf": per_leaf})
    )


@cache
def fat_tree(hosts: int = 16) -> PacketNetwork:
    """Three tiers: leaves of two hosts, pods of two leaves."""
    network = {"topology": "fat-tree", "tiers": 3, "link": "NDR", "hosts_per_leaf": 2, "leaves_per_pod": 2}
    return packet_network(_cluster(hosts, network))


@cache
def dragonfly() -> PacketNetwork:
    """A small dragonfly: six groups of six hosts, one cable between every two groups."""
    return packet_network(
        _cluster(
            36,
            {
                "topology": "dragonfly",
                "link": "NDR",
                "endpoints_per_switch": 2,
                "switches_per_group": 3,
                "groups": 6,
                "cables_per_group_pair": 1,
            },
        )
    )


@cache
def rails(hosts: int = 8) -> PacketNetwork:
    """Hosts of 8 GPUs on eight rails."""
    spec = {"name": "rails", "hosts": hosts, "host": "8 x H100", "network": "rail-optimized NDR"}
    return packet_network(build(ClusterSpec.model_validate(spec)))


@cache
def torus() -> PacketNetwork:
    """A torus of chips that route for each other."""
    network = {"topology": "torus", "of": "chips", "shape": [4, 4]}
    spec = {"name": "torus", "hosts": 4, "host": "tpu-v4-host", "network": network}
    return packet_network(build(ClusterSpec.model_validate(spec)))


@cache
def router_ring(hosts: int = 5) -> PacketNetwork:
    """A ring of routers with a host each."""
    return packet_network(_cluster(hosts, {"topology": "torus", "of": "hosts", "shape": [hosts], "link": "NDR"}))


def _cluster(hosts: int, network: dict[str, Any]) -> Fabric:
    spec = {"name": "small", "hosts": hosts, "host": {"gpu": "H100", "gpus": 1, "nics": 1}, "network": network}
    return build(ClusterSpec.model_validate(spec))
