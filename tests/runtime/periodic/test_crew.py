"""Who is in a crew: one decision for all, whoever asks first; latecomers and impostors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch
import torch.distributed as dist
from torch import nn

from syncline.errors import CrewFinishedError, SynchronizationError
from syncline.runtime.periodic.crew import Crew, Ticket
from syncline.runtime.periodic.diloco import DiLoCo
from syncline.runtime.periodic.fragment import cut
from syncline.runtime.periodic.shared import SharedFragment


def crews(count: int, **options: Any) -> tuple[Any, list[Crew]]:
    stores: Any = dist
    store = stores.HashStore()
    return store, [Crew(store, rank, count, **{"patience_s": 30.0, "wait_s": 60.0, **options}) for rank in range(count)]


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Return what each call returns, or the text of what it raises; all at the same time."""
    results: list[Any] = [None] * len(calls)

    def work(index: int) -> None:
        try:
            results[index] = calls[index]()
        except SynchronizationError as error:
            results[index] = error.message

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return results


def test_a_lost_rank_is_left_out_and_a_new_process_of_it_let_in_at_one_step() -> None:
    store, (zero, one, two) = crews(3)
    started = together(*(lambda crew=crew: crew.enter({"every": 4}) for crew in (zero, one, two)))
    assert [formation.members for formation in started] == [(0, 1, 2)] * 3
    left = together(lambda: zero.form_anew([2]), lambda: one.form_anew([]))
    assert [formation.members for formation in left] == [(0, 1)] * 2
    back = Crew(store, 2, 3, patience_s=30.0, wait_s=60.0)

    def at_the_door(crew: Crew) -> Any:
        step = 8
        while not (tickets := crew.waiting(step)):
            time.sleep(0.002)
            step += 4
        return step, crew.let_in(tickets)

    members = [lambda crew=crew: at_the_door(crew) for crew in (zero, one)]
    first, second, came = together(*members, lambda: back.enter({"every": 4}))
    assert first == second, "both let it in at the same step"
    assert came == first[1] and came.members == (0, 1, 2) and came.new == {2}
    assert back.history == ["formation 2: ranks 0, 1, 2; let in: 2"]
    # The process that was lost wakes up and finds its place taken.
    assert together(lambda: two.form_anew([])) == ["another process has taken the place of rank 2."]


def test_who_means_another_run_ends_the_start_of_all() -> None:
    _, (zero, one) = crews(2)
    text = "ranks do not agree on every: rank 0 has 4 and rank 1 has 5."
    zero._compare({"every": 4})
    assert together(lambda: zero.enter({"every": 4}), lambda: one.enter({"every": 5})) == [text, text]


def test_a_start_without_all_ranks_and_a_crew_that_has_ended_say_so() -> None:
    _, (zero, _) = crews(2, wait_s=0.2)
    assert together(lambda: zero.enter({})) == ["the crew cannot start: rank 1 has not come within 0.2 s."]
    store, (alone_,) = crews(1)
    alone_.enter({})
    alone_.leave()
    late = Crew(store, 0, 1, wait_s=60.0)
    with pytest.raises(CrewFinishedError, match="the crew finished without this rank"):
        late.enter({})
    with pytest.raises(SynchronizationError, match="rank 3 is not in a crew of 3"):
        Crew(store, 3, 3)


def test_a_guest_does_not_thin_the_average_and_keeps_what_it_has_done() -> None:
    model = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(model.weight)
    (fragment,) = cut(["weight"], [model.weight], 1)
    member = SharedFragment(fragment, 1, momentum=False, streamed=True)
    guest = SharedFragment(fragment, 1, momentum=False, streamed=True)
    member.guests = guest.guests = frozenset({2})
    nn.init.constant_(model.weight, 3.0)
    member.pack_among((0, 1, 2), 0)
    guest.pack_among((0, 1, 2), 2)
    assert guest.moved.tolist() == [0.0, 0.0]
    average = (2 * member.moved + guest.moved) / 3  # two members that moved alike, and the guest
    for shared in (member, guest):
        shared.moved.copy_(average)
        shared.outer_step(1.0, 0.0)
        assert torch.allclose(shared.agreed, torch.full((2,), 3.0)), "the average of those who count"


def test_nobody_is_let_in_at_a_step_that_another_member_is_past(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a loss one rank stood at step 8 and one at 10: the first door that both ask at is that of step 12."""
    _, (crew,) = crews(1)
    model = nn.Linear(2, 2)
    optimizer = DiLoCo(torch.optim.SGD(model.parameters(), lr=0.1), model, 4, crew=crew)
    asked: list[int] = []

    def waiting(step: int) -> list[Ticket]:
        asked.append(step)
        return []

    monkeypatch.setattr(crew, "waiting", waiting)
    optimizer._first_door = 10
    for optimizer.num_steps in (8, 9, 10, 11, 12, 13, 16):
        optimizer._look_around()
    assert asked == [12, 16]
    optimizer.close()
