"""A bucket that the backend averages: what is done about values that are not finite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from syncline.errors import NonFiniteError
from syncline.runtime.sync.step import Step
from syncline.runtime.sync.vendor import AllReduce


@pytest.fixture
def alone() -> Iterator[dist.ProcessGroup]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert dist.group.WORLD is not None
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.parametrize("nan", ["raise", "skip"])
def test_a_finite_average_is_taken_as_it_is(alone: dist.ProcessGroup, nan: str) -> None:
    step, buffer = Step(3, 0, "plain", 0.0), torch.tensor([1.0, -2.0])
    AllReduce(buffer, step, nan, alone).collect()
    assert buffer.tolist() == [1.0, -2.0] and not step.skipped


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_average_that_is_not_finite_is_refused_or_left_out(alone: dist.ProcessGroup, value: float) -> None:
    step = Step(3, 0, "plain", 0.0)
    with pytest.raises(NonFiniteError, match=r"an averaged gradient is not finite at step 3"):
        AllReduce(torch.tensor([1.0, value]), step, "raise", alone).collect()
    assert not step.skipped
    AllReduce(torch.tensor([1.0, value]), step, "skip", alone).collect()
    assert step.skipped
