"""Dragonflies as they are cabled in machines."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.errors import FabricError
from syncline.fabric.build import build
from syncline.fabric.fabric import Fabric
from syncline.fabric.inventory import oversubscription
from syncline.fabric.spec import ClusterSpec


def cluster(hosts: int, network: dict[str, Any], host: str) -> Fabric:
    return build(ClusterSpec.model_validate({"hosts": hosts, "host": host, "network": network}))


def test_nics_are_spread_only_where_switches_divide() -> None:
    network = {"topology": "dragonfly", "link": "NDR", "switches_per_group": 12, "spread_nics": True}
    with pytest.raises(FabricError, match="8 ports of a host cannot be spread evenly over 12 switches"):
        cluster(64, network, "dgx-h100")


def test_the_largest_dragonfly_with_several_cables_between_groups() -> None:
    network = {
        "topology": "dragonfly", "link": "Slingshot-11", "endpoints_per_switch": 16, "switches_per_group": 32,
        "global_ports_per_switch": 16, "cables_per_group_pair": 4,
    }  # fmt: skip
    fabric = cluster(256, network, "mi250x-blade")
    # 512 global ports of a group reach 128 others with 4 cables each.
    assert fabric.facts["max_endpoints"] == 129 * 512
    assert oversubscription(fabric)["global"] == pytest.approx(512 / 4)
