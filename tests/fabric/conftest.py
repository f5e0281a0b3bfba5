"""Clusters to try everything on: every topology, in sizes that a slow oracle can check."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

TINY = {"switch": [{"name": "tiny-8", "like": "QM9700", "modes": [{"link": "NDR", "num_ports": 8}]}]}
HOST = {"model": "dgx-h100", "gpus": 2, "nics": 2}


def described(hosts: int, network: dict[str, Any], **host: Any) -> dict[str, Any]:
    return {
        "hosts": hosts,
        "host": HOST | host,
        "network": {"link": "NDR", "switch": "tiny-8"} | network,
        "parts": TINY,
    }


@st.composite
def descriptions(draw: st.DrawFn) -> dict[str, Any]:
    """Return the description of a small cluster of some topology."""
    topology = draw(
        st.sampled_from(
            ("fat-tree", "leaf-spine", "rail-optimized", "rail-only", "multi-plane", "dragonfly", "torus", "optical")
        )
    )
    hosts = draw(st.integers(2, 12))
    ratio = draw(st.sampled_from((1.0, 2.0, 3.0)))
    clos = {"topology": topology, "oversubscription": ratio}
    match topology:
        case "rail-optimized":
            return described(hosts, clos | {"hosts_per_unit": draw(st.integers(1, 2))})
        case "leaf-spine" | "fat-tree" | "rail-only":
            return described(hosts, clos)
        case "multi-plane":
            plane = {"topology": draw(st.sampled_from(("fat-tree", "leaf-spine"))), "link": "NDR", "switch": "tiny-8"}
            network = {"topology": topology, "planes": 2, "plane": plane}
            return described(hosts, network, ports_per_nic=2)
        case "dragonfly":
            shape = {"endpoints_per_switch": 2, "switches_per_group": 2, "global_ports_per_switch": 3}
            return described(hosts, {"topology": topology} | shape)
        case "torus":
            shape_of = draw(st.sampled_from(((2,), (5,), (2, 3), (3, 3), (4, 2), (2, 2, 2), (2, 3, 2))))
            wrap, of = draw(st.booleans()), draw(st.sampled_from(("chips", "hosts")))
            size = 1
            for length in shape_of:
                size *= length
            network = {"topology": topology, "shape": list(shape_of), "of": of, "wrap": wrap}
            if of == "chips":
                return {"hosts": size, "host": {"model": "tpu-v4-host", "gpus": 1}, "network": network}
            return described(size, network)
        case _:
            pattern = draw(st.sampled_from(("mesh", "ring")))
            return described(2 * min(hosts, 5), {"topology": "optical", "hosts_per_pod": 2, "pattern": pattern})


@pytest.fixture(scope="session")
def any_cluster() -> st.SearchStrategy[dict[str, Any]]:
    return descriptions()
