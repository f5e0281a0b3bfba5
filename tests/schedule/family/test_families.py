from __future__ import annotations

from fractions import Fraction
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schedule.family.laws import law_of

from syncline.errors import ScheduleError
from syncline.schedule import Kind, hierarchical, ring, verify
from syncline.schedule.collective import OWNED, PAIRED, ROOTED
from syncline.schedule.counts import counted_cost, sent_bytes, traffic
from syncline.schedule.family.families import FAMILIES, Options, build
from syncline.schedule.family.kernels import LEVELS, offers

CASES = [(name, kind) for name, family in FAMILIES.items() for kind in family.kinds]


def options(kind: Kind, n: int, **more: object) -> Options:
    root = n // 2 if kind in ROOTED else 0
    peer = (root + 1) % n if kind is Kind.SEND_RECV else -1
    sizes = tuple(range(1, n * n + 1)) if kind is Kind.ALL_TO_ALLV else ()
    return Options(n, kind, root=root, peer=peer, sizes=sizes, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 8, 12, 13, 16])
def test_proved_and_costs_what_its_law_says(name: str, kind: Kind, n: int) -> None:
    if kind is Kind.SEND_RECV and n == 1:
        pytest.skip("send_recv needs two ranks")
    asked = options(kind, n)
    schedule = FAMILIES[name].make(asked)
    verify(schedule, method="flat")
    verify(schedule, method="factored")
    law = law_of(name, asked, kind)
    if law is not None and kind is not Kind.ALL_TO_ALLV:
        assert law.allows(counted_cost(schedule)), (law, counted_cost(schedule))


@given(
    case=st.sampled_from(CASES),
    n=st.integers(2, 11),
    channels=st.integers(1, 3),
    chunks=st.integers(1, 6),
    size=st.integers(0, 5000),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_any_rank_count_and_chunking(
    case: tuple[str, Kind], n: int, channels: int, chunks: int, size: int, seed: int
) -> None:
    name, kind = case
    schedule = FAMILIES[name].make(options(kind, n, channels=channels, chunks=chunks))
    verify(schedule, seed=seed)
    parts = [schedule.chunk_bytes(k, size) for k in range(len(schedule.strands))]
    assert sum(int(part.sum()) for part in parts) == schedule.collective.total_bytes(size)
    assert min(int(part.min()) for part in parts) >= 0
    assert int(sent_bytes(schedule, size).sum()) == int(traffic(schedule, size).nbytes.sum())


@given(n=st.integers(1, 9), size=st.integers(0, 999), channels=st.integers(1, 4), kind=st.sampled_from(list(Kind)[:5]))
@settings(max_examples=60, deadline=None)
def test_chunks_tile_the_buffer(n: int, size: int, channels: int, kind: Kind) -> None:
    schedule = ring(n, kind, channels=channels, chunks=3)
    pieces = []
    for k in range(len(schedule.strands)):
        offset, nbytes = schedule.chunk_layout(k, size)
        pieces += list(zip(offset.tolist(), nbytes.tolist(), strict=True))
    end = 0
    for offset, nbytes in sorted(p for p in pieces if p[1]):
        assert offset == end
        end += nbytes
    assert end == size


@given(
    name=st.sampled_from(["ring", "pairwise", "bruck", "halving-doubling"]),
    n=st.integers(2, 9),
    size=st.integers(1, 9999),
)
@settings(max_examples=40, deadline=None)
def test_counted_bytes_equal_the_moves_one_by_one(name: str, n: int, size: int) -> None:
    schedule = FAMILIES[name].make(Options(n, FAMILIES[name].kinds[0], channels=2, chunks=3))
    want = np.zeros(n, dtype=np.int64)
    for number, strand in enumerate(schedule.strands):
        nbytes = schedule.chunk_bytes(number, size)
        for moves in strand.steps():
            np.add.at(want, moves.src, nbytes[moves.chunk])
    assert sent_bytes(schedule, size).tolist() == want.tolist()


@pytest.mark.parametrize("outer", sorted(name for name in LEVELS if offers(name, Kind.ALL_REDUCE)))
@pytest.mark.parametrize("inner", sorted(LEVELS))
@pytest.mark.parametrize("shape", [(3, 4), (4, 2), (2, 3, 2)])
def test_any_family_inside_each_level(outer: str, inner: str, shape: tuple[int, ...]) -> None:
    families = (outer, *(inner,) * (len(shape) - 1))
    schedule = hierarchical(shape, families=families)
    verify(schedule, method="flat")
    verify(schedule, method="factored")
    asked = Options(prod(shape), shape=shape, levels=families)
    law = law_of("hierarchical", asked, asked.kind or Kind.ALL_REDUCE)
    assert law is not None
    assert law.allows(counted_cost(schedule)), (law, counted_cost(schedule))


@pytest.mark.parametrize("kind", [Kind.REDUCE_SCATTER, Kind.ALL_GATHER, Kind.BROADCAST, Kind.REDUCE])
@pytest.mark.parametrize("shape", [(2, 3), (3, 2, 2), (1, 5), (5, 1)])
def test_levels_for_other_collectives(kind: Kind, shape: tuple[int, ...]) -> None:
    schedule = hierarchical(shape, kind, root=prod(shape) - 1 if kind in ROOTED else 0)
    verify(schedule, method="flat")
    verify(schedule, method="factored")


@pytest.mark.parametrize("families", [(), ("pairwise", "direct"), ("bruck", "direct")])
@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (2, 3, 2), (1, 4), (4, 1)])
def test_levels_exchange_all_pairs_in_few_messages(shape: tuple[int, ...], families: tuple[str, ...]) -> None:
    names = (families[0], *families[1:] * (len(shape) - 1)) if families else ()
    schedule = hierarchical(shape, Kind.ALL_TO_ALL, families=names)
    verify(schedule, method="flat")
    verify(schedule, method="factored")
    asked = Options(prod(shape), kind=Kind.ALL_TO_ALL, shape=shape, levels=names)
    law = law_of("hierarchical", asked, asked.kind or Kind.ALL_REDUCE)
    assert law is not None and law.allows(counted_cost(schedule))
    if not families:
        peers = {
            (int(a), int(b))
            for _, _, moves in schedule.rank_moves(0)
            for a, b in zip(moves.src, moves.dst, strict=True)
        }
        assert len([pair for pair in peers if pair[0] == 0]) == sum(size - 1 for size in shape)


def test_a_level_that_cannot_all_reduce_says_so() -> None:
    with pytest.raises(ScheduleError, match="scatter-allgather does not do all_reduce"):
        hierarchical((3, 4), families=("scatter-allgather", "ring"))
    with pytest.raises(ScheduleError, match="over 5,000 ranks has more pairs than fit"):
        build("scatter-allgather", 5000)


def test_ring_sends_the_least() -> None:
    for n in (2, 3, 8, 100, 4096):
        assert counted_cost(ring(n)).sent_max == Fraction(2 * (n - 1), n)


def test_hierarchical_sends_eight_times_less_across_hosts() -> None:
    size = 1 << 30
    hosts, per_host = 64, 8
    levels = verify(hierarchical((hosts, per_host))).schedule
    interleaved = [local * hosts + host for local in range(per_host) for host in range(hosts)]
    order = [rank // hosts + rank % hosts * per_host for rank in interleaved]  # every hop leaves the host
    flat = verify(ring(hosts * per_host, order=order)).schedule

    def across(schedule: object) -> int:
        moved = traffic(schedule, size)  # type: ignore[arg-type]
        return int(moved.nbytes[moved.src // per_host != moved.dst // per_host].sum())

    ratio = across(flat) / across(levels)
    assert ratio == pytest.approx(8 * (511 / 512) / (63 / 64), rel=1e-6)
    assert ratio > 8


def test_parameter_server_moves_twice_every_workers_gradient() -> None:
    for n in (1, 4, 33):
        for servers in (1, 4):
            schedule = verify(build("parameter-server", n, servers=servers)).schedule
            assert int(traffic(schedule, 1000).nbytes.sum()) == 2 * n * 1000


def test_torus_uses_every_link_in_both_directions() -> None:
    shape = (4, 4, 4)
    schedule = verify(build("torus", 64, shape=shape)).schedule
    moved = traffic(schedule, 1 << 20)
    grid = np.indices(shape).reshape(3, -1).T
    links = set()
    for rank, at in enumerate(grid):
        for axis in range(3):
            for way in (1, -1):
                to = at.copy()
                to[axis] = (to[axis] + way) % 4
                links.add((rank, int(np.ravel_multi_index(tuple(to), shape))))
    assert set(zip(moved.src.tolist(), moved.dst.tolist(), strict=True)) == links
    assert moved.nbytes.max() - moved.nbytes.min() <= moved.nbytes.max() // 20


def test_dragonfly_uses_every_pair_of_groups_equally() -> None:
    schedule = verify(build("dragonfly", 36, shape=(9, 4))).schedule
    moved = traffic(schedule, 36 << 10)
    between = np.zeros((9, 9), dtype=np.int64)
    np.add.at(between, (moved.src // 4, moved.dst // 4), moved.nbytes)
    off = between[~np.eye(9, dtype=bool)]
    assert off.min() == off.max() > 0


@pytest.mark.parametrize("name", sorted(FAMILIES))
@pytest.mark.parametrize("n", [0, -3])
def test_no_ranks_is_an_error(name: str, n: int) -> None:
    with pytest.raises(ScheduleError):
        FAMILIES[name].make(Options(n))


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_billion_ranks_is_one_clear_error_at_once(name: str) -> None:
    with pytest.raises(ScheduleError, match="1,000,000,000 ranks are more than"):
        FAMILIES[name].make(Options(10**9))


def test_errors_name_what_there_is() -> None:
    with pytest.raises(ScheduleError, match="One of: ring, tree"):
        build("star", 4)
    with pytest.raises(ScheduleError, match="ring does not do all_to_all"):
        build("ring", 4, kind=Kind.ALL_TO_ALL)
    with pytest.raises(ScheduleError, match="shape 2x3 has 6 ranks, not 8"):
        build("torus", 8, shape=(2, 3))
    with pytest.raises(ScheduleError, match='no family that works on one level is called "star"'):
        hierarchical((2, 2), families=("star", "ring"))
    with pytest.raises(ScheduleError, match="two levels or more"):
        hierarchical((4,))
    assert frozenset() == OWNED & PAIRED
