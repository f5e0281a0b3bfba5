"""Tori of chips: where the chips of a host and of a rack lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syncline.describe.document import read_document
from syncline.errors import DescriptionError, FabricError
from syncline.fabric.build import build
from syncline.fabric.fabric import Fabric, Tier
from syncline.fabric.load import parse_cluster
from syncline.fabric.spec import ClusterSpec
from syncline.fabric.topology.torus import Torus


def cluster(hosts: int, network: dict[str, Any], host: str) -> Fabric:
    return build(ClusterSpec.model_validate({"hosts": hosts, "host": host, "network": network}))


def test_host_and_rack_shapes_must_divide_the_torus() -> None:
    network = "{topology: torus, shape: [4, 4, 6], rack_shape: [4, 4, 4]}"
    with pytest.raises(DescriptionError, match=r"rack_shape \[4, 4, 4\] does not divide \[4, 4, 6\]"):
        parse_cluster(read_document(f"hosts: 24\nhost: tpu-v4-host\nnetwork: {network}\n", "cluster.yaml"))
    with pytest.raises(FabricError, match=r"a host has 4 chips but host_shape \[2, 1, 1\] holds 2"):
        cluster(16, {"topology": "torus", "shape": [4, 4, 4], "host_shape": [2, 1, 1]}, "tpu-v4-host")


def test_chips_of_a_tpu_tray_are_neighbours() -> None:
    network = {"topology": "torus", "shape": [8, 8, 8], "rack_shape": [4, 4, 4], "host_shape": [2, 2, 1]}
    fabric = cluster(128, network, "tpu-v4-host")
    links, host = fabric.links, fabric.devices.host
    torus = np.flatnonzero(links.tier == Tier.SCALE_UP)[::2]
    inside = int((host[links.src[torus]] == host[links.dst[torus]]).sum())
    assert inside == 128 * 4  # a square of four has four sides


def test_shapes_may_be_text_as_in_the_short_form() -> None:
    as_text = {"topology": "torus", "shape": "4x4x4", "host_shape": "2x2x1", "rack_shape": "4x4x4"}
    as_lists = {"topology": "torus", "shape": [4, 4, 4], "host_shape": [2, 2, 1], "rack_shape": [4, 4, 4]}
    assert Torus.model_validate(as_text) == Torus.model_validate(as_lists)
    with pytest.raises(ValueError, match='"4xq" is not a shape; write "4x4x4"'):
        Torus.model_validate({"topology": "torus", "shape": "4xq"})
