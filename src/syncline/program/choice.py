"""Which way of synchronising makes the shortest step: a pure function of what was measured.

    choice = decide(measured, accuracy="safe")
    choice.codec         # "plain" (the backend's own all-reduce), "int8", ...
    choice.why           # one line
    choice.predicted_s   # the step by `overlap.step_s`, the model that the simulator uses; beside every other candidate

Ranks that hold the same numbers decide alike: plain arithmetic in a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from syncline.codec.low_rank import LowRank
from syncline.codec.names import PLAIN, scheme
from syncline.describe.plain import JsonObject
from syncline.describe.units import show_rate, show_time
from syncline.program.overlap import ExchangeCosts, How, LowRankCosts, RankLink, RingCosts, SharedMachine, Work, step_s
from syncline.program.pieces import PIECE_BYTES

# In the order of what they lose: of two that are equally fast the one that loses less is taken.
CLASSES: dict[str, tuple[str, ...]] = {
    "exact": (PLAIN,),
    "safe": (PLAIN, "bf16", "int8"),
    "aggressive": (PLAIN, "bf16", "int8", "int4", "sign", "powersgd:rank=4"),
}
NEAR = 1.03
"""Predictions this close are equal: the candidate that loses least is taken."""
PLAIN_NEAR = 1.05
"""Plain, which costs no trial, is left only for what should be this much faster."""
WORTH = 1.10
"""A codec that is in use is left only for one that is this much faster, or loses less at the same speed."""


@dataclass(frozen=True)
class CodecPrice:
    """Seconds of one processor for one element of a codec; `ratio` and `middle_s` are those of low rank."""

    name: str
    encode_s: float
    decode_s: float
    middle_s: float = 0.0
    ratio: float = 0.0


@dataclass(frozen=True)
class ChoiceBasis:
    """What a choice follows from: the link, the processors, the work of one step, and what codecs cost."""

    num_ranks: int
    rate_Bps: float
    latency_s: float
    num_cores: float
    byte_s: float
    message_s: float
    add_s: float
    work: Work
    prices: tuple[CodecPrice, ...]
    piece_bytes: int = PIECE_BYTES

    def to_json(self) -> JsonObject:
        """Return the numbers as JSON writes them."""
        return asdict(self)

    def how(self, codec: str) -> How:
        """Return how a bucket travels in a codec, with its measured price."""
        if codec == PLAIN:
            return RingCosts(self.add_s)
        price = next(price for price in self.prices if price.name == codec)
        known = scheme(codec)
        if isinstance(known, LowRank):
            return LowRankCosts(codec, price.ratio, price.encode_s, price.middle_s, price.decode_s)
        return ExchangeCosts(codec, known, price.encode_s, price.decode_s, self.piece_bytes)

    def predict(self, codec: str) -> float:
        """Return the step's seconds when every bucket travels in a codec."""
        wire = RankLink(self.rate_Bps, self.latency_s)
        machine = SharedMachine(self.num_cores, self.byte_s, self.message_s)
        return step_s(self.work, [self.how(codec)] * len(self.work.elements), self.num_ranks, wire, machine)

    def sent_s(self, codec: str) -> float:
        """Return the least time the wire needs for one step in this codec."""
        elements, how = sum(self.work.elements), self.how(codec)
        if isinstance(how, ExchangeCosts):
            size = float(how.codec.wire_bytes(elements))
        else:
            size = 4.0 * elements * (how.ratio if isinstance(how, LowRankCosts) else 1.0)
        return 2 * (self.num_ranks - 1) / self.num_ranks * size / self.rate_Bps


@dataclass(frozen=True)
class Choice:
    """A decision: the codec, the step that is predicted for it and for every candidate, and the reason."""

    codec: str
    predicted_s: float
    table: dict[str, float]
    why: str


def decide(measured: ChoiceBasis, accuracy: str, current: str = "") -> Choice:
    """Return the best codec in the accuracy class; the one in use stays unless another is clearly better."""
    known = {PLAIN, *(price.name for price in measured.prices)}
    allowed = [codec for codec in CLASSES[accuracy] if codec in known] or [PLAIN]
    table = {codec: measured.predict(codec) for codec in allowed}
    fastest = min(table.values())
    best = next(codec for codec in allowed if table[codec] <= (PLAIN_NEAR if codec == PLAIN else NEAR) * fastest)
    if current in allowed:
        more_exact = allowed.index(best) < allowed.index(current) and table[best] <= NEAR * table[current]
        if table[current] <= WORTH * table[best] and not more_exact:
            best = current
    return Choice(best, table[best], table, _why(measured, best, table, accuracy))


def _why(measured: ChoiceBasis, codec: str, table: Mapping[str, float], accuracy: str) -> str:
    """Return the reason on one line: the link, what the choice should take, what plain would, and the runner-up."""
    predicted = table[codec]
    link = f"{show_rate(measured.rate_Bps)}, {measured.num_ranks} ranks"
    parts = [f"{codec}: at {link} a step should take {show_time(predicted)}"]
    others: Sequence[tuple[float, str]] = sorted((took, other) for other, took in table.items() if other != codec)
    if others and others[0][1] != PLAIN:
        parts.append(f"{others[0][1]} {show_time(others[0][0])}")
    if PLAIN in table and codec != PLAIN:
        parts.append(f"plain DDP {show_time(table[PLAIN])}")
    bound = measured.work.total_s * max(1.0, measured.num_ranks / measured.num_cores)
    limit = "computation" if predicted < 1.15 * bound or not math.isfinite(bound) else "network"
    return f"{', '.join(parts)}; {limit}-bound; accuracy class {accuracy}"
