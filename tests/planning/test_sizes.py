"""Time against money: nothing on the front is beaten, nothing off it is unbeaten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncline.planning.sizes import SizePlan, front, gpu_counts

POINTS = st.lists(
    st.builds(
        SizePlan, st.just(8), st.integers(1, 20).map(float), st.just(1.0), st.integers(1, 20).map(float), st.just("")
    ),
    max_size=30,
)


@given(POINTS)
def test_the_front_is_what_nothing_beats(points: list[SizePlan]) -> None:
    def beaten(p: SizePlan) -> bool:
        return any(
            q.step_time_s <= p.step_time_s and q.cost_per_token_usd <= p.cost_per_token_usd and q != p for q in points
        )

    assert set(front(points)) == {p for p in points if not beaten(p)}


def test_counts_are_whole_hosts_up_to_the_cluster() -> None:
    counts = gpu_counts(512, 8)
    assert counts[-1] == 512
    assert all(count % 8 == 0 for count in counts)
    assert counts == sorted(set(counts))
    assert {384, 256, 192, 128} <= set(counts)
    assert gpu_counts(8, 8) == [8]
