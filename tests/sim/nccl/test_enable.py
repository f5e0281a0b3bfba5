from __future__ import annotations

import numpy as np
import pytest

from syncline.errors import SimulationError
from syncline.sim.nccl.belief import ALGORITHMS, PROTOCOLS, believe
from syncline.sim.nccl.choose import choose, enabled_pairs, ll128_allowed, read_list
from syncline.sim.nccl.system import NcclSystem


def across(**more: object) -> NcclSystem:
    values: dict[str, object] = {
        "gpu": "h100",
        "num_hosts": 4,
        "gpus_per_host": 8,
        "num_nics": 8,
        "nic_rate_Bps": 50e9,
        **more,
    }
    return NcclSystem(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "op", "expected"),
    [
        ("Ring", "all_reduce", {"Ring"}),
        ("ring;allreduce:tree,nvls", "all_reduce", {"Tree", "NVLS"}),
        ("ring;allreduce:tree,nvls", "all_gather", {"Ring"}),
        ("^tree", "all_reduce", set(ALGORITHMS) - {"Tree"}),
        ("allgather:ring", "all_reduce", set(ALGORITHMS)),
        ("", "all_reduce", set(ALGORITHMS)),
    ],
)
def test_nccl_algo_grammar(text: str, op: str, expected: set[str]) -> None:
    assert read_list(text, ALGORITHMS, op, "NCCL_ALGO") == expected


def test_bad_words_are_named() -> None:
    with pytest.raises(SimulationError, match=r'NCCL_PROTO="LL256": "LL256" is not one of LL, LL128, Simple'):
        read_list("LL256", PROTOCOLS, "all_reduce", "NCCL_PROTO")
    with pytest.raises(SimulationError, match='"scan" is not an operation'):
        read_list("scan:ring", ALGORITHMS, "all_reduce", "NCCL_ALGO")
    with pytest.raises(SimulationError, match="needs an operation before a colon"):
        read_list("ring;tree", ALGORITHMS, "all_reduce", "NCCL_ALGO")


def test_ll128_needs_a_near_nic() -> None:
    assert ll128_allowed(across(path="PIX"))
    assert ll128_allowed(across(path="PXN"))
    assert not ll128_allowed(across(path="PHB"))
    assert not ll128_allowed(across(gpu="a100", path="PXN"))  # before Hopper only up to PXB
    assert not ll128_allowed(across(path="P2C", nccl=(2, 26)))
    assert ll128_allowed(across(path="P2C", nccl=(2, 27)))


def test_environment_is_honoured() -> None:
    pairs, _ = choose(across(env={"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}), "all_reduce", np.array([8.0, 2.0**30]))
    assert set(pairs) == {("Ring", "Simple")}
    quiet = across(num_hosts=1, env={"NCCL_NVLS_ENABLE": "0"})
    assert all(pair[0] != "NVLS" for pair in choose(quiet, "all_reduce", np.array([2.0**33]))[0])


def test_an_algorithm_that_an_operation_lacks_falls_back_to_ring() -> None:
    system = across(env={"NCCL_ALGO": "Tree"})
    assert {a for a, _ in enabled_pairs(system, "all_gather", believe(system, "all_gather"))} == {"Ring"}


def test_plugin_that_promises_no_order_leaves_simple_only() -> None:
    system = across(gpu="a100", network="efa-v1", num_nics=4, nic_rate_Bps=12.5e9)
    assert {p for _, p in enabled_pairs(system, "all_reduce", believe(system, "all_reduce"))} == {"Simple"}


def test_collnet_and_pat_only_where_they_exist() -> None:
    assert not any("CollNet" in a for a, _ in enabled_pairs(across(), "all_reduce", believe(across(), "all_reduce")))
    sharp = across(collnet=True)
    assert any(a == "CollNetDirect" for a, _ in enabled_pairs(sharp, "all_reduce", believe(sharp, "all_reduce")))
    single = across(gpus_per_host=1, num_nics=1)
    assert any(a == "PAT" for a, _ in enabled_pairs(single, "all_gather", believe(single, "all_gather")))
