"""Before forward DDP talks to all ranks itself: a rank that is gone by then is named there too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the runtime needs torch")
dist = torch.distributed

GONE = "rank 2 on host-2 is dead: its host answers that the process is gone."


@pytest.fixture
def model() -> Iterator[Any]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("said", "raised"),
    [
        ("whatever a backend says", GONE),
        ("shapes differ", "shapes differ"),
    ],
)
def test_a_connection_that_breaks_before_forward_names_the_rank_and_other_errors_stay(
    model: Any, monkeypatch: pytest.MonkeyPatch, said: str, raised: str
) -> None:
    import syncline.torch
    from syncline.errors import LostRankError

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(type(model), "_pre_forward", broken)
    handle = syncline.torch.synchronize(model, codec="int8")
    lost = LostRankError(GONE) if raised == GONE else None
    monkeypatch.setattr(handle, "failure_of", lambda failure: lost or failure)
    with pytest.raises((LostRankError, RuntimeError), match=raised.replace("(", "\\(")):
        model(torch.ones(1, 2))
    handle.close()
    assert "_pre_forward" not in vars(model), "closed, DDP is as it was"
