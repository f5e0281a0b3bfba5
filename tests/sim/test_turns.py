"""Channels that take turns over a long line: as fast as the line, never slower on a better one, the same by name."""

from __future__ import annotations

from itertools import pairwise

import pytest

from syncline.errors import ScheduleError, SimulationError
from syncline.fabric import Fabric
from syncline.fabric.build import build as build_fabric
from syncline.fabric.spec import ClusterSpec
from syncline.program import lower, packed
from syncline.program.levels import nest
from syncline.program.program import ProgramStep
from syncline.schedule import Kind, verify
from syncline.schedule.formats.msccl_read import read_msccl
from syncline.schedule.formats.msccl_write import write_msccl
from syncline.schedule.schedule import pipelined
from syncline.sim.candidates import find
from syncline.sim.flow.estimate import estimate
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.sim.sweep import Contest, contest_of


def cluster(**fields: object) -> Fabric:
    return build_fabric(ClusterSpec.model_validate(fields))


SITE = {"hosts": 1, "host": {"model": "dgx-h100", "gpus": 4, "nics": 4}, "network": "rail-optimized HDR"}
FAR = {"sites": [{"name": name, **SITE} for name in "ab"], "wan": {"rate": "400Gbps", "latency": "2ms"}}


def contest_far(algorithm: str, kind: Kind = Kind.ALL_REDUCE, **fields: object) -> Contest:
    fabric = cluster(**FAR | fields)
    network = FlowNetwork(fabric, NetworkOptions(routing="spray"))
    return contest_of(algorithm, kind, packed(fabric), network)


def test_between_sites_channels_take_turns() -> None:
    """256 MiB cross a line of 400 Gb/s once, in 5.37 ms and 2 more to arrive; nothing else may take long."""
    slow_port = [{"link": "a/leaf-03 <-> a-host-00/nic-3", "which": 0, "rate": "50Gbps"}]
    sound, slow = (contest_far("auto", faults=faults).best(1 << 28) for faults in ([], slow_port))
    least_s = (1 << 28) / 50e9 / 0.95 + 2e-3
    assert least_s < sound.time_s < 1.05 * least_s
    assert sound.algorithm == "hierarchical-direct-in-8-turns" and sound.time_s < slow.time_s
    plain = contest_far("hierarchical-direct").best(1 << 28)
    assert plain.time_s > 1.05 * sound.time_s


@pytest.mark.parametrize("kind", [Kind.ALL_REDUCE, Kind.BROADCAST, Kind.REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER])
def test_turns_by_name_are_what_auto_found(kind: Kind) -> None:
    auto = contest_far("auto", kind).best(1 << 28)
    named = contest_far(auto.algorithm, kind)
    assert auto.algorithm.endswith("-turns") and list(named.wired) == [auto.algorithm]
    fixed = Contest(named.network, named.wired, auto.chunks).one(auto.algorithm, 1 << 28)
    assert fixed.time_s == pytest.approx(auto.time_s)
    step = named.wired[auto.algorithm].program.steps[0]
    assert isinstance(step, ProgramStep)
    proof = verify(step.proved.schedule, method="flat")
    assert sum(strand.share for strand in proof.schedule.strands) == 1


def test_what_auto_says_of_a_size_does_not_depend_on_the_sizes_before() -> None:
    one, many = contest_far("auto"), contest_far("auto")
    for size in (1 << 20, 1 << 24, 1 << 28):
        many.best(size)
    after, alone = many.best(1 << 26), one.best(1 << 26)
    assert (after.time_s, after.algorithm, after.chunks) == (alone.time_s, alone.algorithm, alone.chunks)
    assert {e.algorithm for e in many.all(1 << 26)} == {e.algorithm for e in one.all(1 << 26)}


def test_no_turns_where_their_messages_take_longer_to_post_than_to_arrive() -> None:
    fabric = cluster(hosts=2, host="dgx-h100", network="rail-optimized NDR")
    for size in (1 << 16, 1 << 20, 1 << 24):
        found = contest_of("auto", Kind.ALL_REDUCE, packed(fabric), FlowNetwork(fabric)).best(size)
        assert "turns" not in found.algorithm


def test_two_hand_each_other_all_they_have_in_one_round() -> None:
    """Between two sites 1 KiB takes the line's latency once, not there and back."""
    found = contest_far("hierarchical-direct").best(1 << 10)
    assert 2e-3 < found.time_s < 2.05e-3


@pytest.mark.parametrize("kind", [Kind.ALL_REDUCE, Kind.BROADCAST])
def test_a_longer_line_is_never_faster(kind: Kind) -> None:
    took = [contest_far("auto", kind, wan={"rate": "400Gbps", "latency": latency}).best(1 << 26).time_s
            for latency in ("0us", "50us", "100us", "200us", "300us", "500us", "1ms", "6ms")]  # fmt: skip
    assert all(later > 0.99 * sooner for sooner, later in pairwise(took))


def test_sites_of_different_size_also_exchange_in_one_round() -> None:
    """One host fewer was twice as long: there and back instead of there."""
    sites = [{"name": "a", **SITE, "hosts": 2}, {"name": "b", **SITE, "hosts": 1}]
    found = contest_far("hierarchical-uneven", sites=sites).best(1 << 10)
    assert 2e-3 < found.time_s < 2.05e-3
    step = contest_far("hierarchical-uneven", sites=sites).wired["hierarchical-uneven"].program.steps[0]
    assert isinstance(step, ProgramStep)
    verify(step.proved.schedule, method="flat")


@pytest.mark.parametrize("name", ["auto", "parameter-server"])
def test_what_is_not_one_schedule_is_not_done_in_turns(name: str) -> None:
    with pytest.raises(SimulationError, match=f"{name} is not done in turns by name"):
        contest_far(f"{name}-in-8-turns")


def test_more_chunks_than_can_be_simulated_are_refused() -> None:
    plain = contest_far("ring")
    with pytest.raises(SimulationError, match=r"in 1,000,000 chunks has .* flows, more than the 8,000,000"):
        Contest(plain.network, plain.wired, 1_000_000).best(1 << 20)


def test_too_many_turns_are_refused() -> None:
    with pytest.raises(ScheduleError, match=r"999 turns has 1,998 channels, not 1 to 1,024"):
        contest_far("double-tree-in-999-turns")
    with pytest.raises(SimulationError, match='no algorithm is called "none"'):
        contest_far("none-in-4-turns")


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("name", ["tree", "double-tree", "halving-doubling", "direct", "hierarchical-direct", "ring"])
def test_an_msccl_file_takes_as_long_as_what_was_written(name: str, pieces: int) -> None:
    """A ring in pieces is one in which chunks that lie apart go together: there the file may be read as faster."""
    fabric = cluster(**FAR)
    network, placed = FlowNetwork(fabric), packed(fabric)
    known = find(fabric, Kind.ALL_REDUCE, 8, name, chunks=1, nested=nest(placed)).schedule
    written = pipelined(known, pieces)
    read = read_msccl(write_msccl(written))
    times = [estimate(lower(verify(one), placed), network, 1 << 26).time_s for one in (written, read)]
    within = 0.02 if pieces == 1 or name not in ("ring", "halving-doubling") else 0.35
    assert times[1] == pytest.approx(times[0], rel=within)
