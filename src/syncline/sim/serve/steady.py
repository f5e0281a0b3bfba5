"""A replica under a steady load, batched continuously: how many sequences it holds and how long users wait.

A replica that gets requests at a rate spends a share of its time on prefill; in the rest it decodes one token of all
sequences it holds, of which there are as many as arrive while one is being answered. Together they are one fixed point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from syncline.sim.serve.engine import Engine
from syncline.workload.load import Length, Load

#: Prompts are cut in chunks of this many tokens that decode passes take along (vLLM's and SGLang's default).
CHUNK = 2048
#: Tokens that a pass of prefill takes at most, of each rank where attention goes by request: TensorRT-LLM's default.
FILLED = 8192
#: From a request to its first token beside the passes: the server's door, tokenising, scheduling, the way back. NIM
#: shows 6 ms, SGLang 20, TensorRT-LLM 37 and vLLM 52 in `research/serving/latency.py`; a middle of them.
DOOR_S = 0.020
#: No replica is kept busier: queues grow without end.
BUSIEST = 0.95
#: No pass is shorter or longer.
SHORTEST_S, LONGEST_S = 1e-5, 1e3
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
    share = rate * _filled_s(engine, prompt) / engine.split.pp  # stages take different prompts at the same time
    most = most_batch(engine, load)
    batch, token_s = _balance(engine, load, rate, most, apart)
    parts = engine.decode_parts(batch, _context(load))
    pass_s = sum(parts.values())
    full = sum(engine.decode_parts(max(most, 1.0), _context(load)).values()) / max(most, 1e-9)
    demand = rate * answer * full
    busy = max(share, demand) if apart else share + demand
    wait = _wait_s(min(crowd * share, 0.999), sum(engine.prefill_parts(prompt, prompt).values()), load.prompt.square)
    # A prompt joins when the pass that runs is over, half of one in the mean where one runs at all, and its own pass
    # takes a token of every sequence along.
    decoding = min(1.0, rate * answer * token_s)
    riding = 0.0 if apart else decoding * batch
    half = DOOR_S + _mixed_s(engine, load, riding, load.prompt.p50, load.prompt.p50) + decoding * token_s / 2
    tail = DOOR_S + _mixed_s(engine, load, riding, load.prompt.p99, load.prompt.p99) + decoding * token_s
    if apart:
        half, tail = half + engine.send_cache_s(prompt), tail + engine.send_cache_s(load.prompt.p99)
    sent = engine.send_cache_s(prompt) if apart else 0.0
    slowest = pass_s if apart else _slowest_s(engine, load, rate, batch, token_s)
    network = engine.prefill_parts(prompt, prompt)["network"]
    late = wait * math.log(100 * max(min(crowd * share, 1.0), 0.01))
    return Steady(
        rate, batch, busy, share, half + wait * math.log(2), tail + late, pass_s, slowest, token_s,
        (rate * network + (1 - share) * parts["network"] / pass_s) if not apart else parts["network"] / pass_s, sent,
    )  # fmt: skip


@dataclass(frozen=True)
class Crowd:
    """One replica that so many users keep busy: each sends the next prompt when the last is answered."""

    users: float  # that are answered at a time; others wait
    first_token_s: float
    token_s: float  # the mean time of a token after the first
    rate: float  # requests a second


def crowd_of(engine: Engine, load: Load, users: float) -> Crowd | None:
    """Return what so many users see of one replica; None where its memory holds no sequence."""
    batch = min(users, most_batch(engine, load))
    if batch < 1:
        return None
    answer = load.answer.mean
    token_s = _fixed(lambda at: _token_s(engine, load, batch / answer / at / engine.split.pp, batch, at))
    first = DOOR_S + _mixed_s(engine, load, batch, load.prompt.mean, load.prompt.mean) + token_s / 2
    return Crowd(batch, first, token_s, batch / (first + (answer - 1) * token_s))


def _balance(engine: Engine, load: Load, rate: float, most: float, apart: bool) -> tuple[float, float]:
    """Return how many sequences are answered at a time, and the mean time of a token after the first.

    As many leave as arrive: sequences = rate x answer x time of a token. Where that is more than the cache holds, the
    others wait outside.
    """

    def batch_of(token_s: float) -> float:
        return max(min(rate * load.answer.mean * token_s, most), 1.0)

    def next_s(token_s: float) -> float:
        batch = batch_of(token_s)
        # Stages take different prompts at the same time.
        coming = 0.0 if apart else min(rate, batch / load.answer.mean / token_s) / engine.split.pp
        return _token_s(engine, load, coming, batch, token_s)

    found = _fixed(next_s)
    return batch_of(found), found


def _fixed(next_s: Callable[[float], float]) -> float:
    """Return the time of a pass that is as long as what comes during it makes it."""
    low, high = SHORTEST_S, LONGEST_S
    for _ in range(32):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if next_s(middle) > middle else (low, middle)
    return high


def _token_s(engine: Engine, load: Load, rate: float, batch: float, pass_s: float) -> float:
    """Return the mean of passes, some of which take a piece of a prompt along, where one is as long as it is.

    Prompts that come during one pass go together; the longer a pass, the more of them.
    """
    plain = sum(engine.decode_parts(batch, _context(load)).values())
    if not rate:
        return plain
    share, prompt = _with_piece(load, rate, pass_s), load.prompt.mean
    return share * _mixed_s(engine, load, batch, rate * prompt * pass_s / share, prompt) + (1 - share) * plain


def _with_piece(load: Load, rate: float, pass_s: float) -> float:
    """Return the share of the passes that take a piece of a prompt along."""
    pieces = rate * pass_s * max(1.0, load.prompt.mean / CHUNK)
    return pieces / (1 + pieces)


def _mixed_s(engine: Engine, load: Load, batch: float, tokens: float, length: float) -> float:
    """Return one pass that prefills so many tokens of prompts of a length and decodes a token of every sequence."""
    return sum(engine.mixed_parts(tokens, length, batch, _context(load)).values())


def _slowest_s(engine: Engine, load: Load, rate: float, batch: float, token_s: float) -> float:
    """Return the slowest of a hundred times between tokens: with a long prompt, where one pass in a hundred has any.

    Of the passes that take a prompt along, the slowest hundredth of all are those with the longest prompts. SGLang and
    TensorRT-LLM as they come prefill in a pass of its own, before the next token.
    """
    share, pass_s = _with_piece(load, rate, token_s), sum(engine.decode_parts(batch, _context(load)).values())
    if share < 0.01:
        return pass_s
    prompt, length = load.prompt.quantile(1 - 0.01 / share), load.prompt.mean
    usual = _mixed_s(engine, load, batch, rate * length * token_s / share, length)
    return max(usual, pass_s + sum(engine.prefill_parts(min(CHUNK, prompt), prompt).values()))


def _context(load: Load) -> float:
    return load.prompt.mean + load.answer.mean / 2


def _filled_s(engine: Engine, prompt: float) -> float:
    """Return one prompt's part of the prefill of a busy replica, which takes short prompts together."""
    ranks = engine.split.tp if engine.split.spread else 1
    tokens = max(prompt, FILLED * ranks)
    return prompt / tokens * sum(engine.prefill_parts(tokens, prompt).values())


def _wait_s(busy: float, service_s: float, square: float) -> float:
    """Return the mean wait of a queue with random arrivals (Pollaczek and Khinchine)."""
    return busy / (1 - busy) * service_s * square / 2


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
