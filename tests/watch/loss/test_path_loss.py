"""Which link loses, from which paths lose."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncline.watch.loss.lost_packets import culprits, evident

OWNER = {f"10.0.0.{i}": f"h{i}/eth0" for i in range(8)}
RING = {(f"h{i}/eth0", f"10.0.0.{(i + 1) % 8}"): 0.0 for i in range(8)}


def test_no_loss_is_no_blame() -> None:
    assert culprits(RING, OWNER) == {}


def test_a_ring_through_one_bad_cable_blames_both_directions_of_it() -> None:
    lossy = {**RING, ("h0/eth0", "10.0.0.1"): 6.0, ("h1/eth0", "10.0.0.2"): 5.0}
    assert list(culprits(lossy, OWNER).values()) == [("h1/eth0", "rx"), ("h1/eth0", "tx")]


def test_one_lossy_path_alone_is_laid_at_its_senders_door() -> None:
    path, stranger = ("h0/eth0", "10.0.0.1"), ("h0/eth0", "192.0.2.9")
    assert culprits({**RING, path: 6.0}, OWNER) == {path: ("h0/eth0", "tx")}
    assert culprits({stranger: 6.0}, OWNER) == {stranger: ("h0/eth0", "tx")}


def test_two_bad_hosts_are_both_found() -> None:
    lossy = {
        ("h0/eth0", "10.0.0.1"): 5.0,
        ("h1/eth0", "10.0.0.2"): 5.0,
        ("h4/eth0", "10.0.0.5"): 5.0,
        ("h5/eth0", "10.0.0.6"): 4.0,
    }
    assert {device for device, _ in culprits(lossy, OWNER).values()} == {"h1/eth0", "h5/eth0"}


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(sorted(OWNER.values())), st.sampled_from(sorted(OWNER))), st.floats(0, 100)
    )
)
def test_all_that_counts_is_laid_on_one_of_its_ends(lossy: dict[tuple[str, str], float]) -> None:
    found = culprits(lossy, OWNER)
    assert found.keys() == evident(lossy).keys()
    assert all(device in (path[0], OWNER[path[1]]) for path, (device, _) in found.items())
