"""A replica under a steady load, batched continuously: how many sequences it holds and how long users wait.

A replica that gets requests at a rate spends a share of its time on prefill; in the rest it decodes one token of all
sequences it holds, of which there are as many as arrive while one is being answered. Together they are one fixed point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from syncline.sim.serve.engine import Engine
from syncline.workload.load import Load

#: Prompts are cut in chunks of this many tokens that decode passes take along (vLLM's and SGLang's default).
CHUNK = 2048
#: Tokens that a pass of prefill takes at most, of each rank where attention goes by request: TensorRT-LLM's default.
FILLED = 8192
#: From a request to its first token beside the passes: the server's door, tokenising, scheduling, the way back. NIM
#: shows 6 ms, SGLang 20, TensorRT-LLM 37 and vLLM 52 in `benchmarks/serving_latency.py`; a middle of them.
DOOR_S = 0.020
#: No replica is kept busier: queues grow without end.
BUSIEST = 0.95
#: Sequences of one batch at most, of each rank where attention goes by request: TensorRT-LLM's default.
MOST_SEQUENCES = 2048


@dataclass(frozen=True)
class Steady:
    """One replica in its steady state. `busy` above 1: it cannot keep up."""

    rate: float
    batch: float
    busy: float
    prefill_share: float
    first_token_p50_s: float
    first_token_p99_s: float
    between_p50_s: float
    between_p99_s: float
    token_s: float  # the mean time of a token after the first
    network_s: float  # of one decode pass
    network_share: float  # of all the replica's time
    cache_sent_s: float  # from prefill to decode, where they are apart

    @property
    def keeps_up(self) -> bool:
        return self.busy <= BUSIEST


def most_rate(engine: Engine, load: Load) -> float:
    """Return the requests a second that one replica answers when it is never idle."""
    batch = most_batch(engine, load)
    if batch < 1:
        return 0.0
    prompt, answer = load.prompt.mean, load.answer.mean
    decode = sum(engine.decode_parts(batch, _context(load)).values())
    return 1.0 / (_filled_s(engine, prompt) / engine.split.pp + answer * decode / batch)


def most_batch(engine: Engine, load: Load) -> float:
    """Return how many sequences the cache holds, at the mean they need while being answered."""
    ranks = engine.split.tp if engine.split.spread else 1
    return min(MOST_SEQUENCES * ranks, engine.most_sequences(load.prompt.mean + load.answer.mean))


def steady(engine: Engine, load: Load, rate: float, apart: bool = False, crowd: float = 1.0) -> Steady:
    """Return one replica at so many requests a second.

    `apart`: prefill runs on other replicas (disaggregated), each of which serves `crowd` of those that decode.
    """
    prompt, answer = load.prompt.mean, load.answer.mean
    prefill = _prefill_s(engine, prompt)
    share = rate * _filled_s(engine, prompt) / engine.split.pp  # stages take different prompts at the same time
    most = most_batch(engine, load)
    low, high = 0.0, max(most, 1.0)
    for _ in range(60):  # the batch at which as many leave as arrive
        batch = (low + high) / 2
        took = _token_s(engine, load, rate, batch, 0.0 if apart else share)
        low, high = (batch, high) if rate * answer * took > batch else (low, batch)
    batch = max((low + high) / 2, 1.0)
    token_s = _token_s(engine, load, rate, batch, 0.0 if apart else share)
    parts = engine.decode_parts(batch, _context(load))
    pass_s = sum(parts.values())
    left = pass_s / token_s
    demand = rate * answer * pass_s / max(most, 1e-9)
    busy = max(share, demand) if apart else share + demand
    wait = _wait_s(min(crowd * share, 0.999), prefill, load.prompt.square)
    # A prompt joins when the pass that runs is over: half of one in the mean, where one runs at all.
    decoding = min(1.0, rate * answer * pass_s / left)
    half = DOOR_S + _prefill_s(engine, load.prompt.p50) + decoding * pass_s / 2
    tail = DOOR_S + _prefill_s(engine, load.prompt.p99) + decoding * pass_s
    if apart:
        half, tail = half + engine.send_cache_s(prompt), tail + engine.send_cache_s(load.prompt.p99)
    sent = engine.send_cache_s(prompt) if apart else 0.0
    slowest = pass_s + (0.0 if apart else _chunk_s(engine, load, rate * pass_s / left))
    network = engine.prefill_parts(prompt, prompt)["network"]
    late = wait * math.log(100 * max(min(crowd * share, 1.0), 0.01))
    return Steady(
        rate, batch, busy, share, half + wait * math.log(2), tail + late, pass_s, slowest, token_s, parts["network"],
        (rate * network + (1 - share) * parts["network"] / pass_s) if not apart else parts["network"] / pass_s, sent,
    )  # fmt: skip


def _token_s(engine: Engine, load: Load, rate: float, batch: float, share: float) -> float:
    """Return the mean time of a token after the first, where prefill takes a share of the time.

    A pass that takes a piece of a prompt along decodes a token of every sequence too: it reads the weights anyway, so
    only their caches are more work.
    """
    parts = engine.decode_parts(max(batch, 1.0), _context(load))
    pass_s = sum(parts.values())
    if not share:
        return pass_s
    pieces = rate * max(1.0, load.prompt.mean / CHUNK)
    pieces /= 1 + pieces * pass_s  # prompts that come during one pass go together
    left = 1.0 - share - pieces * parts["cache"]
    return 1.0 / max(left / pass_s + pieces, 1e-6)


def _chunk_s(engine: Engine, load: Load, prompts_per_pass: float) -> float:
    """Return the prefill that the slowest of a hundred passes takes along; none where it is rarer than that.

    Of the passes that take a prompt along, the slowest hundredth of all passes are those with the longest prompts.
    """
    pieces = prompts_per_pass * max(1.0, load.prompt.mean / CHUNK)
    if pieces < 0.01:
        return 0.0
    prompt = load.prompt.quantile(1 - 0.01 / pieces)
    return sum(engine.prefill_parts(min(CHUNK, prompt), prompt).values())


def _context(load: Load) -> float:
    return load.prompt.mean + load.answer.mean / 2


def _prefill_s(engine: Engine, prompt: float) -> float:
    return sum(engine.prefill_parts(prompt, prompt).values())


def _filled_s(engine: Engine, prompt: float) -> float:
    """Return one prompt's part of the prefill of a busy replica, which takes short prompts together."""
    ranks = engine.split.tp if engine.split.spread else 1
    tokens = max(prompt, FILLED * ranks)
    return prompt / tokens * sum(engine.prefill_parts(tokens, prompt).values())


def _wait_s(busy: float, service_s: float, square: float) -> float:
    """Return the mean wait of a queue with random arrivals (Pollaczek and Khinchine)."""
    return busy / (1 - busy) * service_s * square / 2
