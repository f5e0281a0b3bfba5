"""The native flow engine against closed forms and against its plain-Python twin."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sim.flow import reference_flow
from tests.sim.flow.reference_flow import FlowTask

from syncline.errors import SimulationError
from syncline.sim.flow.engine import LinkChanges, Paths, Reroutes, Tasks, run


def simulate(
    capacity: list[float],
    tasks: list[FlowTask],
    changes: Any = (),
    reroutes: Any = (),
    guarantee: Any = (),
    burst: Any = (),
) -> np.ndarray:
    """The same case, given to the native engine."""
    rows = [list(t.path) for t in tasks] + [list(path) for _, _, path in reroutes]
    links = Paths.of([[link for link, _ in row] for row in rows])
    paths = Paths(links.start, links.link, np.array([share for row in rows for _, share in row], dtype=np.float64))
    columns = Tasks.of(
        paths,
        size_bytes=np.array([t.size_bytes for t in tasks]),
        first_path=np.arange(len(tasks)),
        num_paths=np.array([1 if t.path else 0 for t in tasks]),
        delay_s=np.array([t.delay_s for t in tasks]),
        start_s=np.array([t.start_s for t in tasks]),
        weight=np.array([t.weight for t in tasks]),
        cap_Bps=np.array([t.cap_Bps for t in tasks]),
        priority=np.array([t.priority for t in tasks]),
        wait_for=[list(t.wait_for) for t in tasks],
        tenant=np.array([t.tenant for t in tasks]) if len(guarantee) else None,
    )
    moved = sorted((time, task, len(tasks) + i) for i, (time, task, _) in enumerate(reroutes))
    order = sorted(changes)
    course = run(
        capacity,
        columns,
        changes=LinkChanges(
            np.array([c[0] for c in order], float),
            np.array([c[1] for c in order], np.int32),
            np.array([c[2] for c in order], float),
        ),
        reroutes=Reroutes(
            np.array([m[0] for m in moved], float),
            np.array([m[1] for m in moved], np.int32),
            np.array([m[2] for m in moved], np.int32),
        ),
        guarantee=guarantee,
        burst_bytes=burst,
        record=True,
    )
    if len(burst):
        return course.end_s
    total = np.zeros(len(capacity))
    np.add.at(total, course.sample_link, (course.sample_end_s - course.sample_begin_s) * course.sample_Bps)
    np.testing.assert_allclose(total, course.link_bytes, rtol=1e-9, atol=1e-6)
    return course.end_s


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[float], list[FlowTask], list[Any], list[Any]]:
    num_links = draw(st.integers(1, 6))
    capacity = draw(
        st.lists(st.sampled_from([1.0, 2.0, 5.0, 10.0]) | st.floats(0.5, 20), min_size=num_links, max_size=num_links)
    )
    share = st.sampled_from([1.0, 1.0, 1.0, 0.5, 2.0])
    path = st.lists(st.integers(0, num_links - 1), min_size=1, max_size=4, unique=True).flatmap(
        lambda links: st.tuples(*(st.tuples(st.just(link), share) for link in links))
    )
    tasks: list[FlowTask] = []
    classes = draw(st.integers(1, 2))
    for i in range(draw(st.integers(1, 14))):
        span = draw(st.booleans()) and draw(st.booleans())
        tasks.append(
            FlowTask(
                size_bytes=0.0 if span else draw(st.sampled_from([0.0, 3.0, 10.0]) | st.floats(0.1, 50)),
                path=() if span else draw(path),
                delay_s=draw(st.sampled_from([0.0, 0.0, 1.0]) | st.floats(0, 3)),
                start_s=draw(st.sampled_from([0.0, 0.0, 2.0]) | st.floats(0, 10)),
                weight=draw(st.sampled_from([1.0, 1.0, 2.0]) | st.floats(0.1, 10)),
                cap_Bps=draw(st.sampled_from([math.inf, math.inf, 1.0]) | st.floats(0.1, 10)),
                priority=draw(st.integers(0, classes - 1)),
                wait_for=tuple(draw(st.lists(st.integers(0, i - 1), max_size=3, unique=True))) if i else (),
            )
        )
    change = st.tuples(st.floats(0, 10), st.integers(0, num_links - 1), st.floats(0.5, 20))
    reroute = st.tuples(st.floats(0, 10), st.integers(0, len(tasks) - 1), path)
    movable = [i for i, task in enumerate(tasks) if task.path]
    reroutes = [r for r in draw(st.lists(reroute, max_size=2, unique_by=lambda r: r[1])) if r[1] in movable]
    return capacity, tasks, draw(st.lists(change, max_size=3, unique_by=lambda c: c[0])), reroutes


@given(cases())
def test_native_agrees_with_the_plain_python_twin(
    case: tuple[list[float], list[FlowTask], list[Any], list[Any]],
) -> None:
    capacity, tasks, changes, reroutes = case
    expected = reference_flow.run(capacity, tasks, sorted(changes), sorted(reroutes, key=lambda r: r[0]))
    np.testing.assert_allclose(simulate(capacity, tasks, changes, reroutes), expected, rtol=1e-9)


@given(cases(), st.lists(st.floats(0.05, 0.5), min_size=1, max_size=2), st.data())
def test_guarantees_agree_with_the_twin_and_are_kept(case: Any, guarantee: list[float], data: st.DataObject) -> None:
    capacity, plain, changes, reroutes = case
    tasks = [replace(task, tenant=data.draw(st.integers(-1, len(guarantee) - 1))) for task in plain]
    expected = reference_flow.run(capacity, tasks, sorted(changes), sorted(reroutes, key=lambda r: r[0]), guarantee)
    np.testing.assert_allclose(simulate(capacity, tasks, changes, reroutes, guarantee), expected, rtol=1e-9)


@given(cases(), st.lists(st.sampled_from([0.0, 1.0, 4.0]) | st.floats(0, 30), min_size=6, max_size=6))
def test_buckets_agree_with_the_twin(case: Any, burst: list[float]) -> None:
    capacity, plain, changes, _ = case
    # Starts apart: of flows that start together the engine's order by end of waits is not the twin's order by number.
    tasks = [replace(task, start_s=task.start_s + 0.01 * i, wait_for=()) for i, task in enumerate(plain)]
    burst = burst[: len(capacity)]
    expected = reference_flow.run(capacity, tasks, sorted(changes), (), (), burst)
    np.testing.assert_allclose(simulate(capacity, tasks, changes, (), (), burst), expected, rtol=1e-9, atol=1e-9)


@given(cases(), st.floats(0.05, 1.0))
def test_a_guaranteed_tenant_is_never_slower_than_with_its_part_alone(case: Any, part: float) -> None:
    capacity, tasks, _, _ = case
    # One link each: across several, a flow that ends sooner can let another grow that then slows a third.
    tasks = [replace(t, path=t.path[:1], wait_for=(), tenant=0 if i % 2 else -1) for i, t in enumerate(tasks)]
    together = simulate(capacity, tasks, guarantee=[part])
    alone = simulate([part * rate for rate in capacity], [task for task in tasks if task.tenant == 0])
    assert (together[1::2] <= alone * (1 + 1e-9)).all()


def test_what_a_guarantee_does_not_use_goes_to_the_others() -> None:
    tasks = [FlowTask(10.0, ((0, 1.0),), tenant=0, cap_Bps=1.0), FlowTask(90.0, ((0, 1.0),))]
    assert simulate([10.0], tasks, guarantee=[0.5]).tolist() == pytest.approx([10.0, 10.0])


@pytest.mark.parametrize(
    ("tenant", "guarantee", "message"),
    [
        ([0], [1.5], "guarantee of row 0 is 1.5"),
        ([0], [0.6, 0.6], "the guarantees of all tenants add up to 1.2"),
        ([1], [0.5], "task 0 belongs to tenant 1; there are 1"),
    ],
)
def test_impossible_guarantees_are_refused(tenant: list[int], guarantee: list[float], message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        run([1.0], Tasks.of(Paths.of([[0]]), size_bytes=[1.0], tenant=tenant), guarantee=guarantee)


@pytest.mark.parametrize("seed", range(6))
def test_native_agrees_with_the_twin_on_a_crowded_fabric(seed: int) -> None:
    rng = np.random.default_rng(seed)
    capacity = rng.choice([1.0, 2.0, 4.0], 24).tolist()
    tasks = [
        FlowTask(
            float(rng.uniform(0.1, 5)),
            tuple((int(link), 1.0) for link in rng.choice(24, rng.integers(1, 5), replace=False)),
            start_s=float(rng.uniform(0, 12)),
            delay_s=0.01,
        )
        for _ in range(90)
    ]
    np.testing.assert_allclose(simulate(capacity, tasks), reference_flow.run(capacity, tasks), rtol=1e-9)


def test_many_equal_flows_end_in_one_moment_with_one_solve_each_way() -> None:
    n = 1000
    course = run(np.full(n, 3.0), Tasks.of(Paths.of([[i] for i in range(n)]), size_bytes=np.full(n, 0.3)))
    assert course.num_solves == 2  # all start, all end
    np.testing.assert_allclose(course.end_s, 0.1)


def test_compute_spans_are_tasks_without_links() -> None:
    tasks = Tasks.of(
        Paths.of([[0]]), size_bytes=[0, 10], first_path=[0, 0], num_paths=[0, 1], delay_s=[2, 0], wait_for=[[], [0]]
    )
    assert run([5.0], tasks).end_s.tolist() == [2.0, 4.0]


def test_no_flow_is_ever_faster_than_its_slowest_link() -> None:
    rng = np.random.default_rng(1)
    capacity = rng.uniform(1, 10, 30)
    rows = [rng.choice(30, 4, replace=False) for _ in range(400)]
    size = rng.uniform(1, 20, 400)
    course = run(capacity, Tasks.of(Paths.of(rows), size_bytes=size, start_s=rng.uniform(0, 100, 400)))
    slowest = np.array([capacity[row].min() for row in rows])
    assert (size / (course.end_s - course.begin_s) <= slowest * (1 + 1e-9)).all()
    assert (course.link_bytes <= capacity * course.makespan_s * (1 + 1e-9)).all()
    want = np.zeros(30)
    np.add.at(want, np.concatenate(rows), np.repeat(size, 4))
    np.testing.assert_allclose(course.link_bytes, want, rtol=1e-9)


def test_a_flow_that_can_never_end_is_named() -> None:
    with pytest.raises(SimulationError) as caught:
        run([0.0], Tasks.of(Paths.of([[0]]), size_bytes=[1.0]))
    assert str(caught.value) == "the simulation cannot end: task 0 never ends: link 0 has no rate left for it."


def test_columns_that_do_not_fit_are_named() -> None:
    with pytest.raises(SimulationError, match="path_link of row 0 is 3; there are 1"):
        run([1.0], Tasks.of(Paths.of([[3]]), size_bytes=[1.0]))
