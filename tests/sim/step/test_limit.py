"""The link that a limit names is the one whose rate decides."""

from __future__ import annotations

import pytest

from syncline.fabric import Fabric, load
from syncline.sim.step.step import step
from syncline.workload.read_job import load_job

SMALL = load_job({"model": "gpt3-2.7b", "parallel": {"zero": "none"}, "batch": {"global": 1024, "micro": 1,
                  "sequence": 2048}})  # fmt: skip
DENSE = load_job({"model": "llama3-8b", "parallel": {"tp": 1, "zero": 1}, "batch": {"global": 128, "sequence": 4096}})


def _sites(rate: str, latency: str) -> Fabric:
    sites = [{"name": n, "hosts": 32, "host": "dgx-h100", "network": "rail-optimized NDR"} for n in ("east", "west")]
    return load({"name": "two", "sites": sites, "wan": {"rate": rate, "latency": latency}})


def test_a_thin_line_between_sites_is_named_and_a_wide_one_is_not() -> None:
    # 5.3 GB at 12.5 GB/s are 0.4 s; the ports need 26 ms for their share. At 1.6 TB/s the line needs 3 ms.
    assert step(_sites("100Gbps", "30ms"), SMALL).limit.link == "the line between sites, 100 Gb/s"
    limit = step(_sites("12.8Tbps", "10us"), SMALL).limit
    assert "sites" not in f"{limit.link} {limit.then_link}"


@pytest.mark.parametrize(
    ("ratio", "link"), [(1, "network, 100 Gb/s a GPU"), (8, "the links out of a rack, 400 Gb/s together")]
)
def test_uplinks(ratio: int, link: str) -> None:
    network = {"topology": "leaf-spine", "link": "100GbE", "oversubscription": f"{ratio}:1", "hosts_per_leaf": 4}
    limit = step(load({"name": "x", "hosts": 16, "host": "dgx-h100", "network": network}), DENSE).limit
    assert link in (limit.link, limit.then_link)
