"""How fast a scheme is on this machine: the price with speeds in it."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from syncline.codec.codec import Codec
from syncline.codec.scheme import Scheme


def measured(scheme: Scheme, *, num_elements: int = 1 << 22, seconds: float = 0.05) -> Codec:
    """Return the scheme's price with the encode and decode speeds of one thread here, residual and sum included.

    Each is the fastest of as many runs as fit in `seconds`, two at least: noise only ever slows a run.
    """
    values = np.random.default_rng(0).standard_normal(num_elements, np.float32)
    residual, out = np.zeros(num_elements, np.float32), np.zeros(num_elements, np.float32)
    payload = np.zeros(scheme.wire_bytes(num_elements), np.uint8)
    state = scheme.new_state(num_elements)
    encode_s = _fastest_s(lambda: scheme.encode(values, payload, state, residual), seconds)
    decode_s = _fastest_s(lambda: scheme.decode(payload, out, add=True), seconds)
    size_bytes = 4 * num_elements
    return scheme.price(encode_Bps=size_bytes / encode_s, decode_Bps=size_bytes / decode_s, num_elements=num_elements)


def _fastest_s(call: Callable[[], object], seconds: float) -> float:
    fastest, runs, end = float("inf"), 0, time.perf_counter() + seconds
    while runs < 2 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        fastest = min(fastest, time.perf_counter() - start)
        runs += 1
    return fastest
