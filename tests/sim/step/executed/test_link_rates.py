"""What links carry over a step, by the pattern of their names."""

from __future__ import annotations

import pytest

from syncline.fabric import load
from syncline.sim.step.executed.link_rates import link_rates, pattern_of
from syncline.sim.step.step import step
from syncline.workload.job import Job

CLUSTER = {
    "hosts": 4,
    "host": {"gpu": "T4", "gpus": 1, "nics": 1, "nic": "i350", "link": "1GbE"},
    "network": {
        "topology": "explicit",
        "switches": [{"name": f"{kind}-{i}", "level": n} for n, kind in ((1, "leaf"), (2, "spine")) for i in range(2)],
        "cables": [{"a": f"host-0{i}/nic-0", "b": f"leaf-{i // 2}", "rate": "1Gbps"} for i in range(4)]
        + [{"a": f"leaf-{i}", "b": f"spine-{j}", "rate": "1Gbps"} for i in range(2) for j in range(2)],
    },
}
JOB = {
    "model": {"layers": 4, "hidden": 128, "heads": 4, "vocab": 256},
    "parallel": {"zero": "none"},
    "batch": {"global": 16, "micro": 4, "sequence": 256},
}


def test_a_ring_over_two_leaves_by_hand() -> None:
    """Four replicas: every NIC carries 2 x 3/4 of the gradients, and one flow in each direction crosses the spines."""
    fabric = load(CLUSTER)
    result = step(fabric, Job.model_validate(JOB))
    sent = result.comm_bytes["data"]["network"] / result.step_time_s
    found = link_rates(fabric, result)
    assert found["host-*/nic-* -> leaf-*"] == pytest.approx(sent)
    assert found["leaf-* -> host-*/nic-*"] == pytest.approx(sent)
    assert found["leaf-* -> spine-*"] == pytest.approx(sent / 2)  # one of a leaf's two flows, over two uplinks
    assert found["spine-* -> leaf-*"] == pytest.approx(sent / 2)


def test_a_pattern_leaves_numbers_open() -> None:
    assert pattern_of("host-03/nic-1 -> leaf-07 #1") == "host-*/nic-* -> leaf-* #*"
