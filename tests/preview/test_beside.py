"""A preview beside `step` of its own job file, and what-ifs of how all-reduces run."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.errors import UnitError, UsageError
from syncline.questions.preview import PreviewAnswer, preview

EXAMPLES = Path(__file__).parents[2] / "examples" / "preview"
COMMAND = ["torchrun", "--nnodes", "2", "--nproc-per-node", "8", str(EXAMPLES / "ddp.py")]
CHANGES = ["algorithm=ring", "algorithm=tree", "network=free"]


@pytest.fixture(scope="module")
def seen() -> PreviewAnswer:
    return preview("h100-64-rail", COMMAND, captured=EXAMPLES / "captured", what_if=CHANGES, beside=True)


def test_parts_add_up_on_both_sides_and_what_differs_is_explained(seen: PreviewAnswer) -> None:
    found = seen.beside
    for whole, parts in ((found.step_time_s, found.time_s), (found.memory_bytes, found.held_bytes)):
        for side in (0, 1):
            assert sum(pair[side] for pair in parts.values()) == pytest.approx(whole[side], rel=0.06)
        apart = {n for n, (a, b) in parts.items() if abs(a - b) > 0.02 * whole[0]}
        assert apart == {why.split(":")[0] for why in found.why} & {*parts}
    assert any("list of layers" in why for why in found.why)  # it lacks what the script keeps
    text = str(seen)
    assert "beside `step` of the job" in text and all(why in text for why in found.why)


def test_nothing_is_said_of_step_unasked() -> None:
    bare = preview("h100-64-rail", COMMAND, captured=EXAMPLES / "captured", what_if=[])
    assert bare.to_json()["beside_step"] == {} and "beside `step`" not in str(bare)


def test_a_ring_of_two_hosts_waits_as_a_tree_does_and_a_tree_sends_more(seen: PreviewAnswer) -> None:
    """Two hosts are two hops either way; a tree's ranks pass the whole buffer, a ring's 15 of 16 parts of it."""
    ring, tree, free = seen.alternatives
    assert free.exposed_s == 0 < ring.exposed_s < tree.exposed_s < 1.2 * ring.exposed_s


@pytest.mark.parametrize("change", ["algorithm=best", "bucket=wide"])
def test_what_is_no_algorithm_or_size_is_refused(change: str) -> None:
    with pytest.raises((UsageError, UnitError), match=r"algorithm= takes ring or tree|cannot read size"):
        preview("h100-64-rail", COMMAND, captured=EXAMPLES / "captured", what_if=[change])
