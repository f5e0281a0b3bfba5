"""Groups and sites are built in the order of what they are: what a cluster answers does not depend on its file's."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

import syncline
from syncline.fabric import build
from syncline.fabric.bisection import bisection
from syncline.fabric.spec import ClusterSpec
from syncline.questions.step import StepPrediction
from syncline.sim.nccl.describe import from_fabric, from_spec

MODELS = ("dgx-h100", "dgx-a100", "dgx-b200")


def mixed(groups: list[Any]) -> dict[str, Any]:
    return {"hosts": groups, "network": "leaf-spine HDR 2:1"}


def joined(names: Any, pattern: str = "mesh") -> dict[str, Any]:
    hosts = {"a": 8, "b": 6, "c": 3}
    sites = [{"name": n, "hosts": hosts[n], "host": "dgx-h100", "network": "rail-optimized NDR"} for n in names]
    return {"sites": sites, "wan": {"rate": "800Gbps", "latency": "7ms", "pattern": pattern}}


def built(description: dict[str, Any]) -> Any:
    return build(ClusterSpec.model_validate(description))


def test_hosts_keep_the_names_of_the_file() -> None:
    a100, h100 = {"count": 2, "host": "dgx-a100"}, {"count": 4, "host": "dgx-h100"}
    fabric = built({**mixed([a100, h100]), "faults": [{"device": "host-01/nic-2"}]})
    assert fabric.host_names == ("host-02", "host-03", "host-04", "host-05", "host-00", "host-01")
    assert built(mixed([h100, a100])).host_names == tuple(f"host-0{k}" for k in range(6))
    assert "A100" in fabric.parts[fabric.devices.part[fabric.device("host-01/gpu-0")]]
    again = build(fabric.spec)
    assert again.host_names == fabric.host_names


def test_named_groups_that_are_alike_are_in_the_order_of_their_names() -> None:
    groups = [{"names": "n[9-10]", "host": "dgx-h100"}, {"names": "n[1-2]", "host": "dgx-h100"}]
    assert built(mixed(groups)).host_names == ("n1", "n2", "n9", "n10")


def test_a_star_keeps_its_hub_and_a_ring_its_neighbours() -> None:
    assert [site.name for site in built(joined("bca", "star")).spec.sites] == ["b", "a", "c"]
    four = {**joined("abc", "ring")}
    four["sites"] = [*four["sites"], {**four["sites"][2], "name": "d"}]
    turned = [four["sites"][turn:] + four["sites"][:turn] for turn in range(4)]
    for sites in (*turned, *(one[::-1] for one in turned)):
        assert [site.name for site in built({**four, "sites": sites}).spec.sites] == ["a", "b", "c", "d"]


def test_the_weakest_hosts_decide_what_nccl_does() -> None:
    """Once 181 us and NVLS where H100s came first, 466 us where A100s did."""
    groups = [{"count": 6, "host": "dgx-h100"}, {"count": 6, "host": "dgx-a100"}]
    found = [syncline.simulate(mixed(order), "allgather", "1MiB", algorithm="nccl") for order in (groups, groups[::-1])]
    assert found[0].time_s == found[1].time_s
    system = from_fabric(built(mixed(groups)))
    assert (system.gpu, system.facts.nvls, system.nvlink_GBps) == ("a100", False, 240)
    assert from_fabric(built(mixed(groups)), num_hosts=6).gpu == "h100"  # the first six are alike
    spec = ClusterSpec.model_validate(mixed(groups[::-1]))
    assert from_spec(spec, 12).gpu == "a100"


@pytest.mark.parametrize("seed", range(4))
def test_groups_in_any_order_give_the_same_digits(seed: int) -> None:
    draw = random.Random(seed)
    groups = [{"count": draw.randint(1, 3), "host": model} for model in draw.sample(MODELS, draw.randint(2, 3))]
    answers = set()
    for order in itertools.permutations(groups):
        fabric = built(mixed(list(order)))
        nccl = syncline.simulate(fabric, "allreduce", "1KiB..1GiB", algorithm="nccl")
        answers.add((
            *(row.time_s for row in nccl.rows),
            syncline.simulate(fabric, "allreduce", "16MiB", algorithm="ring").time_s,
            bisection(fabric).rate_Bps,
        ))  # fmt: skip
    assert len(answers) == 1


def test_sites_in_any_order_give_the_same_digits() -> None:
    """Once 56 or 70 ms for an all-reduce of 1 KiB, by which site the file listed first."""
    answers = set()
    for order in itertools.permutations("abc"):
        fabric = built(joined(order))
        answers.add((
            *(syncline.simulate(fabric, op, "1KiB", algorithm="nccl").time_s for op in ("allreduce", "alltoall")),
            bisection(fabric).rate_Bps,
        ))  # fmt: skip
    assert len(answers) == 1
    assert len({syncline.simulate(built(joined(o)), "allgather", "1MiB").time_s for o in ("bc", "cb")}) == 1


def test_a_step_does_not_depend_on_the_order_of_the_file() -> None:
    groups = [{"count": 2, "host": "dgx-a100"}, {"count": 2, "host": "dgx-h100"}]
    job = {"model": "llama3-8b", "gpus": 32, "batch": {"global": 64, "sequence": 4096},
           "parallel": {"tp": 8, "dp": 4}}  # fmt: skip
    answers = [syncline.step(mixed(order), job) for order in (groups, groups[::-1])]
    assert all(isinstance(answer, StepPrediction) for answer in answers)
    assert len({answer.step_time_s for answer in answers if isinstance(answer, StepPrediction)}) == 1
