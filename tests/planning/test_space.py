"""The space of configurations: which sizes an axis may have."""

from __future__ import annotations

from syncline.planning.space import contexts


def test_context_groups_cut_a_sequence_into_two_slices_a_rank_of_256_tokens_or_more() -> None:
    assert contexts(4096, 4) == [1, 2, 4] and contexts(4096, 3) == [1, 2]
    assert contexts(1024, 16) == [1, 2, 4]  # eight ranks would have 128 tokens each
    assert contexts(1028, 8) == [1, 2]  # 1,028 does not divide by twice four
    assert contexts(1025, 8) == [1]  # a rank alone cuts nothing
