"""Is that what this topology should give? A measurement against its expectation, and what explains the gap.

The threshold is the prediction's own interval, and the measurement has its own spread: "slow" is said when the fastest
tenth of the repetitions is still slower than the interval allows, in place and out of place; "slow?" when only the
median is, or when systems in order are usually faster; "unsteady" when in place and out of place, which move the same
bytes over the same links, lie far apart. A link is named only where measurements of messages over it point to it;
otherwise the finding asks for the measurement that decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from syncline.bench.attribute import Suspect
from syncline.bench.certainty import SMALL, certainty
from syncline.bench.expect import Expectation
from syncline.bench.measured import Measurement, bus_factor
from syncline.describe import units
from syncline.describe.guide import cite
from syncline.describe.plain import JsonObject
from syncline.finding import Action, Finding, Severity

#: In place and out of place differ by a few per cent where nothing disturbs them.
APART = 0.2


class BenchVerdict(StrEnum):
    """What a measurement says about the cluster."""

    OK = "ok"
    SLOW = "slow"
    MAYBE_SLOW = "slow?"
    UNSTEADY = "unsteady"
    FAST = "fast"
    WRONG = "wrong"
    UNKNOWN = "-"


@dataclass(frozen=True)
class Judgement:
    """One line of a sweep with what was expected of it."""

    measured: Measurement
    expected: Expectation | None
    verdict: BenchVerdict

    @property
    def factor(self) -> float | None:
        """Measured over predicted time."""
        return self.measured.timing.median_s / self.expected.time_s if self.expected else None

    @property
    def wire_Bps(self) -> float | None:
        """What the limiting link carried."""
        return self.expected.wire_Bps(self.measured.timing.median_s) if self.expected else None

    @property
    def expected_algbw_Bps(self) -> tuple[float, float, float] | None:
        """Size over the predicted time, and over the ends of its interval, the slowest first: low, predicted, high."""
        expected = self.expected
        if expected is None or min(expected.low_s, expected.time_s, expected.high_s) <= 0:
            return None
        size = self.measured.size_bytes
        return size / expected.high_s, size / expected.time_s, size / expected.low_s

    @property
    def expected_busbw_Bps(self) -> tuple[float, float, float] | None:
        """The bus bandwidth that should be measured: low, predicted, high."""
        rates, factor = self.expected_algbw_Bps, bus_factor(self.measured.kind, self.measured.num_ranks)
        return (rates[0] * factor, rates[1] * factor, rates[2] * factor) if rates else None

    @property
    def label(self) -> str:
        """The verdict with its factor, as a table shows it."""
        if self.verdict in (BenchVerdict.OK, BenchVerdict.WRONG, BenchVerdict.UNKNOWN) or self.factor is None:
            return self.verdict.value
        return f"{self.verdict.value} x{self.factor:.2g}"

    def to_json(self) -> JsonObject:
        """Return what is added to a row of nccl-tests' JSON."""
        return {
            "expected": self.expected.to_json() | self._bandwidths() if self.expected else None,
            "factor": self.factor,
            "wire_Bps": self.wire_Bps,
            "verdict": self.verdict.value,
        }

    def _bandwidths(self) -> JsonObject:
        bandwidths: JsonObject = {}
        for name, rates in (("algbw", self.expected_algbw_Bps), ("busbw", self.expected_busbw_Bps)):
            if rates:
                bandwidths |= {f"{name}_Bps": rates[1], f"low_{name}_Bps": rates[0], f"high_{name}_Bps": rates[2]}
        return bandwidths


def judge(measured: Measurement, expected: Expectation | None) -> Judgement:
    """Return the verdict on one measurement."""
    return Judgement(measured, expected, _verdict(measured, expected))


def _verdict(measured: Measurement, expected: Expectation | None) -> BenchVerdict:
    if measured.num_wrong:
        return BenchVerdict.WRONG
    if expected is None:
        return BenchVerdict.UNKNOWN
    timing = measured.timing
    if min(timing.p10_s, measured.other_s or timing.p10_s) > expected.high_s:
        return BenchVerdict.SLOW
    if max(timing.median_s, measured.other_s or 0.0) > expected.usual_s:
        return BenchVerdict.MAYBE_SLOW
    if measured.size_bytes >= SMALL and measured.apart > APART:
        return BenchVerdict.UNSTEADY
    return BenchVerdict.FAST if timing.p90_s < expected.low_s else BenchVerdict.OK


def findings(rows: Sequence[Judgement], blamed: Mapping[str, Sequence[Suspect]] | None = None) -> list[Finding]:
    """Return what is wrong, one finding an algorithm: the line that shows it best, with the link that explains it.

    `blamed` are the parts that a slow program's own messages point to; without them the limiting link stands for all
    that are like it.
    """
    found = []
    for algorithm in dict.fromkeys(row.measured.algorithm for row in rows):
        mine = [row for row in rows if row.measured.algorithm == algorithm]
        wrong = [row for row in mine if row.verdict is BenchVerdict.WRONG]
        if wrong:
            found.append(_wrong_data(wrong))
        slow = [row for row in mine if row.verdict is BenchVerdict.SLOW]
        if slow:
            found.append(_slow(slow, mine, list((blamed or {}).get(algorithm, ()))))
        unsure = [row for row in mine if row.verdict is BenchVerdict.MAYBE_SLOW and row.measured.size_bytes >= SMALL]
        if unsure and not slow:
            found.append(_maybe_slow(unsure))
        apart = [row for row in mine if row.measured.size_bytes >= SMALL and row.measured.apart > APART]
        if apart:
            found.append(_unsteady(apart))
        fast = [row for row in mine if row.verdict is BenchVerdict.FAST]
        if fast and not slow:
            found.append(_fast(fast))
    return found


def _name(row: Judgement) -> str:
    return f"{row.measured.kind.value.replace('_', '-')} ({row.measured.algorithm})"


def _line(row: Judgement) -> str:
    timing = row.measured.timing
    text = f"{units.show_size(row.measured.size_bytes)}: {units.show_time(timing.median_s)}"
    if row.expected:
        low, high = units.show_time(row.expected.low_s), units.show_time(row.expected.high_s)
        text += f", predicted {units.show_time(row.expected.time_s)} ({low} to {high})"
    for name, Bps, rates in (
        ("busbw", row.measured.busbw_Bps, row.expected_busbw_Bps),
        ("algbw", row.measured.algbw_Bps, row.expected_algbw_Bps),
    ):
        if rates:
            slowest, predicted, fastest = (f"{rate / 1e9:.4g}" for rate in rates)
            text += f"; {name} {Bps / 1e9:.4g} GB/s, predicted {predicted} ({slowest} to {fastest})"
    return text


def _slow(slow: list[Judgement], mine: list[Judgement], suspects: list[Suspect]) -> Finding:
    worst = max(slow, key=lambda row: (_leaves_the_host(row), row.measured.size_bytes))
    expected, factor = worst.expected, worst.factor
    assert expected is not None and factor is not None
    small = all(row.measured.size_bytes < SMALL for row in slow)
    sure = certainty(_pairs(slow), _pairs(mine))
    observed = (
        f"{_name(worst)} of {units.show_size(worst.measured.size_bytes)} takes "
        f"{units.show_time(worst.measured.timing.median_s)}, {factor:.2g} times the predicted time"
    )
    meaning = (
        "only small sizes are slow: latency or the host's own work, not a link's rate"
        if small
        else f"any link that all ranks wait for would explain it, {expected.link} among them; nothing here tells which"
    )
    place = "the collective as a whole"
    evidence = [*(_line(row) for row in slow[-4:]), sure.line()]
    if suspects:
        place, others = _place(suspects)
        meaning = f"its messages over {place} move at {100 * suspects[0].factor:.0f} % of the rate of the others"
        evidence += [f"also slow: {one.part.name}, {100 * one.factor:.0f} %" for one in others]
    fix = (
        "Look at the hosts: CPU frequency, interrupts, other load; then calibrate the description."
        if small
        else _deciding(worst)
    )
    return Finding(
        "bench.collective.slow", Severity.CRITICAL if _beyond_doubt(worst) else Severity.WARNING,
        place, observed, f"at most {units.show_time(expected.high_s)} ({expected.origin})",
        tuple(evidence), meaning, fix, cite("method/bench"), Action.INSPECT,
        suspects[0].confidence if suspects else sure.confidence,
    )  # fmt: skip


def _beyond_doubt(row: Judgement) -> bool:
    """Say whether a time is twice what sound clusters may take: what the model does not know of a system is counted."""
    return row.expected is not None and row.measured.timing.median_s >= 2 * row.expected.high_s


def _deciding(row: Judgement) -> str:
    """Return the measurement that tells a slow link from a model that does not know this system."""
    expected = row.expected
    line = (
        f" below {units.show_rate(0.8 * expected.line_Bps)}" if expected and expected.line_Bps else " well below line"
    )
    return (
        "Decide by measuring links: `syncline bench tournament` names the host, leaf or link; or run sendrecv_perf "
        f"between two hosts at a time: a pair{line} has the fault, and if none has, calibrate the description with "
        "this log (`syncline calibrate collective`)."
    )


def _maybe_slow(rows: list[Judgement]) -> Finding:
    row = max(rows, key=lambda row: row.measured.size_bytes)
    assert row.expected is not None and row.factor is not None
    sure = certainty(_pairs(rows), _pairs(rows))
    return Finding(
        "bench.collective.slower-than-usual", Severity.UNKNOWN, "the collective as a whole",
        f"{_name(row)} of {units.show_size(row.measured.size_bytes)} takes {row.factor:.2g} times the predicted time",
        f"usually below {units.show_time(row.expected.usual_s)}; up to {units.show_time(row.expected.high_s)} is "
        f"within the model's own error ({row.expected.origin})",
        tuple(_line(r) for r in rows[-4:]),
        "a fault, or a system that the model does not know well: this measurement cannot tell them apart",
        _deciding(row), cite("method/bench"), Action.INSPECT, min(sure.confidence, 0.5),
    )  # fmt: skip


def _unsteady(rows: list[Judgement]) -> Finding:
    row = max(rows, key=lambda row: row.measured.apart)
    short, long = sorted((row.measured.timing.median_s, row.measured.other_s or 0.0))
    return Finding(
        "bench.collective.unsteady", Severity.WARNING, "the collective as a whole",
        f"{_name(row)} of {units.show_size(row.measured.size_bytes)} takes {units.show_time(short)} in one place and "
        f"{units.show_time(long)} in the other, {row.measured.apart:.0%} longer",
        f"at most {APART:.0%} apart", tuple(f"{units.show_size(r.measured.size_bytes)}: {r.measured.apart:.0%} apart"
                                            for r in rows[-4:]),
        "both move the same bytes over the same links: something else used the links, the GPUs or the host meanwhile",
        "Repeat the slower of the two with more iterations (-n 100) on an idle cluster.",
        cite("method/bench"), Action.INSPECT,
    )  # fmt: skip


def _pairs(rows: list[Judgement]) -> list[tuple[Measurement, Expectation]]:
    return [(row.measured, row.expected) for row in rows if row.expected]


def _leaves_the_host(row: Judgement) -> bool:
    """Say whether a size is bounded by the network.

    Where NVLink and NICs bound a collective nearly alike, they take turns by size; NICs and cables fail first.
    """
    ends = [end.split("/")[0] for end in (row.expected.link if row.expected else "").split(" -> ")]
    return len(set(ends)) > 1


def _place(suspects: list[Suspect]) -> tuple[str, list[Suspect]]:
    """Return where to look, and the other suspects that speak for the same place.

    A ring cannot tell who sends slowly from who receives slowly; another suspect of the same owner can.
    """
    parts = [suspects[0].part, *suspects[0].among[:3]]
    owners = [part.owner for part in parts]
    others = [one for one in suspects[1:] if one.part.owner in owners]
    if others:
        parts = [part for part in parts if part.owner == others[0].part.owner]
    return " or ".join(part.name for part in parts), others


def _fast(fast: list[Judgement]) -> Finding:
    row = max(fast, key=lambda row: row.measured.size_bytes)
    assert row.expected is not None and row.factor is not None
    return Finding(
        "bench.collective.faster-than-described", Severity.WARNING, row.expected.link,
        f"{_name(row)} of {units.show_size(row.measured.size_bytes)} takes {row.factor:.2g} of the predicted time",
        f"at least {units.show_time(row.expected.low_s)}", tuple(_line(r) for r in fast[-4:]),
        "the description is wrong, or the traffic did not go where the description says",
        "Check rates in the cluster file, the interface in use, and that ranks are where they are placed.",
        cite("method/bench"), Action.CONFIGURE,
    )  # fmt: skip


def _wrong_data(wrong: list[Judgement]) -> Finding:
    total = sum(row.measured.num_wrong or 0 for row in wrong)
    return Finding(
        "bench.data.wrong", Severity.CRITICAL, _name(wrong[0]), f"{total:,} elements came out wrong", "none",
        tuple(f"{units.show_size(r.measured.size_bytes)}: {r.measured.num_wrong:,} wrong" for r in wrong[:4]),
        "data is damaged on the way or in a reduction: memory, PCIe, driver, or a library that does not fit",
        "Stop using these hosts. Repeat with fewer ranks to find the host, then with another library version.",
        cite("method/bench"), Action.ESCALATE,
    )  # fmt: skip


def priced(found: Sequence[Finding], usd_per_day: float) -> list[Finding]:
    """Return the findings with what the gap costs: it is one gap, so it stands at the first that is about it."""
    first = next((finding for finding in found if finding.rule == "bench.collective.slow"), None)
    return [replace(finding, cost_usd_per_day=usd_per_day) if finding is first else finding for finding in found]
