"""Packets of full size are asked for before any collective, and every wait for a rank has an end."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

import pytest

from syncline.bench.ranks import probe
from syncline.errors import BenchError
from syncline.finding import Finding
from syncline.host import packets

dist = pytest.importorskip("torch.distributed", reason="ranks meet in torch's store")

NAMES = ["host-0", "host-1", "host-2", "host-3"]
Said = dict[int, list[Finding] | BenchError | None]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread is a rank on an address of its own, and no collective may be called."""

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a collective before packets are known to arrive")

    for name in ("init_process_group", "all_gather", "barrier", "all_reduce", "send", "recv"):
        monkeypatch.setattr(dist, name, refused)
    rank = threading.local()
    monkeypatch.setattr(probe, "_own_address", lambda: (f"127.0.0.{rank.number + 1}", 1500))
    monkeypatch.setattr(probe, "_rank_of_the_thread", rank, raising=False)


def _play(ranks: list[int], limit_s: float) -> Said:
    store = dist.HashStore()
    said: Said = {}

    def seat(rank: int) -> None:
        probe._rank_of_the_thread.number = rank  # type: ignore[attr-defined]
        try:
            said[rank] = probe.packet_findings(store, rank, NAMES, [0, 0, 0, 0], limit_s=limit_s)
        except BenchError as error:
            said[rank] = error

    threads = [threading.Thread(target=seat, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    return said


def test_nothing_is_found_where_all_packets_arrive() -> None:
    assert _play([0, 1, 2, 3], 30) == {0: [], 1: [], 2: [], 3: []}


def test_a_host_that_loses_packets_of_full_size_is_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    send = packets._send

    def cut(door: AbstractContextManager[object], packet: bytes, at: tuple[str, int]) -> None:
        ends = {at[0], door.getsockname()[0]}  # type: ignore[attr-defined]
        if len(packet) < 1000 or "127.0.0.3" not in ends:
            send(door, packet, at)  # type: ignore[arg-type]

    monkeypatch.setattr(packets, "_send", cut)
    said = _play([0, 1, 2, 3], 30)
    assert [said[rank] for rank in (1, 2, 3)] == [None, None, None]
    found = said[0]
    assert isinstance(found, list)
    assert [(one.rule, one.place) for one in found] == [("bench.mtu", "host-2")]


def test_a_rank_that_does_not_come_is_one_finding() -> None:
    said = _play([0, 1, 3], 1)
    found = said[0]
    assert isinstance(found, list)
    assert [(one.rule, one.place) for one in found] == [("bench.reach", "host-2")]
    assert (said[1], said[3]) == (None, None)


def test_a_rank_that_stops_after_it_came_is_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    over, exchange = threading.Event(), packets.exchange

    def held(door: object, peers: object, mtu_bytes: int) -> object:
        if probe._rank_of_the_thread.number == 2:  # type: ignore[attr-defined]
            over.wait(20)  # the others must not wait for this
        return exchange(door, peers, mtu_bytes)  # type: ignore[arg-type]

    monkeypatch.setattr(packets, "exchange", held)
    monkeypatch.setattr(probe, "PART_S", 0.1)
    part = probe._Talk.part

    def parted(talk: probe._Talk) -> None:
        part(talk)
        over.set()

    monkeypatch.setattr(probe._Talk, "part", parted)
    said = _play([0, 1, 2, 3], 5)
    found = said[0]
    assert isinstance(found, list)
    assert [(one.rule, one.place) for one in found] == [("bench.reach", "host-2")]
    assert (said[1], said[3]) == (None, None)


def test_others_say_that_rank_0_is_missing() -> None:
    said = _play([1, 2], 0.5)
    assert all(isinstance(said[rank], BenchError) for rank in (1, 2))
    assert "no word of rank 0 within 1 s" in str(said[1])


def test_ranks_of_one_host_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_own_address", lambda: ("127.0.0.1", 1500))
    assert _play([0, 1, 2, 3], 30) == {0: [], 1: [], 2: [], 3: []}
