"""Fragments of a model, the groups they are averaged over, and what a method refuses: in one process, without ranks."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from syncline.errors import SynchronizationError
from syncline.runtime.periodic.diloco import DiLoCo
from syncline.runtime.periodic.fragment import Fragment, cut
from syncline.runtime.periodic.target import Target, target


def whole(sizes: list[int]) -> Target:
    parameters = tuple(nn.Parameter(torch.arange(float(size))) for size in sizes)
    return Target(tuple(f"p{k}" for k in range(len(sizes))), parameters, None, (), None)


@given(st.lists(st.integers(1, 400), min_size=1, max_size=20), st.integers(1, 9))
def test_fragments_cover_every_parameter_once_in_order_and_are_near_equal(sizes: list[int], wanted: int) -> None:
    chosen = whole(sizes)
    parts = cut(chosen.names, chosen.parameters, wanted)
    assert sum((part.names for part in parts), ()) == tuple(f"p{k}" for k in range(len(sizes)))
    assert 1 <= len(parts) <= wanted
    assert max(part.num_elements for part in parts) <= sum(sizes) / wanted + 2 * max(sizes)


def test_a_fragment_copies_there_and_back_and_adds() -> None:
    chosen = whole([3, 4, 5])
    part = Fragment(chosen.names[1:3], chosen.parameters[1:3])
    flat = part.new()
    part.read(flat)
    assert flat.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4]
    part.add(flat)
    assert chosen.parameters[2].tolist() == [0, 2, 4, 6, 8]
    part.write(flat)
    assert chosen.parameters[1].tolist() == [0, 1, 2, 3]
    assert chosen.parameters[0].tolist() == [0, 1, 2]


def test_it_says_what_is_missing() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(SynchronizationError, match=r"torch\.distributed is not initialised"):
        target(model)
    with pytest.raises(SynchronizationError, match="DiLoCo wraps a torch optimizer; got Linear"):
        DiLoCo(model, model)  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with pytest.raises(SynchronizationError, match="every=0 must be a whole number from 1"):
        DiLoCo(optimizer, model, every=0)
    with pytest.raises(SynchronizationError, match="delay=9 is longer than the 4 steps between launches"):
        DiLoCo(optimizer, model, every=4, delay=9)
