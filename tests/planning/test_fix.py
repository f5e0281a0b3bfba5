"""Fixed choices: how they are written, what each stands for, and what is said of the others."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.errors import PlanError
from syncline.planning.fix import fixed_axes, read_fix
from syncline.planning.space import FULL, USUAL
from syncline.workload.job import Sync


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("", {}),
        (" tp = 8 , pp=4,", {"tp": 8, "pp": 4}),
        ("mbs=2,vp=3", {"micro": 2, "virtual": 3}),
        ("zero=0", {"zero": "none"}),
        ("sp=ON,reshard=0", {"sp": True, "reshard": False}),
        ("gradient_bytes=4,bucket=25MiB", {"gradient_bytes": 4, "bucket_bytes": 25 * 2**20}),
        ("codec=int8,placement=spread", {"codec": "int8", "placement": "spread"}),
    ],
)
def test_choices_are_read_as_values(text: str, chosen: dict[str, Any]) -> None:
    assert read_fix(text) == chosen


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tp", r'^"tp" gives no value for tp\.'),
        ("tp=", r'^"tp=" gives no value for tp\.'),
        ("pp=2,tp=,dp=4", r'^"tp=" gives no value for tp\.'),
        ("=8", r'^there is no choice "" to fix\.'),
        ("tp=0", r'^tp is "0"; it must be a whole number from 1\.'),
        ("tp=1.5", r'^tp is "1\.5"; it must be a whole number from 1\.'),
        ("gradient_bytes=3", r'^gradient_bytes is "3"; it is one of 1, 2, 4\.'),
        ("sp=maybe", r'^sp is "maybe"; it is on or off\.'),
        ("bucket=0", r'^bucket is "0"; it must be at least 1 byte\.'),
        ("codec=zip", r'^codec is "zip": '),
    ],
)
def test_what_is_no_choice_is_refused(text: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        read_fix(text)


def test_a_fixed_word_is_the_only_one_and_takes_along_what_it_needs() -> None:
    assert fixed_axes(USUAL, {"recompute": "full"}, Sync()).recompute == ("full",)
    assert fixed_axes(USUAL, {"algorithm": "tree"}, Sync()).zero == ("none",)
    assert fixed_axes(USUAL, {"algorithm": "hierarchical"}, Sync()).zero == ("none", "1", "2")
    assert fixed_axes(FULL, {"virtual": 2}, Sync()).schedule == ("interleaved",)
    assert fixed_axes(FULL, {"virtual": 1}, Sync()).schedule == ("1f1b", "gpipe", "zero-bubble")
    with pytest.raises(PlanError, match="needs whole parameters on every rank"):
        fixed_axes(USUAL, {"zero": "1"}, Sync(method="diloco"))
