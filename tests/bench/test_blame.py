"""A slow collective's own messages name the link: simulated runs with a degraded one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from syncline.bench.blame import suspects
from syncline.bench.sweep import program_of
from syncline.fabric import ClusterSpec, build
from syncline.program import Placement, packed
from syncline.schedule import Kind
from syncline.sim.flow.chronicle import timeline
from syncline.sim.flow.flow import FlowJob, simulate
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.timeline import Timeline

NETWORK = {"topology": "leaf-spine", "link": "100GbE", "hosts_per_leaf": 8, "spines": 1}
FABRIC = build(ClusterSpec.model_validate({"hosts": 8, "host": "1 x H100", "network": NETWORK}))


def run(algorithm: str, slow: str = "", factor: float = 0.4) -> tuple[Timeline, Placement]:
    """Return the timeline of an all-reduce with one link at a share of its rate, as an executor would record it."""
    links = FABRIC.links
    rate = links.rate_Bps.copy()
    for link in range(len(links)):
        if FABRIC.link_name(link) == slow:
            rate[link] *= factor
    broken = replace(FABRIC, links=replace(links, rate_Bps=rate))
    placed = packed(broken, 8)
    network = FlowNetwork(broken, NetworkOptions(transport="ideal"))
    program = program_of(algorithm, Kind.ALL_REDUCE, placed, "gloo")
    seen = timeline(simulate([FlowJob(program, 1 << 26)], network, record=True))
    return replace(seen, metadata={"same_clock": True}), packed(FABRIC, 8)


@pytest.mark.parametrize("algorithm", ["ring", "halving-doubling"])
@pytest.mark.parametrize("slow", ["host-05/nic-0 -> leaf-00", "leaf-00 -> host-02/nic-0"])
def test_the_slow_link_is_named(algorithm: str, slow: str) -> None:
    found = suspects(*run(algorithm, slow))
    assert found
    named = {found[0].part.name, *(part.name for part in found[0].among)}
    assert any(slow in name for name in named)


@pytest.mark.parametrize("algorithm", ["ring", "halving-doubling", "tree"])
def test_a_healthy_run_blames_nobody(algorithm: str) -> None:
    assert suspects(*run(algorithm)) == ()


def test_clocks_that_differ_tell_nothing() -> None:
    seen, placed = run("ring", "host-05/nic-0 -> leaf-00")
    assert suspects(replace(seen, metadata={"same_clock": False}), placed) == ()
    assert np.isfinite(seen.makespan_s)
