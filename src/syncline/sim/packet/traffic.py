"""Traffic matrices: messages between devices without a program behind them.

permutation(fabric, 2_000_000, seed=1)      # every sender one receiver, nobody itself
incast(fabric, senders=64, size_bytes=2e6)  # many to one
all_to_all(fabric, 1 << 20)
background(fabric, load=0.3, duration_s=1e-3, sizes=STORAGE)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.errors import SimulationError
from syncline.fabric import Fabric
from syncline.fabric.distance import chips_forward

Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
Connections = Literal["own", "shared"]


@dataclass(frozen=True, eq=False)
class Traffic:
    """Columns of messages: from device to device (GPUs or NICs), so many bytes, posted at a time, in a class.

    A message begins when those before it that it waits for have arrived: `num_waits` of `waits_for`, which lists them
    message by message.
    """

    src: Longs
    dst: Longs
    size_bytes: Longs
    start_s: Floats
    traffic_class: Longs
    num_waits: Longs
    waits_for: Longs
    name: str = "traffic"
    cap_Bps: float = np.inf
    """The most each connection may have."""
    connections: Connections = "own"
    """`own`: a connection a message, as a new flow has. `shared`: those of one pair and class follow each other."""

    def __len__(self) -> int:
        return len(self.src)

    def in_class(self, number: int) -> Traffic:
        """Return the same messages in another traffic class (1: the first of `PacketOptions.classes`)."""
        return replace(self, traffic_class=np.full(len(self), number, np.int64))


@dataclass(frozen=True)
class MessageSizes:
    """A distribution of message sizes: points of its cumulative share, straight lines between."""

    size_bytes: tuple[float, ...]
    share: tuple[float, ...]
    source: str

    def draw(self, count: int, random: np.random.Generator) -> Longs:
        """Return so many sizes."""
        found = np.interp(random.random(count), self.share, self.size_bytes)
        return np.maximum(1, np.round(found)).astype(np.int64)

    @property
    def mean_bytes(self) -> float:
        """The mean of the distribution."""
        size, share = np.array(self.size_bytes), np.array(self.share)
        return float((np.diff(share) * (size[1:] + size[:-1]) / 2).sum() + share[0] * size[0])


WEB_SEARCH = MessageSizes(
    (0, 10e3, 20e3, 30e3, 50e3, 80e3, 200e3, 1e6, 2e6, 5e6, 10e6, 30e6),
    (0.0, 0.15, 0.2, 0.3, 0.4, 0.53, 0.6, 0.7, 0.8, 0.9, 0.97, 1.0),
    "web search of DCTCP, SIGCOMM 2010, as digitised in the HPCC authors' traffic generator",
)
HADOOP = MessageSizes(
    (0, 100, 200, 300, 350, 400, 500, 600, 700, 1e3, 2e3, 7e3, 30e3, 50e3, 80e3, 120e3, 300e3, 1e6, 2e6, 10e6),
    (0.0, 0.01, 0.02, 0.05, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.67, 0.7, 0.72, 0.82, 0.87, 0.9, 0.95, 0.975, 0.99, 1.0),
    "Hadoop of Facebook, Roy et al., SIGCOMM 2015, as digitised in the HPCC authors' traffic generator",
)
STORAGE = MessageSizes(
    (4096, 65536, 1 << 20, 4 << 20), (0.0, 0.5, 0.9, 1.0), "ours: small metadata, reads of 64 KiB to 4 MiB"
)
COLLECTIVES = MessageSizes(
    (8 << 10, 64 << 10, 512 << 10, 1 << 20, 4 << 20, 25 << 20),
    (0.0, 0.15, 0.35, 0.55, 0.85, 1.0),
    "ours: pipeline and expert messages of 8 KiB to 1 MiB, ring chunks of 1 to 4 MiB, buckets of up to 25 MiB (DDP's)",
)
SIZES = {"websearch": WEB_SEARCH, "hadoop": HADOOP, "storage": STORAGE, "collectives": COLLECTIVES}


def messages(
    src: ArrayLike,
    dst: ArrayLike,
    size_bytes: ArrayLike,
    start_s: ArrayLike = 0.0,
    *,
    after: Sequence[Sequence[int]] | None = None,
    name: str = "traffic",
    connections: Connections = "own",
) -> Traffic:
    """Return messages from columns; one value stands for all. `after`: for each, the earlier ones it waits for."""
    a, b, size, start = np.broadcast_arrays(
        np.asarray(src, np.int64), np.asarray(dst, np.int64), np.asarray(size_bytes), np.asarray(start_s, np.float64)
    )
    a, b, size, start = (np.atleast_1d(each) for each in (a, b, size, start))
    count = np.array([len(each) for each in after] if after is not None else [0] * len(a), np.int64)
    waits = np.array([other for each in after or () for other in each], np.int64)
    late = np.zeros(len(a), bool)
    late[np.repeat(np.arange(len(a)), count)[waits >= np.repeat(np.arange(len(a)), count)]] = True
    for what, bad in (
        ("has a negative size", size < 0),
        ("starts before 0", start < 0),
        ("goes to itself", a == b),
        ("waits for a later message", late),
    ):
        if bad.any():
            raise SimulationError(f"message {int(np.argmax(bad))} of {name} {what}.")
    zero = np.zeros(len(a), np.int64)
    return Traffic(
        a.copy(),
        b.copy(),
        np.round(size).astype(np.int64),
        start.astype(np.float64),
        zero,
        count,
        waits,
        name,
        connections=connections,
    )


def senders(fabric: Fabric) -> Longs:
    """Return a device for each way into the network: NICs, or chips where chips forward."""
    if chips_forward(fabric):
        return fabric.gpus.astype(np.int64)
    nics = fabric.nics
    cabled = np.isin(nics, fabric.links.src[fabric.links.tier >= 3])
    return nics[cabled].astype(np.int64)


def permutation(fabric: Fabric, size_bytes: float, *, seed: int = 0) -> Traffic:
    """Return one message from every sender, each to another receiver of another host."""
    ends = senders(fabric)
    random = np.random.default_rng(seed)
    host = fabric.devices.host[ends]
    goal = random.permutation(len(ends))
    for _ in range(200):
        bad = np.flatnonzero((host[goal] == host) & (ends[goal] == ends) | (host[goal] == host))
        if len(bad) == 0 or fabric.num_hosts < 3:
            break
        other = random.integers(0, len(ends), len(bad))
        for i, j in zip(bad, other, strict=True):
            goal[i], goal[j] = goal[j], goal[i]
    keep = ends != ends[goal]
    return messages(ends[keep], ends[goal][keep], size_bytes, name="permutation")


def incast(fabric: Fabric, num_senders: int, size_bytes: float) -> Traffic:
    """Return one message from each of the first senders outside the receiver's host to one receiver."""
    ends = senders(fabric)
    host = fabric.devices.host
    others = ends[(host[ends] != host[ends[0]]) | ((host[ends] < 0) & (ends != ends[0]))]
    if not 1 <= num_senders <= len(others):
        raise SimulationError(
            f"{num_senders} senders; {fabric.name} has 1 to {len(others)} outside the receiver's host."
        )
    return messages(others[:num_senders], ends[0], size_bytes, name="incast")


def all_to_all(fabric: Fabric, size_bytes: float) -> Traffic:
    """Return a message between every two senders, in the order of a shifting pattern."""
    devices = senders(fabric)
    count = len(devices)
    shift = np.repeat(np.arange(1, count), count)
    src = np.tile(np.arange(count), count - 1)
    return messages(devices[src], devices[(src + shift) % count], size_bytes, name="all-to-all")


def background(
    fabric: Fabric,
    load: float,
    duration_s: float,
    *,
    sizes: MessageSizes = WEB_SEARCH,
    seed: int = 0,
) -> Traffic:
    """Return messages between random senders that come at random (Poisson) and fill `load` of the access links."""
    if not 0 < load < 1:
        raise SimulationError(f"the load must be between 0 and 1, got {load:g}.")
    devices = senders(fabric)
    random = np.random.default_rng(seed)
    links = fabric.links
    rate = float(links.rate_Bps[np.isin(links.src, devices) & (links.tier >= 3)].sum())
    count = int(random.poisson(load * rate * duration_s / sizes.mean_bytes))
    src = random.integers(0, len(devices), count)
    dst = (src + random.integers(1, len(devices), count)) % len(devices)
    start = np.sort(random.uniform(0, duration_s, count))
    return messages(devices[src], devices[dst], sizes.draw(count, random), start, name="background")
