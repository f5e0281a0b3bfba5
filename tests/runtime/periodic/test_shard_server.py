"""One shard of a parameter server, its workers threads of this process."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch
from torch import nn

from syncline.codec.names import scheme
from syncline.errors import SynchronizationError
from syncline.runtime.periodic.fragment import Fragment
from syncline.runtime.periodic.shard_server import ShardServer, View
from syncline.runtime.periodic.target import Target

SIZE = 600


def server(num_workers: int, rounds: bool, staleness: int | None = None, codec: str = "fp32") -> ShardServer:
    parameter = nn.Parameter(torch.zeros(SIZE))
    fragment = Fragment(Target(("w",), (parameter,), None, (), None), 0, 1)
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    return ShardServer(fragment, optimizer, scheme(codec), num_workers, staleness, rounds)


def push(served: ShardServer, worker: int, value: float) -> torch.Tensor:
    plain = scheme("fp32")
    payload = torch.zeros(plain.wire_bytes(SIZE), dtype=torch.uint8)
    plain.encode(torch.full((SIZE,), value).numpy(), payload.numpy(), plain.new_state(SIZE))
    out = torch.zeros_like(payload)
    served.exchange(worker, payload, out)
    weights = torch.zeros(SIZE)
    plain.decode(out.numpy(), weights.numpy())
    return weights


def test_a_round_steps_once_with_the_mean() -> None:
    served = server(2, rounds=True)
    answers: dict[str, object] = {}
    other = threading.Thread(target=lambda: answers.update(other=push(served, 1, 3.0)))
    other.start()
    answers["own"] = push(served, 0, 1.0)
    other.join()
    assert served.version == 1
    assert answers["own"].tolist() == answers["other"].tolist() == [-1.0] * SIZE


def test_without_rounds_each_push_is_a_step_until_a_worker_is_too_far_ahead() -> None:
    served = server(2, rounds=False, staleness=1)
    assert push(served, 0, 1.0)[0] == -0.5
    ahead = threading.Thread(target=push, args=(served, 0, 1.0))
    ahead.start()
    ahead.join(0.2)
    assert ahead.is_alive(), "two pushes ahead of the other worker, where one is allowed"
    push(served, 1, 1.0)
    ahead.join(120)
    assert not ahead.is_alive()
    assert served.version == 3


def test_a_worker_that_leaves_is_not_waited_for() -> None:
    served = server(2, rounds=False, staleness=0)
    served.leave(1)
    push(served, 0, 1.0)
    push(served, 0, 1.0)
    assert served.version == 2


def test_a_failure_wakes_who_waits_and_stays() -> None:
    served = server(2, rounds=True)
    raised: list[str] = []

    def worker() -> None:
        try:
            push(served, 0, 1.0)
        except SynchronizationError as error:
            raised.append(error.message)

    waiting = threading.Thread(target=worker)
    waiting.start()
    served.fail(SynchronizationError("worker 1 is lost."))
    waiting.join(120)
    assert raised == ["worker 1 is lost."]
    with pytest.raises(SynchronizationError, match="worker 1 is lost"):
        push(served, 0, 1.0)


def test_what_an_answer_loses_is_in_the_next() -> None:
    torch.manual_seed(0)
    master = torch.randn(SIZE)
    view = View(torch.zeros(SIZE), scheme("int4"), seed=0)
    errors = []
    for _ in range(4):
        view.encode(master)
        errors.append(float((master - view.have).norm() / master.norm()))
    assert errors[0] < 0.2
    assert all(later < 0.3 * sooner for sooner, later in pairwise(errors))
