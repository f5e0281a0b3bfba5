"""One rank of the demo's training, `python -m syncline.watch.demonstration.rank JOB`: gradients averaged in rings.

NumPy and sockets only, so that it runs where PyTorch is not installed and is there at once. JOB is JSON: the addresses
of all ranks by rail, the seconds an accelerator would compute, and the folder where a file `slow-RANK` makes it slow.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from syncline.runtime.span_writer import SpanWriter, phase

NUM_PARAMETERS = 3 << 17
PORT = 29500
PATIENCE_S = 60.0
SLOW = 2.0
"""How many times longer a slow rank computes, where the file that makes it slow does not say."""
Floats = npt.NDArray[np.float32]


class DemoJob(TypedDict):
    """What the lab tells each rank."""

    addresses: list[list[str]]
    compute_s: float
    folder: str


class DemoRing:
    """The neighbours of a rank on one rail."""

    def __init__(self, rank: int, num_ranks: int, to_next: socket.socket, from_before: socket.socket) -> None:
        self._rank, self._num, self._next, self._before = rank, num_ranks, to_next, from_before
        self._sender = ThreadPoolExecutor(1)

    @classmethod
    def join(cls, addresses: Sequence[str], rank: int) -> DemoRing:
        """Return the ring of ranks at these addresses, once both neighbours are there."""
        with socket.create_server((addresses[rank], PORT)) as server:
            server.settimeout(PATIENCE_S)
            to_next = _dial(addresses[(rank + 1) % len(addresses)])
            from_before, _ = server.accept()
        from_before.settimeout(PATIENCE_S)
        return cls(rank, len(addresses), to_next, from_before)

    def average(self, values: Floats) -> None:
        """Replace values by their mean over the ranks: a ring's reduce-scatter, then its all-gather."""
        chunks = np.array_split(values, self._num)
        for turn in range(2 * (self._num - 1)):
            out, into = (chunks[(self._rank - turn - late) % self._num] for late in (0, 1))
            sent = self._sender.submit(self._next.sendall, out.tobytes())
            received = np.frombuffer(self._receive(into.nbytes), np.float32)
            sent.result()
            into[:] = into + received if turn < self._num - 1 else received
        values /= self._num

    def _receive(self, size: int) -> bytearray:
        data = bytearray(size)
        left = memoryview(data)
        while left:
            count = self._before.recv_into(left)
            if not count:
                raise ConnectionError("the rank before this one has gone")
            left = left[count:]
        return data


def _dial(address: str) -> socket.socket:
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=PATIENCE_S)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def pause(folder: str, rank: int, step: int) -> None:
    """Save after 40 steps and evaluate after 100, where a file `phases` asks for it, and say so; a moment each."""
    what, seconds = ("evaluation", 8.0) if step % 100 == 0 else ("checkpoint", 3.0 if step % 40 == 0 else 0.0)
    if step and seconds and Path(folder, "phases").exists():
        with phase(what, rank):
            time.sleep(seconds)


def _slowed(mark: Path) -> float:
    """Return how many times longer this rank computes now."""
    try:
        return float(mark.read_text() or SLOW)
    except FileNotFoundError:
        return 1.0


def main(job: DemoJob) -> None:
    """Train until ended."""
    rank, addresses = int(os.environ["RANK"]), job["addresses"]
    rings = [DemoRing.join([each[rail] for each in addresses], rank) for rail in range(len(addresses[0]))]
    writer, gradient = SpanWriter(), np.random.default_rng(rank).standard_normal(NUM_PARAMETERS, np.float32)
    mark, step = Path(job["folder"], f"slow-{rank}"), 0
    sent_bytes = 2 * (len(addresses) - 1) * gradient.nbytes // len(addresses)
    with ThreadPoolExecutor(len(rings)) as pool:
        while True:
            pause(job["folder"], rank, step)
            begun = time.monotonic()
            time.sleep(job["compute_s"] * _slowed(mark))
            ready = time.monotonic()
            list(pool.map(DemoRing.average, rings, np.array_split(gradient, len(rings))))
            own = {"rank": rank, "step": step}
            exchange = {**own, "start_s": ready, "end_s": time.monotonic()}
            compute = {**own, "kind": "compute", "name": "forward and backward", "start_s": begun, "end_s": ready}
            group = {"kind": "collective", "name": "all-reduce", "group": "data", "size_bytes": gradient.nbytes}
            sends = {"kind": "send", "name": "exchange", "size_bytes": sent_bytes, "peer": (rank + 1) % len(addresses)}
            writer.send([compute, {**exchange, **group}, {**exchange, **sends}])
            step += 1


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
