"""Programs on shaped links: closed forms, and costs that a fit finds again."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.errors import SimulationError
from syncline.fabric import load
from syncline.program import Placement, Program, lower, place, vendor
from syncline.schedule import Collective, Kind, build, verify
from syncline.sim.emulate.emulation import HostCosts, HostLinks, chronicle, course, predict, script_of
from syncline.sim.emulate.host_fit import TimedOperation, fit
from syncline.timeline import SpanKind

RATE = 25e6
FREE = HostCosts(0.0, 0.0, 0.0, 0.0, 1.0)
STAR = {(a, b): (2 * a, 2 * b + 1) for a in range(8) for b in range(8) if a != b}


@pytest.fixture(scope="module")
def placement(tmp_path_factory: pytest.TempPathFactory) -> Placement:
    path = tmp_path_factory.mktemp("cluster") / "eight.yaml"
    path.write_text("hosts: 8\nhost: 1 x H100\nnetwork: leaf-spine NDR\n")
    return place("packed", load(path), 8)


def program(placement: Placement, name: str, kind: Kind = Kind.ALL_REDUCE) -> Program:
    return lower(verify(build(name, 8, kind=kind)), placement)


def star(burst_bytes: float = 0.0, head_start_bytes: float = 0.0) -> HostLinks:
    return HostLinks.of(np.full(16, RATE), STAR, range(8), burst_bytes=burst_bytes, head_start_bytes=head_start_bytes)


def test_without_host_costs_a_ring_takes_its_bytes(placement: Placement) -> None:
    size = 8 << 20
    assert predict(script_of(program(placement, "ring"), size, star()), FREE) == pytest.approx(
        2 * 7 / 8 * size / RATE, rel=1e-6
    )


def test_each_cost_adds_what_it_says(placement: Placement) -> None:
    script = script_of(program(placement, "ring"), 8 << 20, star())
    base = predict(script, FREE)
    rounds, chunk = 14, (8 << 20) / 8
    assert predict(script, HostCosts(1e-3, 0, 0, 0, 1.0)) - base == pytest.approx(rounds * 1e-3)
    # A rank posts its receive and then its send, and a message moves when both ends have posted it.
    assert predict(script, HostCosts(0, 1e-3, 0, 0, 1.0)) - base == pytest.approx(rounds * 2e-3)
    assert predict(script, HostCosts(0, 0, 1e-9, 0, 1.0)) - base == pytest.approx(7 * chunk * 1e-9)
    assert predict(script, HostCosts(0, 0, 0, 0, 0.5)) == pytest.approx(2 * base)
    assert predict(script, HostCosts(0, 0, 0, 2e-3, 1.0)) - base == pytest.approx(2e-3)


def test_a_bucket_saves_its_bytes_once_when_there_is_no_idle_time(placement: Placement) -> None:
    ring = program(placement, "ring")
    plain, bucket = (predict(script_of(ring, 8 << 20, star(burst_bytes=b)), FREE) for b in (0.0, 20_000.0))
    assert plain - bucket == pytest.approx(20_000 / RATE, rel=1e-6)
    # A pause of 2 ms a round fills a bucket of 20 kB again at 25 MB/s: every round saves it.
    paused = HostCosts(2e-3, 0, 0, 0, 1.0)
    plain, bucket = (predict(script_of(ring, 8 << 20, star(burst_bytes=b)), paused) for b in (0.0, 20_000.0))
    assert plain - bucket == pytest.approx(14 * 20_000 / RATE, rel=1e-6)


def test_many_connections_of_one_host_start_late_only_where_its_link_limits(placement: Placement) -> None:
    everyone = program(placement, "direct", Kind.ALL_TO_ALL)
    size = 4 << 20
    plain, late = (predict(script_of(everyone, size, star(head_start_bytes=b)), FREE) for b in (0.0, 18_000.0))
    assert late - plain == pytest.approx(6 * 18_000 / RATE, rel=1e-6)
    # Through a trunk that is slower than the hosts' links nobody waits for a turn at his own link.
    trunk = {pair: (links[0], 16, links[1]) for pair, links in STAR.items()}
    rates = np.append(np.full(16, RATE), RATE / 4)
    plain, late = (
        predict(script_of(everyone, size, HostLinks.of(rates, trunk, range(8), head_start_bytes=b)), FREE)
        for b in (0.0, 18_000.0)
    )
    assert late == pytest.approx(plain)


def test_ranks_of_one_host_do_not_use_the_wire(placement: Placement) -> None:
    wiring = HostLinks.of(np.full(4, RATE), {(0, 1): (0, 3), (1, 0): (2, 1)}, [0, 0, 0, 0, 1, 1, 1, 1])
    moved = course(script_of(program(placement, "ring"), 8 << 20, wiring), FREE).link_bytes
    # One connection each way crosses between the hosts: 14 rounds of an eighth.
    assert moved.tolist() == pytest.approx([14 * (1 << 20)] * 4)


def test_a_fit_finds_the_costs_again(placement: Placement) -> None:
    wiring = star(burst_bytes=20_000.0, head_start_bytes=18_000.0)
    true = HostCosts(4e-4, 2.5e-4, 1.4e-9, 1e-3, 0.985)
    scripts = [
        script_of(program(placement, name, kind), size, wiring)
        for name, kind in (
            ("ring", Kind.ALL_REDUCE),
            ("halving-doubling", Kind.ALL_REDUCE),
            ("direct", Kind.ALL_TO_ALL),
        )
        for size in (1 << 19, 1 << 21, 1 << 23)
    ]
    fitted = fit([TimedOperation(script, predict(script, true)) for script in scripts])
    assert fitted.worst_error < 1e-6
    assert list(fitted.costs.to_json().values()) == pytest.approx(list(true.to_json().values()), rel=1e-3)
    noisy = np.random.default_rng(3).normal(1, 0.02, len(scripts))
    loose = fit(
        [TimedOperation(script, predict(script, true) * factor) for script, factor in zip(scripts, noisy, strict=True)]
    )
    assert loose.median_error < 0.03
    assert loose.costs.efficiency == pytest.approx(0.985, rel=0.03)


def test_mistakes_are_named(placement: Placement) -> None:
    ring = program(placement, "ring")
    with pytest.raises(SimulationError, match="seats 4 ranks and the program has 8"):
        script_of(ring, 1 << 20, HostLinks.of(np.full(16, RATE), STAR, range(4)))
    with pytest.raises(SimulationError, match="no path from host 0 to host 1"):
        script_of(ring, 1 << 20, HostLinks.of(np.full(16, RATE), {}, range(8)))
    with pytest.raises(SimulationError, match="leaves a step to the library"):
        script_of(vendor(Collective(Kind.ALL_REDUCE, 8), placement, "gloo"), 1 << 20, star())
    with pytest.raises(SimulationError, match="needs a rate above 0"):
        HostLinks.of([0.0], {}, range(8))
    with pytest.raises(SimulationError, match="1 measurements cannot tell 5 costs apart"):
        fit([TimedOperation(script_of(ring, 1 << 20, star()), 1.0)])


def test_a_prediction_as_a_timeline_ends_with_it_and_carries_its_bytes(placement: Placement) -> None:
    script = script_of(program(placement, "ring"), 8 << 20, star())
    costs = HostCosts(1e-3, 1e-4, 1e-9, 2e-3, 0.98)
    timeline = chronicle(script, costs)
    assert timeline.end_s == pytest.approx(predict(script, costs), rel=1e-9)
    assert timeline.link_use().size_bytes == pytest.approx(np.full(16, 2 * 7 / 8 * (8 << 20)), rel=1e-6)
    kinds = timeline.spans.kind
    assert (kinds == SpanKind.SEND).sum() == (kinds == SpanKind.RECV).sum() == 8 * 14
    assert (kinds == SpanKind.REDUCE).sum() == 8 * 7
