"""The engine and its plain-Python twin give the same picosecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sim.packet.packet_fabrics import leaf_spine, star
from tests.sim.packet.reference import MessageStream, PortHop, reference_ends

from syncline.sim.packet import PacketNetwork, PacketOptions, messages, senders, simulate


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), leaves=st.booleans(), count=st.integers(1, 8))
def test_twin_agrees(seed: int, leaves: bool, count: int) -> None:
    network = leaf_spine() if leaves else star()
    random = np.random.default_rng(seed)
    ends = senders(network.fabric)
    src = random.integers(0, len(ends), count)
    dst = (src + random.integers(1, len(ends), count)) % len(ends)
    pairs = sorted({(int(a), int(b)) for a, b in zip(src, dst, strict=True)})
    size = random.integers(1, 100_000, len(pairs))
    start_ps = random.integers(0, 20_000_000, len(pairs))
    load = messages([ends[a] for a, _ in pairs], [ends[b] for _, b in pairs], size, start_ps / 1e12)
    options = PacketOptions(transport="line-rate", routing="first", changes={"ack_every": 4})
    outcome = simulate(network, [load], options)
    streams = [
        MessageStream(int(at), int(bytes_), _hops(network, ends[a], ends[b]), _hops(network, ends[b], ends[a]))
        for (a, b), bytes_, at in zip(pairs, size, start_ps, strict=True)
    ]
    expected = reference_ends(streams, payload_bytes=4096, header_bytes=66, ack_bytes=64, ack_every=4)
    assert np.round(outcome.end_s * 1e12).astype(int).tolist() == expected


def _hops(network: PacketNetwork, src: int, dst: int) -> tuple[PortHop, ...]:
    path = network.routes.path(int(src), int(dst), policy="first")
    ports = network.port_of_link[path]
    return tuple(PortHop(int(p), round(1e12 / network.rate_Bps[p]), int(network.latency_ps[p])) for p in ports)
