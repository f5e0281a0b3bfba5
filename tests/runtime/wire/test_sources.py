"""Behind a member that stands for several ranks, those are named whose own gradient was not finite."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch
import torch.distributed as dist

from syncline.runtime.wire.sources import GradientSources


def test_a_rank_that_noted_it_is_named_and_otherwise_all_that_it_may_have_been() -> None:
    store = dist.HashStore()
    first, last = (GradientSources([[0, 1], [2, 3]], own, store) for own in (0, 3))
    last.looked(9, False)
    assert first.of(1, 9) == "3"
    assert first.of(1, 8) == "2 or 3", "another step's note says nothing of this one"
    assert first.of(0, 9) == "0 or 1"
    GradientSources([[0, 1], [2, 3]], 2, store).looked(9, False)
    assert first.of(1, 9) == "2 and 3"


def test_what_lies_on_a_device_is_told_once_the_sum_has_come_and_waited_for() -> None:
    store = dist.HashStore()
    first, last = (GradientSources([[0, 1], [2, 3]], own, store, wait_s=30.0) for own in (0, 3))
    last.looked(4, torch.tensor(True))
    last.looked(5, torch.tensor(False))
    later = threading.Timer(0.1, last.settle)
    later.start()
    assert first.of(1, 5) == "3"
    later.join()
    assert not store.check(["4/3"]), "that step's gradient was finite"
