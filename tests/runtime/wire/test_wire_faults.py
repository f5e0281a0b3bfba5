"""Faults on the wire: whatever happens to bytes, averages are right to the bit, and nobody waits for ever."""

from __future__ import annotations

import json
import os
import socket
import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.runtime.sync.faulty_proxy import KINDS, Faults, Proxy
from tests.runtime.wire.test_native_wire import on_ranks, place, step

from syncline.codec.names import scheme
from syncline.runtime.sync.native_exchange import NativeExchange
from syncline.runtime.wire import native_wire
from syncline.runtime.wire.native_wire import NativeWire, is_there
from syncline.runtime.wire.rails import Rail

pytestmark = pytest.mark.skipif(not is_there(), reason="the native wire needs Linux")

NUM_FAULTS = int(os.environ.get("SYNCLINE_NUM_FAULTS", "40"))
"""1,000 in benchmarks/wire.py; few here, where the suite is to be quick."""
NUM_RANKS, NUM_ELEMENTS = 3, 20_000
TIMEOUT_S = 300.0


class ProxiedStore:
    """A store in which others find the relays of a rank in place of its own addresses."""

    def __init__(self, store: Any, faults: list[Faults], proxies: list[Proxy]) -> None:
        self._store, self._faults, self._proxies = store, faults, proxies

    def set(self, key: str, value: str) -> None:
        if key.startswith("ends/"):
            relays = []
            for faults, (address, port) in zip(self._faults, json.loads(value), strict=True):
                self._proxies.append(Proxy((address, port), faults))
                relays.append(["127.0.0.1", self._proxies[-1].port])
            value = json.dumps(relays)
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        return bytes(self._store.get(key))


def knock(port: int) -> None:
    """Connect as somebody who does not know the secret."""
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian-2 and some more\r\n")


def run(
    faults: list[Faults], rounds: int, until: int = 0, *, elements: int = NUM_ELEMENTS, held_from: int = -1
) -> tuple[list[Any], list[NativeWire]]:
    """Average on every rank over relays with faults, one a rail; more rounds until so many have struck.

    From one round on the first rail holds whatever comes.
    """
    stores: Any = dist
    store = stores.HashStore()
    proxies: list[Any] = []
    rails = [Rail("127.0.0.1") for _ in faults]
    made: list[NativeWire] = [None] * NUM_RANKS  # type: ignore[list-item]
    meet = threading.Barrier(NUM_RANKS)

    def act(rank: int) -> int:
        met: Any = SimpleNamespace(rank=rank, size=NUM_RANKS, meeting=ProxiedStore(store, faults, proxies))
        made[rank] = NativeWire(met, rails, timeout_s=TIMEOUT_S)
        values = torch.zeros(elements)
        exchange = NativeExchange(values, None, scheme("fp32"), made[rank], place(rank))
        wrong = number = 0
        while True:
            faults[0].is_held = faults[0].is_held or number == held_from
            values.copy_(torch.arange(elements) % NUM_ELEMENTS + float(rank + number))
            exchange.send(step(number))
            assert exchange.receive() is None
            exchange.collect()
            due = torch.arange(elements) % NUM_ELEMENTS + float(number + 1)
            wrong += int((values != due).sum())
            if rank == 0:
                knock(made[number % NUM_RANKS].core.ports[0])
            number += 1
            meet.wait(TIMEOUT_S)  # what has struck by now is the same for all
            over = number >= rounds and sum(each.num_struck for each in faults) >= until
            meet.wait(TIMEOUT_S)
            if over:
                break
        for each in faults:
            each.is_on = each.is_held = False
        return wrong

    try:
        return on_ranks(act), made
    finally:
        on_ranks(lambda rank: made[rank].close(), NUM_RANKS)
        for proxy in proxies:
            proxy.close()


@pytest.mark.parametrize("kind", KINDS)
def test_each_fault_is_survived(kind: str) -> None:
    faults = Faults(seed=len(kind), most=3, kinds=(kind,))
    results, made = run([faults], 3, until=3)
    assert results == [0] * NUM_RANKS
    assert faults.struck == {kind: 3}
    lines = [line for wire in made for line in wire.lines()]
    if kind in ("reset", "truncate"):
        assert sum(line.num_resets for line in lines) > 0


def test_many_faults_and_strangers_leave_no_wrong_number() -> None:
    faults = [Faults(seed=1, most=NUM_FAULTS), Faults(seed=2, most=NUM_FAULTS)]
    results, made = run(faults, 5, until=NUM_FAULTS)
    assert results == [0] * NUM_RANKS
    assert sum(wire.core.num_strangers for wire in made) >= 1
    assert sum(each.num_struck for each in faults) >= NUM_FAULTS


def test_a_rail_that_is_cut_again_and_again_loses_nothing() -> None:
    """The first rail is reset every few kilobytes; the other is well."""
    faults = [Faults(seed=3, most=20, mean_bytes=5_000.0, kinds=("reset",)), Faults(seed=4, most=0)]
    results, made = run(faults, 5, until=20)
    assert results == [0] * NUM_RANKS
    lines = [line for wire in made for line in wire.lines()]
    assert sum(line.num_resets for line in lines if line.rail == 0) >= 10
    assert all(line.num_resets == 0 for line in lines if line.rail == 1)


def test_a_rail_that_stops_in_the_midst_of_a_frame_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rail takes bytes and brings none, and nobody closes it: what it was given comes over the other."""
    patient = partial(native_wire.native.Wire, give_up_s=1e9, unsent_bytes=4096)  # a frame never fits the kernel
    monkeypatch.setattr(native_wire.native, "Wire", patient)
    results, made = run([Faults(seed=5, most=0), Faults(seed=6, most=0)], 3, elements=3_000_000, held_from=1)
    assert results == [0] * NUM_RANKS
    lines = [line for wire in made for line in wire.lines()]
    assert sum(line.resent_frames for line in lines if line.rail == 0) > 0
    assert all(line.num_resets == 0 for line in lines)


def test_flipped_bytes_are_counted() -> None:
    faults = Faults(seed=9, most=10, kinds=("flip",))
    results, made = run([faults], 3, until=10)
    assert results == [0] * NUM_RANKS
    lines = [line for wire in made for line in wire.lines()]
    noticed = sum(line.wrong_frames + line.num_resets for line in lines) + sum(w.core.num_strangers for w in made)
    assert noticed >= 5  # a byte of a handshake that fails on the dialer's side is its own affair
