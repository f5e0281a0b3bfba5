"""The judge of a placement: what bytes of each kind cost the step."""

from __future__ import annotations

import pytest

from syncline.fabric import ClusterSpec, build
from syncline.placing.allocation import from_list
from syncline.placing.judge import Judge
from syncline.placing.traffic import _sent_bytes
from syncline.workload.read_job import load_job


def test_exchanges_that_nothing_hides_cost_the_step_every_byte_and_those_that_do_not_exist_none() -> None:
    """Gradients over 10 Gb/s are nearly the whole step: a second for each byte makes it longer by their bytes."""
    fabric = build(ClusterSpec.model_validate({"hosts": 2, "host": "8 x H100", "network": "leaf-spine 10GbE"}))
    job = {"model": "llama3-8b", "batch": {"global": 16, "sequence": 2048}, "parallel": {"tp": 8}}
    judge = Judge(fabric, from_list(fabric, "0,1"), load_job(job))
    order = judge.seats.scheduler_order()
    assert judge.worth(order, "data") == pytest.approx(_sent_bytes(judge, order)["data", 0], rel=0.01)
    assert judge.worth(order, "context") == 0.0
