"""FSDP2 on four real processes: its reduce-scatter and its all-reduce hook, encoded."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
from tests.distributed.fsdp_cases import do_all
from tests.distributed.ranks import run_ranks

WORST = {"fp32": 1e-6, "bf16": 3e-3, "int8": 1e-2, "sign": 1.5}


@cache
def results() -> list[dict[str, Any]]:
    return run_ranks(4, do_all)


@pytest.mark.parametrize("codec", WORST)
def test_sharded_gradients_are_the_mean(codec: str) -> None:
    for got in results():
        assert got[codec] < WORST[codec]
        assert got[f"{codec} off"] < 1e-6, "turned off it is plain FSDP2"


def test_bytes_are_those_of_the_codec() -> None:
    for got in results():
        sent, dense, buckets = got["int8 bytes"]
        assert buckets == 3
        assert sent < 0.3 * dense


def test_nothing_is_lost_to_encoding() -> None:
    assert all(got["owes"] < 1e-5 for got in results())


def test_replicas_of_shards_are_averaged_across_hosts() -> None:
    assert all(got["replicas"] < 2e-2 for got in results())


def test_low_rank_is_refused_with_a_way_out() -> None:
    assert all(got["low rank"].startswith('codec "powersgd:rank=1" needs whole matrices') for got in results())


def test_what_is_not_there_is_refused() -> None:
    assert all(got["skip"].startswith('nan="skip" is not there for FSDP2.') for got in results())


def test_nan_raises_on_every_rank() -> None:
    assert all("on rank 3 is not finite at step 0" in got["nan"] for got in results())
