"""The native wire: the bits of its twin in Python, messages, trouble, strangers, and what it says of itself."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from syncline.codec.names import dense
from syncline.errors import AgreementError, SynchronizationError
from syncline.runtime.sync.exchange import Exchange, ExchangePlace, Trouble
from syncline.runtime.sync.native_exchange import NativeExchange
from syncline.runtime.sync.step import Step
from syncline.runtime.wire.memory_wire import wires
from syncline.runtime.wire.native_wire import LineReport, NativeWire, is_there, wire_summary
from syncline.runtime.wire.rails import Rail, rails

pytestmark = pytest.mark.skipif(not is_there(), reason="the native wire needs Linux")

NUM_RANKS = 3
TIMEOUT_S = 60.0


def on_ranks(act: Callable[[int], Any], size: int = NUM_RANKS) -> list[Any]:
    """Call on every rank at once and return what each returned or raised."""
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            results[rank] = act(rank)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600.0)
    return results


@contextmanager
def team(size: int = NUM_RANKS, num_rails: int = 1) -> Iterator[list[NativeWire]]:
    stores: Any = dist
    store = stores.HashStore()
    rails = [Rail(f"127.0.0.{k + 1}") for k in range(num_rails)]

    def make(rank: int) -> NativeWire:
        met: Any = SimpleNamespace(rank=rank, size=size, meeting=store)
        return NativeWire(met, rails, timeout_s=TIMEOUT_S)

    made = on_ranks(make, size)
    assert all(isinstance(wire, NativeWire) for wire in made), made
    try:
        yield made
    finally:
        on_ranks(lambda rank: made[rank].close(), size)


def place(rank: int, codec: int = 3) -> ExchangePlace:
    return ExchangePlace(1, 2, codec, rank, lambda shard: 0, (900, 5000), 0)


def step(number: int = 0) -> Step:
    return Step(number, 0, "int8", 0.0)


def average_in_python(codec: str, values: list[torch.Tensor], residuals: list[torch.Tensor | None]) -> None:
    exchanges = [
        Exchange(values[rank], residuals[rank], dense(codec), wire, place(rank))
        for rank, wire in enumerate(wires(NUM_RANKS))
    ]
    for exchange in exchanges:
        exchange.send(step())
    for exchange in exchanges:
        assert exchange.receive() is None
        exchange.sum_up()
        exchange.post()
    for exchange in exchanges:
        exchange.collect()


@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize("codec", ["fp32", "bf16", "fp16", "int8", "int4", "sign"])
def test_lanes_give_the_bits_of_the_exchange_in_python(codec: str, feedback: bool) -> None:
    random = torch.Generator().manual_seed(1)
    values = [torch.randn(5000, generator=random) for _ in range(NUM_RANKS)]
    residuals = [torch.randn(5000, generator=random) * 0.01 if feedback else None for _ in range(NUM_RANKS)]
    ours = [value.clone() for value in values]
    owed = [None if residual is None else residual.clone() for residual in residuals]
    average_in_python(codec, values, residuals)
    with team() as made:

        def act(rank: int) -> int:
            exchange = NativeExchange(ours[rank], owed[rank], dense(codec), made[rank], place(rank))
            own = step()
            exchange.send(own)
            assert exchange.receive() is None
            exchange.collect()
            return len(own.spans)

        assert min(on_ranks(act)) > 3
    for rank in range(NUM_RANKS):
        assert torch.equal(ours[rank], values[rank])
        mine, due = owed[rank], residuals[rank]
        assert mine is None or due is None or torch.equal(mine, due)


def test_lanes_repeat_and_ranks_may_be_a_step_ahead() -> None:
    with team(num_rails=2) as made:

        def act(rank: int) -> list[float]:
            values = torch.zeros(5000)
            exchange = NativeExchange(values, None, dense("fp32"), made[rank], place(rank))
            seen = []
            for number in range(20):
                values.fill_(float(rank + number))
                exchange.send(step(number))
                exchange.receive()
                exchange.collect()
                seen.append(float(values.mean()))
            return seen

        assert on_ranks(act) == [[number + 1.0 for number in range(20)]] * NUM_RANKS


def test_all_ranks_hear_of_a_number_that_is_none() -> None:
    with team() as made:

        def act(rank: int) -> Trouble | None:
            values, residual = torch.ones(5000), torch.full((5000,), 0.25)
            exchange = NativeExchange(values, residual, dense("int8"), made[rank], place(rank))
            if rank == 1:
                values[1000] = float("nan")
            exchange.send(step())
            trouble = exchange.receive()
            exchange.finish()
            exchange.forget()
            assert torch.allclose(residual, torch.full((5000,), 0.25), atol=1e-5)
            values.fill_(2.0)
            exchange.send(step(1))  # the next step is as ever
            assert exchange.receive() is None
            exchange.collect()
            return trouble

        assert on_ranks(act) == [Trouble(1, 1)] * NUM_RANKS


def test_another_codec_is_found_on_every_rank() -> None:
    with team(2) as made:

        def act(rank: int) -> None:
            exchange = NativeExchange(torch.ones(5000), None, dense("fp32"), made[rank], place(rank, codec=rank))
            exchange.send(step())
            exchange.receive()

        errors = on_ranks(act, 2)
        assert all(isinstance(error, AgreementError) for error in errors), errors
        assert "rank 1 sent an unexpected message: codec or version is 0x1 and 0 was due." in str(errors[0])


def test_a_failure_is_told() -> None:
    with team() as made:

        def act(rank: int) -> None:
            exchange = NativeExchange(torch.ones(5000), None, dense("fp32"), made[rank], place(rank))
            if rank == 2:
                exchange.fail(step())
            else:
                exchange.send(step())
                exchange.receive()

        errors = on_ranks(act)
        assert errors[2] is None
        assert all(isinstance(e, SynchronizationError) and "rank 2 reported a failure" in str(e) for e in errors[:2])


def test_a_lane_that_is_replaced_loses_nothing() -> None:
    """One rank is a step ahead with another codec: what it sent is for the lane that follows."""
    with team(2) as made:
        meet = threading.Barrier(2)

        def act(rank: int) -> float:
            values = torch.ones(5000)
            first = NativeExchange(values, None, dense("int8"), made[rank], place(rank))
            first.send(step())
            first.receive()
            first.collect()
            if rank == 1:
                meet.wait(600)  # rank 0 has sent for the next lane by now
            values.fill_(float(rank))
            second = NativeExchange(values, None, dense("fp32"), made[rank], place(rank, codec=9))
            assert first is not second  # the first is still there, as when a bucket is rebuilt
            second.send(step(1))
            if rank == 0:
                made[0].core.finish(2, 0.1)
                meet.wait(600)
            second.receive()
            second.collect()
            return float(values.mean())

        assert on_ranks(act, 2) == [0.5, 0.5]


def test_strangers_are_turned_away_and_counted() -> None:
    with team(2) as made:
        for said in (b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n", b"\0" * 32):
            with socket.create_connection(("127.0.0.1", made[0].core.ports[0])) as stranger:
                stranger.sendall(said)
                with contextlib.suppress(ConnectionResetError):
                    while stranger.recv(100):
                        pass
        assert made[0].core.num_strangers == 2
        assert any("does not know the secret" in text for text in made[0].news())


def test_it_listens_on_its_own_addresses_only() -> None:
    with team(2) as made, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.7", made[0].core.ports[0]))


def test_a_rank_that_leaves_is_named() -> None:
    with team() as made:

        def act(rank: int) -> None:
            exchange = NativeExchange(torch.ones(5000), None, dense("fp32"), made[rank], place(rank))
            if rank == 0:
                made[0].close()
                return
            exchange.send(step())
            exchange.receive()

        errors = on_ranks(act)
        assert all("rank 0 did not answer" in str(error) for error in errors[1:]), errors


def test_waits_can_be_broken_off() -> None:
    with team(2) as made:
        exchange = NativeExchange(torch.ones(5000), None, dense("fp32"), made[0], place(0))
        exchange.send(step())
        made[0].break_off("rank 1 is gone")
        with pytest.raises(SynchronizationError, match="aborted"):
            exchange.receive()


def test_a_summary_names_the_rail() -> None:
    well = LineReport(1, 0, 0, True, False, 10, 10, 0, 0, 0, 1e9)
    ill = LineReport(1, 1, 0, False, False, 10, 10, 1200, 3, 2, 1e9)
    assert wire_summary([well]) == ""
    assert wire_summary([well, ill]) == (
        "rail 1: 1 of 1 connections down, 1,200 pieces sent again, 3 came with changed bytes"
    )


def test_rails_are_those_that_are_named() -> None:
    assert rails({"SYNCLINE_RAILS": "127.0.0.1,127.0.0.9"}) == [Rail("127.0.0.1", "lo"), Rail("127.0.0.9")]
    assert rails({"GLOO_SOCKET_IFNAME": "lo"}) == [Rail("127.0.0.1", "lo")]
    assert rails({"MASTER_ADDR": "127.0.0.1"}) == [Rail("127.0.0.1", "lo")]
    with pytest.raises(SynchronizationError, match='SYNCLINE_RAILS names "eth77", and this host has no such interface'):
        rails({"SYNCLINE_RAILS": "eth77"})
