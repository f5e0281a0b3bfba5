"""How a bucket is cut: what is priced is what runs."""

from __future__ import annotations

import pytest

from syncline.program.pieces import PIECE_BYTES, piece_cuts, piece_sizes, shard_bounds, shard_sizes, wire_threads


@pytest.mark.parametrize("elements", [1, 255, 4096, 1_000_003, 10_000_000, 25_400_000])
def test_pieces_and_shards_cover_a_bucket_once(elements: int) -> None:
    cuts = piece_cuts(elements)
    assert cuts[0] == 0 and cuts[-1] == elements and cuts == sorted(set(cuts))
    assert sum(piece_sizes(elements)) == elements
    assert max(piece_sizes(elements)) * 4 <= 1.6 * PIECE_BYTES
    for size in piece_sizes(elements)[:2]:
        bounds = shard_bounds(size, 4)
        assert bounds[0][0] == 0 and bounds[-1][1] == size
        assert sum(shard_sizes(size, 4)) == size


def test_a_bucket_of_25_mib_is_six_pieces_of_about_four() -> None:
    assert len(piece_sizes(25 << 18)) == 6  # 25 MiB of float32, DDP's usual bucket
    assert len(piece_sizes(16 << 18)) == 4


def test_threads_are_half_of_a_ranks_processors_unless_told() -> None:
    assert wire_threads({"SYNCLINE_WIRE_THREADS": "7"}) == 7
    assert 1 <= wire_threads({}) <= 4
    assert wire_threads({"LOCAL_WORLD_SIZE": "512"}) == 1
