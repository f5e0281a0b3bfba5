"""The program of a synchronised piece: it sends what the runtime sends."""

from __future__ import annotations

import pytest

from syncline.codec.codec import RAW, Codec
from syncline.codec.names import scheme
from syncline.errors import ProgramError
from syncline.fabric import Tier, load
from syncline.program import packed
from syncline.program.bucket import bucket_program
from syncline.program.pieces import shard_sizes
from syncline.sim.flow.estimate import estimate
from syncline.sim.flow.routing import FlowNetwork
from syncline.sim.flow.wired import wire

HALF = Codec("half", wire_ratio=0.5)


def sent(num_ranks: int, elements: int, levels: tuple[int, ...] = ()) -> list[int]:
    program = bucket_program(packed(load("h100-64-rail"), num_ranks), levels=levels)
    return [
        sum(int(entry.sends.size_bytes.sum()) for entry in program.rank_rounds(rank, 4 * elements))
        for rank in range(num_ranks)
    ]


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_each_rank_sends_its_peers_their_shards_and_everyone_the_sum(num_ranks: int) -> None:
    elements = 256 * num_ranks * 5
    shards = shard_sizes(elements, num_ranks)
    plain = scheme("fp32")
    due = [
        sum(plain.wire_bytes(size) for peer, size in enumerate(shards) if peer != rank)
        + (num_ranks - 1) * plain.wire_bytes(shards[rank])
        for rank in range(num_ranks)
    ]
    assert sent(num_ranks, elements) == due


def test_a_lane_of_the_runtime_sends_the_programs_bytes_and_its_prefixes() -> None:
    pytest.importorskip("torch", reason="the runtime needs torch")
    import torch
    from tests.runtime.wire import test_native_wire as wires

    from syncline.runtime.sync.native_exchange import NativeExchange

    elements = 256 * 4 * 3
    with wires.team(4) as made:
        lane = NativeExchange(torch.zeros(elements), None, scheme("fp32"), made[0], wires.place(0))
        assert lane.sent_bytes - 2 * 3 * 32 == sent(4, elements)[0]


def test_levels_are_nested_from_the_inside_out() -> None:
    elements = 256 * 16
    # Two levels of 4 and 2: 3/4 of the buffer inside each way, and 1/2 of a quarter across each way.
    assert sent(8, elements, (4,)) == [2 * (3 * elements + elements // 2)] * 8


def test_only_the_outermost_of_two_levels_is_in_the_codec() -> None:
    # Of a buffer of 1: inside each rank sends 3/4 twice; across half of a quarter twice, here in half of the bytes.
    fabric = load("h100-64-rail")
    network = FlowNetwork(fabric)
    spots = packed(fabric, 16)
    plain, coded = (wire(bucket_program(spots, codec, (8,)), network) for codec in (RAW, HALF))
    nics = fabric.links.tier == Tier.ACCESS
    sent = [made.link_bytes(1 << 20)[: network.num_links][nics].sum() for made in (plain, coded)]
    assert sent[1] == pytest.approx(sent[0] / 2)
    inside = fabric.links.tier == Tier.SCALE_UP
    others = [made.link_bytes(1 << 20)[: network.num_links][inside].sum() for made in (plain, coded)]
    assert others[0] == pytest.approx(others[1])
    assert others[0] > 0


def test_a_program_with_levels_is_priced_between_the_plain_and_the_coded_one() -> None:
    fabric = load("h100-64-rail")
    spots, size = packed(fabric, 64), 256 << 20
    network = FlowNetwork(fabric)
    plain_s, coded_s = (estimate(bucket_program(spots, codec, (8,)), network, size).time_s for codec in (RAW, HALF))
    assert 0.5 * plain_s < coded_s < plain_s
    step = bucket_program(spots, HALF, (8,)).steps[0]
    assert step.plain_stages == frozenset({0, 2})  # type: ignore[union-attr]


def test_what_cannot_be_lowered_is_refused() -> None:
    placement = packed(load("h100-64-rail"), 8)
    with pytest.raises(ProgramError, match="8 ranks have no level outside groups of 3"):
        bucket_program(placement, levels=(3,))
