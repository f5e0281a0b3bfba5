"""Answering a fixed number of prompts, as reinforcement learning does before each of its steps."""

from __future__ import annotations

import math

from syncline.sim.serve.engine import Engine
from syncline.workload.load import Length

#: Points at which the falling batch is priced, from the first token to the longest answer.
POINTS = 48


def rollout_s(engine: Engine, sequences: float, prompt: Length, answer: Length, shared_prompt: int = 1) -> float:
    """Return how long one replica takes to answer so many sequences, `shared_prompt` of them to one prompt.

    Sequences end at different lengths, so the batch shrinks towards the longest answer: a pass at position t serves
    those longer than t. What does not fit the cache waits its turn: n / most passes instead of one.
    """
    most = max(engine.most_sequences(prompt.mean + answer.mean), 1e-9)
    if most < 1:
        return math.inf
    prefill = sum(engine.prefill_parts(sequences / shared_prompt * prompt.mean, prompt.mean).values())
    longest = answer.p99
    total, step = prefill, longest / POINTS
    for point in range(POINTS):
        at = (point + 0.5) * step
        left = sequences * _longer(answer, at)
        batch = min(max(left, 1.0), most)
        total += step * max(left / most, 1.0) * sum(engine.decode_parts(batch, prompt.mean + at).values())
    return total


def _longer(length: Length, at: float) -> float:
    """Return the share of a log-normal that is longer than `at`."""
    if length.sigma < 1e-9:
        return float(at < length.mean)
    z = (math.log(max(at, 1e-9)) - math.log(length.p50)) / length.sigma
    return 0.5 * math.erfc(z / math.sqrt(2))
