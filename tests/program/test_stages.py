"""The stages of a synchronised bucket: what is posted, in which order, on how many levels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from syncline.codec.names import dense, scheme
from syncline.errors import ProgramError
from syncline.program.pieces import DEPTH, PIECE_BYTES, shard_sizes
from syncline.program.stages import BucketProgram, Posts, StagePhase


def test_one_level_is_encode_sum_decode() -> None:
    program = BucketProgram(3_000_000, scheme("int8"), (4,))
    assert [stage.name for stage in program.stages] == ["encode shard", "sum and encode", "decode sum"]
    assert [stage.phase for stage in program.stages] == [StagePhase.SEND, StagePhase.REDUCE, StagePhase.COLLECT]
    assert [stage.awaits for stage in program.stages] == [-1, 0, 1]
    assert sum(piece.elements for piece in program.pieces) == 3_000_000
    assert program.depth == DEPTH and max(4 * piece.elements for piece in program.pieces) <= 1.5 * PIECE_BYTES


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_a_rank_posts_every_peers_shard_and_then_its_own_sum(rank: int) -> None:
    piece = BucketProgram(1_000_000, scheme("int8"), (4,)).pieces[0]
    sizes = [scheme("int8").wire_bytes(size) for size in shard_sizes(piece.elements, 4)]
    peers = [(rank + k) % 4 for k in (1, 2, 3)]
    assert piece.messages(0, rank) == [(peer, sizes[peer]) for peer in peers]
    assert piece.messages(1, rank) == [(peer, sizes[rank]) for peer in peers]
    assert piece.messages(2, rank) == []


def test_levels_are_dense_inside_and_encoded_at_the_outermost() -> None:
    program = BucketProgram(1 << 20, scheme("int8"), (2, 3))
    piece = program.pieces[0]
    assert [(stage.name, stage.level, stage.awaits) for stage in program.stages] == [
        ("encode shard", 0, -1), ("decode and sum", 0, 0),
        ("encode shard", 1, -1), ("sum and encode", 1, 2), ("decode sum", 1, 3),
        ("sum and encode", 0, -1), ("decode sum", 0, 5),
    ]  # fmt: skip
    assert [stage.phase for stage in program.stages] == [StagePhase.SEND, *[StagePhase.REDUCE] * 5, StagePhase.COLLECT]
    half = piece.elements // 2
    assert piece.messages(0, 4) == [(5, 4 * half)], "rank 4 is the first of its pair"
    third = shard_sizes(half, 3)
    assert piece.messages(2, 4) == [(0, scheme("int8").wire_bytes(third[0])), (2, scheme("int8").wire_bytes(third[1]))]
    assert program.sent_bytes(4, level=0) == 2 * 4 * half * len(program.pieces)


def test_factors_are_averaged_twice_and_the_second_time_while_the_first_is_collected() -> None:
    program = BucketProgram(400 * 300, scheme("powersgd:rank=2"), (4,), factors=(800, 600))
    assert [stage.phase for stage in program.stages] == [StagePhase.SEND] * 2 + [StagePhase.REDUCE] + [
        StagePhase.COLLECT
    ] * 6
    (piece,) = program.pieces
    assert piece.factors == (800, 600)
    posts = [stage for stage in program.stages if stage.posts]
    assert [stage.posts for stage in posts] == [Posts.SHARDS, Posts.SUMS] * 2
    assert program.sent_bytes(0) == sum(size for k in (1, 2, 5, 6) for _, size in piece.messages(k, 0))


def test_it_can_be_read() -> None:
    program = BucketProgram(1_000_000, scheme("bf16"), (8,))
    assert str(program) == (
        "1,000,000 elements in bf16, 8 ranks: 1 pieces, 2 under way; encode shard, sum and encode, decode sum; "
        "3.34 MiB sent by a rank"
    )
    stages: Any = program.to_json()["stages"]
    assert stages[1] == {"name": "sum and encode", "phase": "reduce", "level": 0, "awaits": 0, "posts": "sums"}
    with pytest.raises(ProgramError, match="is impossible"):
        BucketProgram(10, scheme("int8"), ())


def test_a_lane_of_the_runtime_sends_the_programs_bytes_and_its_prefixes() -> None:
    pytest.importorskip("torch", reason="the runtime needs torch")
    import torch
    from tests.runtime.wire import test_native_wire as wires

    from syncline.runtime.sync.native_exchange import NativeExchange

    elements = 256 * 4 * 3
    with wires.team(4) as made:
        lane = NativeExchange(torch.zeros(elements), None, dense("fp32"), made[0], wires.place(0))
        assert lane.sent_bytes - 2 * 3 * 32 == BucketProgram(elements, scheme("fp32"), (4,)).sent_bytes(0)


def test_stages_that_cannot_be_carried_out_are_refused() -> None:
    program = BucketProgram(1_000_000, scheme("int8"), (4,))
    encode, total, decode = program.stages
    for wrong in (
        (encode, total, replace(decode, awaits=0)),  # sums that nobody has posted
        (encode, replace(total, posts=Posts.NOTHING), decode),
        (encode, replace(total, awaits=2), decode),  # a stage after it
        (encode, replace(total, name="sum twice"), decode),
    ):
        with pytest.raises(ProgramError, match="cannot be carried out"):
            replace(program, stages=wrong)
    assert replace(program, stages=(encode, total)).stages == (encode, total)
