"""What codecs owe under FSDP2, put together to whole parameters and cut anew for another mesh: nothing is lost."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncline.runtime.sync.geometry import Geometry, Sharding, owed_by_all


def geometry(rows: int, num_shards: int, shard: int = -1) -> Geometry:
    """Two parameters: one cut along its rows, which may need padding, and one along its columns, which may not."""
    each = -(-rows // num_shards)
    return Geometry(
        {
            "w": Sharding((rows, 3), 0, (each, 3)),
            "v": Sharding((2, 4 * num_shards), 1, (2, 4)),
        },
        num_shards,
        shard,
    )


@given(rows=st.integers(1, 17), num_shards=st.integers(1, 6))
def test_cut_and_put_together_is_the_same(rows: int, num_shards: int) -> None:
    for sharding in geometry(rows, num_shards).parameters.values():
        whole = torch.arange(float(torch.Size(sharding.shape).numel())).view(sharding.shape)
        shards = sharding.cut(whole, num_shards)
        assert [tuple(shard.shape) for shard in shards] == [sharding.padded] * num_shards
        assert torch.equal(sharding.whole(shards), whole)


@given(rows=st.integers(1, 17), before=st.integers(1, 4), after=st.integers(1, 4))
def test_what_all_owe_is_kept_by_another_number_of_ranks(rows: int, before: int, after: int) -> None:
    numbers = torch.Generator().manual_seed(rows)
    wholes = [{"w": torch.randn(rows, 3, generator=numbers)} for _ in range(before)]
    saved = [(geometry(rows, before), geometry(rows, before).lay_out(owed)) for owed in wholes]
    mean = owed_by_all(saved, before)["w"]
    torch.testing.assert_close(mean, sum(owed["w"] for owed in wholes) / before)
    again = [(geometry(rows, after), geometry(rows, after).lay_out({"w": mean})) for _ in range(after)]
    torch.testing.assert_close(owed_by_all(again, after)["w"], mean)


def test_replicas_owe_their_shards_and_any_mesh_takes_them_over() -> None:
    """Two replicas of three shards, each rank with its own; six ranks of one mesh owe as much."""
    numbers = torch.Generator().manual_seed(1)
    wholes = [torch.randn(7, 3, generator=numbers) for _ in range(2)]
    ranks = [
        (geometry(7, 3, shard), geometry(7, 3, shard).lay_out({"w": owed})) for owed in wholes for shard in range(3)
    ]
    assert all(len(kept) == 1 for _, kept in ranks), "each rank keeps its own shard"
    torch.testing.assert_close(owed_by_all(ranks, 2)["w"], (wholes[0] + wholes[1]) / 2)


def test_it_is_kept_as_plain_values() -> None:
    one = geometry(5, 2, 1)
    assert Geometry.from_json(one.to_json()) == one
    assert one.name("w", 0) == "w (replicated shard, 0)"
