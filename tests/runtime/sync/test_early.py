"""An optimizer that updates bucket by bucket does what it does in one step, and what it cannot do is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch

from syncline.errors import SynchronizationError
from syncline.runtime.sync.early import EarlyUpdates
from syncline.runtime.sync.step import Step
from syncline.timeline import SpanKind

OPTIMIZERS: dict[str, Callable[[Iterable[Any]], torch.optim.Optimizer]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
    "adamw foreach": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, foreach=True, amsgrad=True),
    "adam fused": lambda parameters: torch.optim.Adam(parameters, lr=1e-2, fused=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, nesterov=True),
    "groups": lambda parameters: torch.optim.AdamW(
        [{"params": [p], "lr": 1e-2 / (n + 1)} for n, p in enumerate(parameters)]
    ),
}


def parameters() -> list[torch.nn.Parameter]:
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(size)) for size in (5, 1, 300, 7)]


def gradient(parameter: torch.Tensor, step: int, number: int) -> torch.Tensor:
    return torch.randn(parameter.shape, generator=torch.Generator().manual_seed(10 * step + number))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_parts_are_the_whole_bit_for_bit(name: str) -> None:
    results = []
    for parts in ([[0, 1, 2, 3]], [[3], [1, 2], [0]], [[2, 0]]):
        own = parameters()
        optimizer = OPTIMIZERS[name](own)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        updates = EarlyUpdates(optimizer, own) if parts[0] != [0, 1, 2, 3] else None
        for step in range(4):
            due = [gradient(parameter, step, number) for number, parameter in enumerate(own)]
            for parameter, values in zip(own, due, strict=True):
                parameter.grad = values.clone()
            if updates is not None:
                for part in parts:
                    updates.update([own[k] for k in part], [due[k] for k in part])
            optimizer.step()  # what is left: all of it, nothing, or two of four
            assert all(torch.equal(p.grad, values) for p, values in zip(own, due, strict=True) if p.grad is not None)
            assert all(p.grad is not None for p in own)
            schedule.step()
            optimizer.zero_grad()
        saved = optimizer.state_dict()
        results.append((torch.cat([p.detach() for p in own]), [sorted(saved["state"].items()), saved["param_groups"]]))
    for values, state in results[1:]:
        assert torch.equal(values, results[0][0])
        assert str(state) == str(results[0][1]), "what is saved is the same too"


def test_hooks_see_whole_steps_and_are_gone_afterwards() -> None:
    own = parameters()
    optimizer = torch.optim.SGD(own, lr=1.0)
    seen: list[float] = []
    optimizer.register_step_post_hook(lambda *ignored: seen.append(float(own[0].detach()[0])))
    updates = EarlyUpdates(optimizer, own)
    before = float(own[0].detach()[0])
    updates.update(own[:1], [torch.ones(5)])
    assert seen == [] and own[0].grad is None
    optimizer.step()
    assert seen == [before - 1.0]
    updates.remove()
    own[0].grad = torch.ones(5)
    optimizer.step()
    assert seen == [before - 1.0, before - 2.0]


def test_a_gradient_that_is_elsewhere_is_the_one_that_counts() -> None:
    """DDP without gradient_as_bucket_view copies averages back after its buckets are done."""
    own = parameters()
    optimizer = torch.optim.SGD(own, lr=1.0)
    own[0].grad = torch.full((5,), 100.0)
    before = own[0].detach().clone()
    EarlyUpdates(optimizer, own).update(own[:1], [torch.ones(5)])
    assert torch.equal(own[0].detach(), before - 1.0)
    assert torch.equal(own[0].grad, torch.full((5,), 100.0))


def test_a_second_backward_before_the_step_is_refused() -> None:
    own = parameters()
    updates = EarlyUpdates(torch.optim.SGD(own, lr=1.0), own)
    updates.update(own[:1], [torch.ones(5)])
    with pytest.raises(SynchronizationError, match="backward ran again before optimizer") as got:
        updates.update(own[:2], [torch.ones(5), torch.ones(1)])
    assert "no_sync()" in str(got.value.hint)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda own: torch.optim.LBFGS(own), "L-BFGS needs all gradients at once"),
        (lambda own: torch.optim.SGD(parameters(), lr=1.0), "holds no parameter of this model"),
        (lambda own: "adam", "is a str, not an optimizer of torch"),
    ],
)
def test_what_cannot_be_done_is_refused(make: Callable[[Any], Any], said: str) -> None:
    own = parameters()
    with pytest.raises(SynchronizationError, match=said):
        EarlyUpdates(make(own), own)


def test_updates_under_the_exchange_are_no_waiting() -> None:
    step = Step(3, 0, "int8", 1.0)
    step.computed_s, step.synchronised_s, step.ended_s = 2.0, 3.0, 3.5
    assert step.exposed_s == pytest.approx(1.0)
    step.updates += [(2.2, 2.5), (2.9, 3.1)]
    assert step.exposed_s == pytest.approx(1.0 - 0.3 - 0.1)
    timeline = step.timeline(1e9)
    rows = [
        (timeline.names[n], SpanKind(kind), round(float(b), 3), round(float(e), 3))
        for n, kind, b, e in zip(
            timeline.spans.name, timeline.spans.kind, timeline.spans.start_s, timeline.spans.end_s, strict=True
        )
    ]
    assert [row[0] for row in rows].count("optimizer") == 3
    assert sum(e - b for name, _, b, e in rows if name == "exposed") == pytest.approx(0.6)
    assert sum(e - b for name, _, b, e in rows if name == "optimizer") == pytest.approx(0.3 + 0.2 + 0.4)
