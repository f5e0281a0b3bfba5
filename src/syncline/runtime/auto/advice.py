"""Which bucket size would be best, from what steps measured: when gradients are ready, what each byte costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from syncline.describe.units import show_time
from syncline.runtime.sync.step import Step
from syncline.timeline import SpanKind

CANDIDATES_MB = (1, 2, 4, 8, 16, 25, 50, 100)


@dataclass(frozen=True)
class BucketAdvice:
    """The `bucket_cap_mb` with the shortest predicted wait after backward, and the prediction for each candidate."""

    bucket_cap_mb: int
    exposed_s: dict[int, float]
    backward_s: float
    num_bytes: int

    def line(self) -> str:
        """Return the advice on one line."""
        best = self.exposed_s[self.bucket_cap_mb]
        others = ", ".join(f"{cap} MB {show_time(wait)}" for cap, wait in self.exposed_s.items())
        return f"bucket_cap_mb={self.bucket_cap_mb}: {show_time(best)} exposed (predicted: {others})"


@dataclass(frozen=True)
class Costs:
    """What a bucket costs: a fixed part, and seconds a byte of gradient to encode, to send and to decode."""

    fixed_s: float
    encode_s_per_byte: float
    wire_s_per_byte: float
    decode_s_per_byte: float


def advise(steps: Sequence[Step], rate_Bps: float) -> BucketAdvice:
    """Return the best bucket size for steps like these."""
    costs = [_costs(step, rate_Bps) for step in steps]
    typical = Costs(*(median(values) for values in zip(*(vars(c).values() for c in costs), strict=True)))
    total = int(median(sum(size for _, _, size in step.ready) for step in steps))
    backward_s = median(step.ready[-1][1] - step.ready[0][1] for step in steps)
    waits = {cap: exposed_s(total, backward_s, cap * 1e6, typical) for cap in CANDIDATES_MB if cap * 1e6 < 2 * total}
    waits = waits or {CANDIDATES_MB[0]: exposed_s(total, backward_s, 1e6, typical)}
    best = min(waits, key=lambda cap: waits[cap])
    return BucketAdvice(best, waits, backward_s, total)


def exposed_s(num_bytes: float, backward_s: float, cap_bytes: float, costs: Costs) -> float:
    """Return the wait after backward: buckets are ready at an even pace, and encoding and sending each go in order."""
    count = max(1, round(num_bytes / cap_bytes))
    size = num_bytes / count
    encoded = sent = 0.0
    for k in range(count):
        ready = backward_s * (k + 1) / count
        encoded = max(encoded, ready) + costs.fixed_s + size * costs.encode_s_per_byte
        sent = max(sent, encoded) + size * costs.wire_s_per_byte
    return max(0.0, sent + size * costs.decode_s_per_byte - backward_s)


def _costs(step: Step, rate_Bps: float) -> Costs:
    total = sum(size for _, _, size in step.ready)
    took = dict.fromkeys(SpanKind, 0.0)
    for _, began, ended, kind, *_ in step.spans:
        took[kind] += ended - began
    shortest = [ended - began for _, began, ended, kind, *_ in step.spans if kind is SpanKind.ENCODE]
    wire = step.wire_bytes / rate_Bps if rate_Bps > 0 else 0.0
    encode, decode = took[SpanKind.ENCODE], took[SpanKind.DECODE] + took[SpanKind.REDUCE]
    return Costs(2 * min(shortest, default=0.0), encode / total, wire / total, decode / total)
