"""Which link loses, from which paths lose."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncline.watch.path_loss import attribute

OWNER = {f"10.0.0.{i}": f"h{i}/eth0" for i in range(8)}
RING = {(f"h{i}/eth0", f"10.0.0.{(i + 1) % 8}"): 0.0 for i in range(8)}


def test_no_loss_is_no_blame() -> None:
    assert attribute(RING, OWNER) == {}


def test_a_ring_through_one_bad_cable_blames_both_directions_of_it() -> None:
    lossy = {**RING, ("h0/eth0", "10.0.0.1"): 6.0, ("h1/eth0", "10.0.0.2"): 5.0}
    assert attribute(lossy, OWNER) == {("h1/eth0", "rx"): 6.0, ("h1/eth0", "tx"): 5.0}


def test_one_lossy_path_alone_is_laid_at_its_senders_door() -> None:
    assert attribute({**RING, ("h0/eth0", "10.0.0.1"): 6.0}, OWNER) == {("h0/eth0", "tx"): 6.0}
    assert attribute({("h0/eth0", "192.0.2.9"): 6.0}, OWNER) == {("h0/eth0", "tx"): 6.0}


def test_two_bad_hosts_are_both_found() -> None:
    lossy = {
        ("h0/eth0", "10.0.0.1"): 5.0,
        ("h1/eth0", "10.0.0.2"): 5.0,
        ("h4/eth0", "10.0.0.5"): 5.0,
        ("h5/eth0", "10.0.0.6"): 4.0,
    }
    assert {device for device, _ in attribute(lossy, OWNER)} == {"h1/eth0", "h5/eth0"}


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(sorted(OWNER.values())), st.sampled_from(sorted(OWNER))), st.floats(0, 100)
    )
)
def test_all_that_counts_is_laid_somewhere_and_nothing_twice(lossy: dict[tuple[str, str], float]) -> None:
    top = max(lossy.values(), default=0.0)
    counted = sum({(a, OWNER[b]): r for (a, b), r in lossy.items() if r > 0.05 * top}.values())
    assert abs(sum(attribute(lossy, OWNER).values()) - counted) < 1e-6
