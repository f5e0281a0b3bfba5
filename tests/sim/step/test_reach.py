"""Racks with thin uplinks and sites with long links: rings cross once, experts everywhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from syncline.fabric import build, load
from syncline.fabric.spec import ClusterSpec
from syncline.sim.step.executed.execute import execute
from syncline.sim.step.network import inside
from syncline.sim.step.step import step
from syncline.workload.read_job import load_job


def cluster(over: str):
    network = {"topology": "leaf-spine", "link": "NDR", "oversubscription": over}
    return build(ClusterSpec.model_validate({"hosts": 64, "host": "dgx-h100", "network": network}))


def test_a_ring_hardly_feels_thin_uplinks() -> None:
    thin, whole = cluster("4:1"), cluster("1:1")
    job: dict[str, Any] = {
        "model": "llama3-8b",
        "parallel": {"zero": "fsdp"},
        "batch": {"global": 512, "sequence": 4096},
    }
    slow, fast = (step(fabric, load_job(job)).step_time_s for fabric in (thin, whole))
    assert slow == pytest.approx(fast, rel=0.02)


def test_experts_beyond_a_rack_do() -> None:
    job: dict[str, Any] = {
        "model": "mixtral-8x7b",
        "parallel": {"ep": 8, "tp": 8, "pp": 1, "zero": "1"},
        "batch": {"global": 512, "sequence": 4096, "micro": 1},
    }
    near = [step(cluster(over), load_job(job)).parts_s["ep"] for over in ("1:1", "4:1")]
    assert near[0] == near[1], "8 experts in one host send nothing out"


def test_rings_share_the_long_links_between_sites() -> None:
    fabric = load("two-sites-wan")
    job: dict[str, Any] = {"model": "llama3-8b", "batch": {"global": 512, "sequence": 4096}}
    across = step(fabric, load_job({**job, "parallel": {"tp": 8, "dp": 64}}))
    inside = step(fabric, load_job({**job, "parallel": {"tp": 8, "dp": 32}}))
    # Two lines of 400 Gb/s, eight rings (one for each tensor-parallel rank): 2 GB of gradients each, twice.
    assert across.parts_s["dp"] > 2 * 2 * 8.03e9 / 8 / (2 * 50e9 / 8) - across.parts_s["compute"]
    assert across.parts_s["dp"] > 5 * inside.parts_s["dp"]


@pytest.mark.parametrize(
    ("split", "fewest"),
    [({"dp": 57}, 1), ({"dp": 60}, 4), ({"tp": 2, "dp": 31}, 3), ({"tp": 4, "dp": 15}, 1), ({"pp": 2, "dp": 27}, 3),
     ({"tp": 2, "pp": 4, "dp": 7}, 1), ({"tp": 8, "dp": 7}, 1), ({"dp": 64}, 8), ({"pp": 2, "dp": 3}, 3)],
)  # fmt: skip
def test_a_host_with_fewer_replicas_paces_the_ring(split: dict[str, int], fewest: int) -> None:
    """Once up to 3.8 times too fast in the closed form: 57 replicas leave one alone on the last of eight hosts."""
    network = {"topology": "rail-optimized", "link": "HDR"}
    fabric = build(ClusterSpec.model_validate({"hosts": 8, "host": "dgx-h100", "network": network}))
    batch = {"global": 4 * split["dp"], "sequence": 4096, "micro": 1}
    found = step(fabric, load_job({"model": "llama3-8b", "parallel": {**split, "zero": "none"}, "batch": batch}))
    columns = {"pp": 1, "cp": 1, "tp": 1, "domain": 8, "site_Bps": np.inf} | split
    case: Any = SimpleNamespace(**{name: np.asarray(float(value)) for name, value in columns.items()})
    assert float(inside(case, case.dp, case.tp)) == fewest
    assert execute(fabric, found).step_time_s == pytest.approx(found.step_time_s, rel=0.15)


def test_a_site_in_the_middle_carries_the_rings_of_two_stages() -> None:
    """Once 70 % too fast: 17 replicas of 4 ranks on three sites of 24, the second holds parts of both stages."""
    site = {"hosts": 3, "host": "dgx-h100", "network": "rail-optimized NDR"}
    data = {"sites": [{"name": name, **site} for name in "abc"], "wan": {"rate": "50Gbps", "latency": "5ms"}}
    fabric = build(ClusterSpec.model_validate(data))
    split = {"tp": 2, "pp": 2, "dp": 17, "zero": "none"}
    batch = {"global": 17, "sequence": 4096, "micro": 1}
    found = step(fabric, load_job({"model": "llama3-8b", "parallel": split, "batch": batch}))
    assert execute(fabric, found).step_time_s == pytest.approx(found.step_time_s, rel=0.1)
