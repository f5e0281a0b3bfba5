"""Which way of synchronising makes the shortest step: a pure function of what was measured.

    choice = decide(measured, accuracy="safe")
    choice.codecs        # one for each bucket: "plain" (the backend's own all-reduce), "int8", ...
    choice.why           # one line
    choice.predicted_s   # the step by `overlap.step_s`, the model that the simulator uses; beside every other candidate

Ranks that hold the same numbers decide alike: plain arithmetic in a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from syncline.codec.low_rank import LowRank
from syncline.codec.names import PLAIN, scheme
from syncline.describe.plain import JsonObject
from syncline.describe.units import show_rate, show_time
from syncline.program.overlap import ExchangeCosts, How, LowRankCosts, RankLink, Ring, SharedMachine, Work, step_s
from syncline.program.pieces import PIECE_BYTES

# In the order of what they lose: of two that are equally fast the one that loses less is taken.
CLASSES: dict[str, tuple[str, ...]] = {
    "exact": (PLAIN, "fp32"),
    "safe": (PLAIN, "fp32", "bf16", "int8"),
    "aggressive": (PLAIN, "fp32", "bf16", "int8", "int4", "sign", "powersgd:rank=4", "topk:keep=0.01+int8"),
}
NEAR = 1.03
"""Predictions this close are equal: the candidate that loses least is taken."""
PLAIN_NEAR = 1.05
"""Plain, which costs no trial, is left only for what should be this much faster."""
LOCAL_EVERY = (2, 4, 8)
LOCAL_CODECS = ("int8", "int4", "topk:keep=0.01+int8")
LOCAL_CLASS = "aggressive"
"""The class in which ranks may step without the others for a while."""
LOCAL_WORTH = 1.3
"""Steps without the others must be this much faster than the best with them, predicted and then measured."""
LOCAL_PASSES = 5
"""Passes over the weights to note how far they have moved and to take the average, each about an addition's time."""
PERIODIC = {"DiLoCo(every=50)": ("int8", 50)}
"""Other optimizers, with codec and steps between exchanges: priced, and never chosen by themselves."""
WORTH = 1.10
"""A choice that is in use is left only for one that is this much faster, or loses less at the same speed."""
MIXED_WORTH = 1.03
MAX_MIXED = 12
"""Buckets up to which choices are tried one by one."""


@dataclass(frozen=True)
class CodecPrice:
    """Seconds of one processor for one element of a codec; `ratio` and `middle_s` are those of low rank."""

    name: str
    encode_s: float
    decode_s: float
    middle_s: float = 0.0
    ratio: float = 0.0


@dataclass(frozen=True)
class Local:
    """Local SGD: ranks step alone, and every so many steps weights are averaged, their change sent in `codec`."""

    every: int
    codec: str

    @property
    def name(self) -> str:
        """What it is called where codecs are named."""
        return f"local-sgd:every={self.every}+{self.codec}"

    @classmethod
    def named(cls, name: str) -> Local | None:
        """Return what a name means; None: a codec, with which ranks talk at every step."""
        method, _, options = name.partition(":every=")
        every, _, codec = options.partition("+")
        known = method == "local-sgd" and every.isdecimal() and int(every) > 0
        return cls(int(every), scheme(codec).name) if known else None


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

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> ChoiceBasis:
        """Return what `to_json` wrote."""
        prices = tuple(CodecPrice(**price) for price in saved["prices"])
        return cls(**{**saved, "work": Work.from_json(saved["work"]), "prices": prices})

    def how(self, codec: str) -> How:
        """Return how a bucket travels in a codec, with its measured price."""
        if codec == PLAIN:
            return Ring(self.add_s)
        price = next(price for price in self.prices if price.name == codec)
        known = scheme(codec)
        if isinstance(known, LowRank):
            return LowRankCosts(codec, price.ratio, price.encode_s, price.middle_s, price.decode_s)
        return ExchangeCosts(codec, known.wire_bytes, price.encode_s, price.decode_s, self.piece_bytes)

    def predict(self, codecs: Sequence[str]) -> float:
        """Return the step's seconds when bucket i travels in codecs[i]; the mean one where ranks step alone."""
        local = Local.named(codecs[0])
        if local is not None:
            return self._play(Work(self.work.total_s, (), (), 0.0), []) + self._meet_s(local.codec) / local.every
        hows = {codec: self.how(codec) for codec in set(codecs)}
        return self._play(self.work, [hows[codec] for codec in codecs])

    def _meet_s(self, codec: str) -> float:
        """Return the seconds of one average of the weights, while nothing else is done; ranks wait for all before."""
        elements = sum(self.work.elements)
        around_s = LOCAL_PASSES * self.add_s * elements / 2
        work = Work(around_s, (0.0,), (elements,), around_s)
        return 2 * self.latency_s + self._play(work, [self.how(codec)])

    def _play(self, work: Work, hows: Sequence[How]) -> float:
        wire = RankLink(self.rate_Bps, self.latency_s)
        return step_s(work, hows, self.num_ranks, wire, SharedMachine(self.num_cores, self.byte_s, self.message_s))

    def periodic_s(self, codec: str, every: int) -> float:
        """Return the step's seconds when the model itself is averaged every so many steps, streamed behind them.

        Computation and wire go side by side; what the processors need for the exchange comes on top of their work.
        """
        how, share = self.how(codec), sum(self.work.elements) / every
        assert isinstance(how, ExchangeCosts), codec
        exchange_s = (
            share * (how.encode_s + 2 * how.decode_s) + self.byte_s * self.rate_Bps * self.sent_s(codec) / every
        )
        cores = self.num_cores / self.num_ranks
        busy_s = max(self.work.total_s, (self.work.total_s + exchange_s) / cores)
        return max(busy_s, self.sent_s(codec) / every)

    def sent_s(self, codec: str) -> float:
        """Return the least time the wire needs for one step in this codec."""
        elements = sum(self.work.elements)
        if codec == PLAIN:
            size = 4.0 * elements
        else:
            how = self.how(codec)
            size = (
                how.ratio * 4 * elements if isinstance(how, LowRankCosts) else float(scheme(codec).wire_bytes(elements))
            )
        return 2 * (self.num_ranks - 1) / self.num_ranks * size / self.rate_Bps


@dataclass(frozen=True)
class Choice:
    """A decision: each bucket's codec, the step that is predicted for it and for every candidate, and the reason.

    `together` is the best with which ranks talk at every step: the same, unless they are to step alone for a while.
    """

    codecs: tuple[str, ...]
    predicted_s: float
    table: dict[str, float]
    why: str
    together: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The codec, or codecs, on one line."""
        kinds = list(dict.fromkeys(self.codecs))
        return kinds[0] if len(kinds) == 1 else " and ".join(f"{self.codecs.count(k)} x {k}" for k in kinds)

    def to_json(self) -> JsonObject:
        """Return the choice as JSON writes it."""
        return {"codecs": list(self.codecs), "predicted_s": self.predicted_s, "table": self.table, "why": self.why}


def decide(
    measured: ChoiceBasis, accuracy: str, current: Sequence[str] = (), alone: bool = True, mixed: bool = True
) -> Choice:
    """Return the best choice in the accuracy class; what is in use stays unless another is clearly better.

    `alone`: ranks may step without the others for a while, where the class allows it.
    """
    num_buckets = len(measured.work.elements)
    known = {PLAIN, *(price.name for price in measured.prices)}
    allowed = [codec for codec in CLASSES[accuracy] if codec in known] or [PLAIN]
    table = {codec: measured.predict([codec] * num_buckets) for codec in allowed}
    fastest = min(table.values())
    best = next(codec for codec in allowed if table[codec] <= (PLAIN_NEAR if codec == PLAIN else NEAR) * fastest)
    codecs, predicted = (best,) * num_buckets, table[best]
    if mixed and 1 < num_buckets <= MAX_MIXED and predicted > MIXED_WORTH * measured.work.total_s:
        codecs, predicted = _mix(measured, codecs, predicted, _promising(table))
    if len(current) == num_buckets and set(current) <= set(allowed) and tuple(current) != codecs:
        staying = measured.predict(current)
        more_exact = _loss(codecs, allowed) < _loss(current, allowed) and predicted <= NEAR * staying
        if staying <= WORTH * predicted and not more_exact:
            codecs, predicted = tuple(current), staying
    together = codecs
    if alone and accuracy == LOCAL_CLASS and measured.num_ranks > 1:
        steps = _local(measured, [codec for codec in LOCAL_CODECS if codec in known])
        table |= steps
        name = _best_local(measured, steps, current[0] if current else "", predicted)
        if name:
            codecs, predicted = (name,) * num_buckets, measured.predict([name])
    return Choice(codecs, predicted, table, _why(measured, codecs, predicted, table, accuracy), together)


def periodic(measured: ChoiceBasis) -> dict[str, float]:
    """Return what a step should take under each other optimizer, where its codec was measured."""
    known = {price.name for price in measured.prices}
    return {name: measured.periodic_s(codec, every) for name, (codec, every) in PERIODIC.items() if codec in known}


def _local(measured: ChoiceBasis, codecs: Sequence[str]) -> dict[str, float]:
    """Return for each number of steps alone what a step takes, in the codec that loses least of the fastest."""
    found = {}
    for every in LOCAL_EVERY:
        names = [Local(every, codec).name for codec in codecs]
        took = {name: measured.predict([name]) for name in names}
        best = next((name for name in names if took[name] <= NEAR * min(took.values())), None)
        if best is not None:
            found[best] = took[best]
    return found


def _best_local(measured: ChoiceBasis, steps: Mapping[str, float], current: str, together_s: float) -> str:
    """Return the fewest steps alone that are about as fast as any, if it is worth it; what is in use stays longer."""
    if not steps:
        return ""
    best = next(name for name in steps if steps[name] <= WORTH * min(steps.values()))
    if Local.named(current) is not None:
        staying = measured.predict([current])
        if staying <= WORTH * steps[best] and staying * WORTH <= together_s:
            return current
    return best if steps[best] * LOCAL_WORTH <= together_s else ""


def _loss(codecs: Sequence[str], allowed: Sequence[str]) -> int:
    """Return the place of the codec that loses most, in the order of the class."""
    return max(allowed.index(codec) for codec in codecs)


def _promising(table: Mapping[str, float]) -> list[str]:
    """Return the candidates that may do well for one bucket: the three that do best for all, and plain."""
    ranked = sorted(table, key=lambda codec: table[codec])[:3]
    return [*ranked, *(codec for codec in (PLAIN,) if codec in table and codec not in ranked)]


def _mix(
    measured: ChoiceBasis, codecs: tuple[str, ...], uniform: float, candidates: Sequence[str]
) -> tuple[tuple[str, ...], float]:
    """Return a choice bucket by bucket where that is clearly faster than one codec for all; the last buckets first."""
    best, predicted = list(codecs), uniform
    for bucket in reversed(range(len(codecs))):
        for codec in candidates:
            if codec == best[bucket]:
                continue
            tried = [*best[:bucket], codec, *best[bucket + 1 :]]
            took = measured.predict(tried)
            if took < predicted / 1.005:
                best, predicted = tried, took
    return (tuple(best), predicted) if predicted * MIXED_WORTH < uniform else (codecs, uniform)


def _why(
    measured: ChoiceBasis, codecs: tuple[str, ...], predicted: float, table: Mapping[str, float], accuracy: str
) -> str:
    """Return the reason on one line: the link, what the choice should take, what plain would, and the runner-up."""
    chosen = Choice(codecs, predicted, {}, "").name
    link = f"{show_rate(measured.rate_Bps)}, {measured.num_ranks} ranks"
    parts = [f"{chosen}: at {link} a step should take {show_time(predicted)}"]
    others = sorted(
        (took, codec)
        for codec, took in table.items()
        if (codec != codecs[0] or len(set(codecs)) > 1) and Local.named(codec) is None
    )
    if others and others[0][1] != PLAIN:
        parts.append(f"{others[0][1]} {show_time(others[0][0])}")
    if PLAIN in table and set(codecs) != {PLAIN}:
        parts.append(f"plain DDP {show_time(table[PLAIN])}")
    bound = max(measured.work.total_s * max(1.0, measured.num_ranks / measured.num_cores), 0.0)
    limit = "computation" if predicted < 1.15 * bound or not math.isfinite(bound) else "network"
    return f"{', '.join(parts)}; {limit}-bound; accuracy class {accuracy}"
