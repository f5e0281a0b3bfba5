"""Native max-min rates against closed forms, against the plain-Python twin, and against the definition itself."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sim.flow import reference

from syncline import _native
from syncline.errors import SimulationError
from syncline.sim.flow.engine import Paths
from syncline.sim.flow.maxmin import FairRates, max_min_rates

RTOL = 1e-9


def test_flows_on_one_link_share_it_evenly() -> None:
    got = max_min_rates([12e9], Paths.of([[0]] * 3))
    assert got.rate_Bps.tolist() == [4e9] * 3
    assert got.bottleneck.tolist() == [0, 0, 0]


def test_weights_divide_a_link_in_proportion() -> None:
    got = max_min_rates([12.0], Paths.of([[0], [0], [0]]), weight=[1, 2, 3])
    assert got.rate_Bps.tolist() == [2.0, 4.0, 6.0]


def test_parking_lot_gives_the_long_flow_an_equal_share_of_each_link() -> None:
    # n links of rate 1, one flow over all of them and one over each: everyone gets a half.
    n = 50
    got = max_min_rates(np.ones(n), Paths.of([range(n), *([i] for i in range(n))]))
    np.testing.assert_allclose(got.rate_Bps, 0.5)


def test_what_a_bottlenecked_flow_leaves_goes_to_the_others() -> None:
    got = max_min_rates([10.0, 4.0], Paths.of([[0], [0, 1], [1]]))
    assert got.rate_Bps.tolist() == [8.0, 2.0, 2.0]
    assert got.bottleneck.tolist() == [0, 1, 1]


def test_a_cap_holds_a_flow_back_and_frees_its_share() -> None:
    got = max_min_rates([10.0], Paths.of([[0], [0], [0]]), cap_Bps=[1.0, math.inf, 100.0])
    assert got.rate_Bps.tolist() == [1.0, 4.5, 4.5]
    assert got.bottleneck.tolist() == [-1, 0, 0]


def test_a_flow_that_crosses_no_link_gets_its_cap() -> None:
    got = max_min_rates([10.0], Paths.of([[], [0]]), cap_Bps=[7.0, math.inf])
    assert got.rate_Bps.tolist() == [7.0, 10.0]


def test_a_link_that_is_down_gives_nothing_and_takes_nothing() -> None:
    got = max_min_rates([0.0, 6.0], Paths.of([[0, 1], [1]]))
    assert got.rate_Bps.tolist() == [0.0, 6.0]
    assert got.bottleneck.tolist() == [0, 1]


def test_a_link_crossed_twice_is_paid_for_twice() -> None:
    got = max_min_rates([6.0], Paths.of([[0, 0], [0]]))
    assert got.rate_Bps.tolist() == [2.0, 2.0]


def test_no_flows_is_an_empty_answer() -> None:
    got = max_min_rates([6.0], Paths.of([]))
    assert got.rate_Bps.shape == got.bottleneck.shape == (0,)


def test_all_to_all_through_a_star_is_host_rate_over_peers() -> None:
    # Each of n hosts sends to n-1 others over its own uplink and their downlinks: rate / (n-1), exactly.
    n = 40
    paths = [[src, n + dst] for src in range(n) for dst in range(n) if src != dst]
    got = max_min_rates(np.full(2 * n, 50e9), Paths.of(paths))
    np.testing.assert_allclose(got.rate_Bps, 50e9 / (n - 1), rtol=RTOL)


def test_very_unequal_weights_do_not_lose_the_small_flow() -> None:
    # Once the heavy flow stops elsewhere, the light one owns link 0; naive subtraction would leave it weight 0.
    got = max_min_rates([10.0, 1.0], Paths.of([[0, 1], [0]]), weight=[1e20, 1e-6])
    assert got.rate_Bps.tolist() == [1.0, 9.0]


weights = st.floats(0.01, 100) | st.sampled_from([1.0, 2.0])
rates = st.sampled_from([0.0, 1.0, 2.0, 10.0]) | st.floats(0.001, 1e3)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[float], list[list[int]], list[float], list[float]]:
    capacity = draw(st.lists(rates, min_size=1, max_size=8))
    path = st.lists(st.integers(0, len(capacity) - 1), min_size=1, max_size=5)
    paths = draw(st.lists(path, max_size=12))
    weight = draw(st.lists(weights, min_size=len(paths), max_size=len(paths)))
    cap = draw(st.lists(rates | st.just(math.inf), min_size=len(paths), max_size=len(paths)))
    return capacity, paths, weight, cap


@given(cases())
def test_native_agrees_with_the_plain_python_twin(
    case: tuple[list[float], list[list[int]], list[float], list[float]],
) -> None:
    capacity, paths, weight, cap = case
    got = max_min_rates(capacity, Paths.of(paths), weight=weight, cap_Bps=cap)
    expected = reference.max_min_rates(capacity, paths, weight, cap)
    np.testing.assert_allclose(got.rate_Bps, expected, rtol=1e-9, atol=1e-9)
    assert_max_min(capacity, paths, weight, cap, got)


@pytest.mark.parametrize("seed", range(5))
def test_native_agrees_with_the_twin_on_a_crowded_fabric(seed: int) -> None:
    rng = np.random.default_rng(seed)
    capacity = rng.choice([12.5e9, 25e9, 50e9], 60).tolist()
    paths = [rng.choice(60, rng.integers(1, 7), replace=False).tolist() for _ in range(200)]
    weight = rng.uniform(0.1, 10, 200).tolist()
    cap = np.where(rng.random(200) < 0.3, rng.uniform(0, 5e9, 200), np.inf).tolist()
    got = max_min_rates(capacity, Paths.of(paths), weight=weight, cap_Bps=cap)
    np.testing.assert_allclose(got.rate_Bps, reference.max_min_rates(capacity, paths, weight, cap), rtol=RTOL)
    assert_max_min(capacity, paths, weight, cap, got)


def assert_max_min(
    capacity: list[float], paths: list[list[int]], weight: list[float], cap: list[float], got: FairRates
) -> None:
    """The definition: no link overflows, and each flow is at its cap or has the most of a full link it crosses."""
    scale = 1e-9 * max([1.0, *capacity])
    load = np.zeros(len(capacity))
    for path, rate in zip(paths, got.rate_Bps, strict=True):
        np.add.at(load, path, rate)
    assert (load <= np.array(capacity) + scale).all()
    share = got.rate_Bps / np.array(weight)
    for flow, (path, link) in enumerate(zip(paths, got.bottleneck.tolist(), strict=True)):
        if link < 0:
            assert got.rate_Bps[flow] == cap[flow]
            continue
        assert link in path
        assert load[link] >= capacity[link] - scale
        assert all(share[flow] >= share[other] * (1 - 1e-6) - scale for other, p in enumerate(paths) if link in p)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"capacity_Bps": [-1.0, 1.0]}, "link 0 has capacity -1 B/s; it must lie between 0 and 1e30"),
        ({"capacity_Bps": [1.0, math.nan]}, "link 1 has capacity nan B/s; it must lie between 0 and 1e30"),
        ({"capacity_Bps": [1.0]}, "crossing 1 names link 1; there are 1 links"),
        ({"capacity_Bps": [[1.0], [2.0]]}, "capacity_Bps has 2 dimensions where 1 is needed"),
        ({"weight": [1.0]}, "flow_start has 3 entries; 1 weights need 2"),
        ({"weight": [1.0, 0.0]}, "flow 1 has weight 0; it must lie between 1e-30 and 1e30"),
        ({"cap_Bps": [1.0]}, "cap_Bps has 1 entries for 2 flows"),
        ({"cap_Bps": [1.0, -2.0]}, "flow 1 has cap -2 B/s; it must lie between 0 and 1e30, or be infinite"),
        ({"flows": Paths.of([[0], []])}, "flow 1 crosses no link and has no cap, so nothing bounds its rate"),
        ({"flows": Paths(np.array([1, 1, 1]), np.array([0], np.int32))}, "flow_start must begin with 0"),
        ({"flows": Paths(np.array([0, 2, 1]), np.array([0], np.int32))}, "flow_start falls at flow 1"),
        (
            {"flows": Paths(np.array([0, 1, 3]), np.array([0], np.int32))},
            "flow_start ends at 3 but flow_link has 1 entries",
        ),
        (
            {"flows": Paths(np.array([0, 1, 2]), np.array([0, -1], np.int32))},
            "crossing 1 names link -1; there are 2 links",
        ),
        (
            {"flows": Paths(np.array([0, 1, 2]), np.array([0, 2**32]))},  # type: ignore[arg-type]
            "flows.link holds a number too large for int32",
        ),
        (
            {"flows": Paths(np.array([0, 1, 2]), np.array([0.5, 1.0]))},  # type: ignore[arg-type]
            "flows.link holds float64 where int32 is needed",
        ),
    ],
)
def test_bad_arrays_are_refused_by_name(change: dict[str, object], text: str) -> None:
    good: dict[str, object] = {"capacity_Bps": [1.0, 1.0], "flows": Paths.of([[0], [1]])}
    with pytest.raises(SimulationError) as caught:
        max_min_rates(**(good | change))  # type: ignore[arg-type]
    assert str(caught.value) == f"cannot share links: {text}."


def test_an_empty_cap_array_is_refused_like_any_other_wrong_length() -> None:
    with pytest.raises(SimulationError, match="cap_Bps has 0 entries for 1 flows"):
        max_min_rates([1.0], Paths.of([[0]]), cap_Bps=[])


def test_the_binding_converts_nothing_in_silence() -> None:
    one = np.ones(1)
    with pytest.raises(TypeError):
        _native.max_min_rates(one, np.array([0, 1]), np.array([0.7]), one)  # type: ignore[arg-type]


def test_threads_run_side_by_side() -> None:
    rng = np.random.default_rng(0)
    flows = Paths.of(rng.integers(0, 100, (2000, 4)))
    expected = max_min_rates(np.ones(100), flows).rate_Bps
    results: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = []
    threads = [
        threading.Thread(target=lambda: results.append(max_min_rates(np.ones(100), flows).rate_Bps)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all((rate == expected).all() for rate in results)
