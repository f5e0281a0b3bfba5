"""The runtime tells the agent of its host by itself: a real agent, a real training of two ranks."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
from tests.distributed.ranks import run_ranks
from tests.watch.runtime_cases import NUM_RANKS, NUM_STEPS, train

from syncline.watch.setup import WatchConfig, make_agent


def test_a_training_is_seen_by_the_agent_without_being_told_to(tmp_path: Path) -> None:
    agent = make_agent(WatchConfig(host="here", interfaces="lo", spans_socket=str(tmp_path / "spans.sock")))
    stop = threading.Event()
    looking = threading.Thread(target=agent.run, args=(stop,))
    looking.start()
    try:
        results = run_ranks(NUM_RANKS, partial(train, tmp_path))
        until = time.monotonic() + 120
        while time.monotonic() < until:
            frame = agent.hub.frame
            if frame is not None and any(stat.name.startswith("ring") for stat in frame.job.collectives):
                break
            time.sleep(0.05)
    finally:
        stop.set()
        looking.join()
        agent.close()
    assert frame is not None
    assert frame.health["num_bad_spans"] == 0
    kinds = {stat.name: stat for stat in frame.job.collectives}
    assert kinds["all-reduce"].num >= NUM_STEPS - 1
    assert kinds["all-reduce"].size_bytes == 1 << 18
    # A step is over when the next is told of.
    assert [step.num_ranks for step in frame.job.steps] == [NUM_RANKS] * (NUM_STEPS - 1)
    assert all(0 < step.compute_s <= step.step_s for step in frame.job.steps)
    # Each of the two sent the other what its reports say.
    pairs = frame.job.pairs_Bps
    assert pairs.shape == (2, 2)
    assert pairs[0, 1] == pytest.approx(pairs[1, 0], rel=0.5)
    assert pairs[0, 0] == pairs[1, 1] == 0
    assert all(result["sent"] > 0 for result in results)
