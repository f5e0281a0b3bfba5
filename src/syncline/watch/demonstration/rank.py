"""One rank of the demo's training, `python -m syncline.watch.demonstration.rank WISH`: two layers, gradients in rings.

NumPy and sockets only, so that it runs where PyTorch is not installed and is there at once. WISH is JSON: the addresses
of all ranks by rail, the seconds an accelerator would compute, and the folder where a file `slow-RANK` makes it slow.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.runtime.span_writer import SpanWriter, phase

WIDTHS = (256, 1024, 128)
BATCH = 32
PORT = 29500
PATIENCE_S = 60.0
SLOW = 2.0
"""How many times longer a slow rank computes, where the file that makes it slow does not say."""
Floats = npt.NDArray[np.float32]


class ToyModel:
    """Two layers that learn what a fixed network of the same shape does."""

    def __init__(self, rank: int) -> None:
        same, self._rng = np.random.default_rng(0), np.random.default_rng(rank + 1)
        shapes = list(pairwise(WIDTHS))
        self._teacher = [same.standard_normal(shape, np.float32) / shape[0] ** 0.5 for shape in shapes]
        self.weights = [same.standard_normal(shape, np.float32) / shape[0] ** 0.5 for shape in shapes]

    def gradient(self) -> tuple[Floats, float]:
        """Return the gradient of one batch, flat, and its loss."""
        x = self._rng.standard_normal((BATCH, WIDTHS[0]), np.float32)
        wanted = np.maximum(x @ self._teacher[0], 0) @ self._teacher[1]
        hidden = np.maximum(x @ self.weights[0], 0)
        error = hidden @ self.weights[1] - wanted
        back = (error @ self.weights[1].T) * (hidden > 0)
        flat = np.concatenate([(x.T @ back).ravel(), (hidden.T @ error).ravel()]) / BATCH
        return flat.astype(np.float32), float((error**2).mean())

    def learn(self, gradient: Floats, rate: float = 0.002) -> None:
        """Take a step down the averaged gradient."""
        first = self.weights[0].size
        for weights, part in zip(self.weights, (gradient[:first], gradient[first:]), strict=True):
            weights -= rate * part.reshape(weights.shape)


class RailNeighbours:
    """The neighbours of a rank on one rail."""

    def __init__(self, rank: int, num_ranks: int, to_next: socket.socket, from_before: socket.socket) -> None:
        self._rank, self._num, self._next, self._before = rank, num_ranks, to_next, from_before
        for each in (to_next, from_before):
            each.setblocking(False)

    @classmethod
    def join(cls, addresses: Sequence[str], rank: int) -> RailNeighbours:
        """Return the ring of ranks at these addresses, once both neighbours are there."""
        with socket.create_server((addresses[rank], PORT)) as server:
            server.settimeout(PATIENCE_S)
            to_next = _dial(addresses[(rank + 1) % len(addresses)])
            from_before, _ = server.accept()
        return cls(rank, len(addresses), to_next, from_before)

    def average(self, values: Floats) -> None:
        """Replace values by their mean over the ranks: a ring's reduce-scatter, then its all-gather."""
        chunks = np.array_split(values, self._num)
        room = np.empty(max(len(chunk) for chunk in chunks), np.float32)
        for turn in range(2 * (self._num - 1)):
            out = chunks[(self._rank - turn) % self._num]
            into = chunks[(self._rank - turn - 1) % self._num]
            received = room[: len(into)]
            self._swap(out.view(np.uint8).data, received.view(np.uint8).data)
            if turn < self._num - 1:
                into += received
            else:
                into[:] = received
        values /= self._num

    def _swap(self, out: memoryview, into: memoryview) -> None:
        """Send to the next while receiving from the one before."""
        sent = got = 0
        with selectors.DefaultSelector() as both:
            both.register(self._next, selectors.EVENT_WRITE)
            both.register(self._before, selectors.EVENT_READ)
            while sent < len(out) or got < len(into):
                for key, _ in both.select(PATIENCE_S):
                    if key.fileobj is self._next:
                        sent += self._next.send(out[sent:])
                        if sent == len(out):
                            both.unregister(self._next)
                    else:
                        num = self._before.recv_into(into[got:])
                        if num == 0:
                            raise ConnectionError("the rank before this one has gone")
                        got += num
                        if got == len(into):
                            both.unregister(self._before)


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
    if step and not step % 20 and Path(folder, "phases").exists():
        what, seconds = ("evaluation", 8.0) if step % 100 == 0 else ("checkpoint", 3.0 if step % 40 == 0 else 0.0)
        if seconds:
            with phase(what, rank):
                time.sleep(seconds)


def _times(slow: Path) -> float:
    """Return how many times longer this rank computes now."""
    try:
        return float(slow.read_text() or SLOW)
    except FileNotFoundError:
        return 1.0


def main(wish: dict[str, Any]) -> None:
    """Train until ended."""
    rank, addresses = int(os.environ["RANK"]), wish["addresses"]
    writer, network = SpanWriter(), ToyModel(rank)
    rails = [RailNeighbours.join([each[rail] for each in addresses], rank) for rail in range(len(addresses[0]))]
    slow, next_rank, step = Path(wish["folder"], f"slow-{rank}"), (rank + 1) % len(addresses), 0
    while True:
        pause(wish["folder"], rank, step)
        begun = time.monotonic()
        gradient, _ = network.gradient()
        due = begun + wish["compute_s"] * _times(slow)
        time.sleep(max(0.0, due - time.monotonic()))
        ready = time.monotonic()
        parts = np.array_split(gradient, len(rails))
        threads = [threading.Thread(target=ring.average, args=(part,)) for ring, part in zip(rails, parts, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ended = time.monotonic()
        network.learn(gradient)
        own, sent = {"rank": rank, "step": step}, 2 * (len(addresses) - 1) * gradient.nbytes // len(addresses)
        exchange = {**own, "start_s": ready, "end_s": ended}
        compute = {**own, "kind": "compute", "name": "forward and backward", "start_s": begun, "end_s": ready}
        group = {"name": "all-reduce", "group": "data", "size_bytes": gradient.nbytes}
        sends = {"kind": "send", "name": "exchange", "size_bytes": sent, "peer": next_rank}
        writer.send([compute, {**exchange, "kind": "collective", **group}, {**exchange, **sends}])
        step += 1


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
