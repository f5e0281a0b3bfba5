"""The demo's training: its ring averages, and what is predicted of it follows from the links."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest

from syncline.describe import units
from syncline.watch.demonstration.lab import COMPUTE_S, RATE, prediction
from syncline.watch.demonstration.rank import DemoRing


def test_a_ring_gives_every_rank_the_mean() -> None:
    pairs = [socket.socketpair() for _ in range(3)]  # from rank i to the next
    rings = [DemoRing(i, 3, pairs[i][0], pairs[i - 1][1]) for i in range(3)]
    values = [np.arange(1001, dtype=np.float32) * (i + 1) for i in range(3)]
    threads = [threading.Thread(target=rings[i].average, args=(values[i],)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for each in (end for pair in pairs for end in pair):
        each.close()
    for mean in values:
        np.testing.assert_allclose(mean, np.arange(1001) * 2.0, rtol=1e-6)


def test_what_is_predicted_by_hand() -> None:
    """1.57 MB over four hosts and two rails: 2 x 3/4 of half of it on each rail, at 12.5 MB/s less headers."""
    planned, sent = prediction(), 1.5 * (256 * 1024 + 1024 * 128) * 4 / 2
    assert planned.exposed_s == pytest.approx(sent / units.rate(RATE), rel=0.02)
    assert planned.step_s == pytest.approx(COMPUTE_S + (planned.exposed_s or 0.0))
    assert planned.rate_of("host-03/nic-1 -> leaf-01") == pytest.approx(sent / (planned.step_s or 1.0), rel=0.02)
    assert planned.rate_of("leaf-00 -> spine-00 #2") == 0.0
