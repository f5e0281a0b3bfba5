"""Over random jobs the parts of every account add up, and a free network saves what the account says of it."""

from __future__ import annotations

import pytest
from tests.questions.accounts import broken_asks


@pytest.mark.parametrize(("kind", "wanted"), [("step", 25), ("plan", 1), ("preview", 3)])
def test_parts_add_up_and_a_free_network_saves_its_part_less_what_hid_behind_it(kind: str, wanted: int) -> None:
    answered, rules = broken_asks(kind, wanted, first_seed=100)
    assert answered == wanted and not rules
