"""One name for a collective, whoever tells of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.timeline.collective import OPERATIONS, CollectiveName, canonical, expected, expected_by_size, parse

MIB = 1 << 20


@pytest.mark.parametrize(
    ("said", "operation", "group", "codec"),
    [
        ("AllReduce", "all-reduce", "", ""),  # NCCL Inspector and NCCL's log
        ("nccl:all_reduce", "all-reduce", "", ""),  # PyTorch's flight recorder
        ("nccl:_allgather_base", "all-gather", "", ""),
        ("_reduce_scatter_base", "reduce-scatter", "", ""),
        ("reduce_scatter_tensor_coalesced", "reduce-scatter", "", ""),
        ("ALLTOALL_BASE", "all-to-all", "", ""),
        ("SendRecv", "send-receive", "", ""),
        ("average int8", "all-reduce", "", "int8"),  # the runtime, before it had this name
        ("average topk:keep=0.01+int8", "all-reduce", "", "topk:keep=0.01+int8"),
        ("tensor all-gather", "all-gather", "tensor", ""),  # a priced step
        ("ring all-reduce", "all-reduce", "", ""),
        ("all-reduce@data/1MiB+int8", "all-reduce", "data", "int8"),  # this name itself
    ],
)
def test_whoever_tells_of_it(said: str, operation: str, group: str, codec: str) -> None:
    assert canonical(said, MIB) == CollectiveName(operation, group, MIB, codec)


@given(st.sampled_from(OPERATIONS), st.sampled_from(["", "data", "tensor", "expert"]), st.integers(0, 50),
       st.sampled_from(["", "int8", "topk:keep=0.01"]))  # fmt: skip
def test_a_name_is_read_back(operation: str, group: str, power: int, codec: str) -> None:
    name = CollectiveName(operation, group, 1 << power, codec)
    assert parse(str(name)) == name
    assert canonical(str(name)) == name


def test_prediction_and_measurement_meet() -> None:
    planned = {"all-reduce@data/25MiB+int8": 0.01, "all-gather@tensor/8MiB": 0.002}
    assert expected(planned, canonical("average int8", 25 * MIB, "dp")) == 0.01
    assert (
        expected(planned, canonical("all_reduce", 20 * MIB)) == 0.01
    )  # group and codec are not said, the size is near
    assert expected(planned, canonical("nccl:_allgather_base", 8 * MIB, "mesh_tp")) == 0.002
    assert expected(planned, canonical("all_reduce", 200 * MIB)) is None
    assert expected(planned, canonical("average int4", 25 * MIB)) is None
    assert expected({"AllReduce/16MiB": 3e-3}, canonical("all_reduce", 16 * MIB)) == 3e-3  # a table of a user's own
    assert expected({"AllReduce": 3e-3}, canonical("all_reduce", 16 * MIB)) == 3e-3


def test_another_size_is_expected_in_proportion_to_the_nearest() -> None:
    planned = {"all-reduce@data/8MiB": 0.08, "all-reduce@data/1MiB": 0.02, "all-gather@tensor/8MiB": 1.0}
    assert expected_by_size(planned, canonical("all_reduce", 4 * MIB)) == pytest.approx(0.04)
    assert expected_by_size(planned, canonical("all_reduce", MIB // 4, "dp")) == pytest.approx(0.005)
    assert expected_by_size(planned, canonical("all_reduce", MIB, "tp")) is None
    assert expected_by_size(planned, canonical("broadcast", MIB)) is None
    two = {"all-reduce@data/8MiB": 0.08, "all-reduce@tensor/8MiB": 0.01}
    assert expected_by_size(two, canonical("all_reduce", MIB)) is None
    assert expected_by_size({"AllReduce/16MiB": 16.0}, canonical("all_reduce", MIB)) == pytest.approx(1.0)


def test_two_that_may_be_meant_are_not_guessed_between() -> None:
    planned = {"all-reduce@data/1MiB": 0.01, "all-reduce@tensor/1MiB": 0.002}
    assert expected(planned, canonical("all_reduce", MIB)) is None
    assert expected(planned, canonical("all_reduce", MIB, "tp")) == 0.002


def test_sizes_that_no_unit_divides_are_read_back() -> None:
    """A bucket of 258.25 KiB once ended every span of a job at the agent's door."""
    name = CollectiveName("all-reduce", "data", 264_448, "int8")
    assert str(name) == "all-reduce@data/264448B+int8"
    assert parse(str(name)) == name
