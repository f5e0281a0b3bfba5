"""How far off a prediction may be: the factors between which 50 and 90 % of measurements lie, and what that rests on.

    spread = step_spread(StepFacets("dense", "plain", "Hopper", "bf16", 512))
    spread.of(4.6)              # Interval(p50=(4.3, 5.0), p90=(3.7, 6.1), basis="...", ...)
    spread.low_90, spread.high_90

`data/uncertainty.yaml` holds quantiles of log(measured / predicted) of published measurements that the predicting
constants never saw, by what is known of a case. `research/intervals` makes it anew from residuals, so
it follows the model. A case is looked up by all its facets; while fewer than three publications were measured, the last
facet is dropped. A facet that nobody ever measured makes the interval wider, and says so. Sources that were looked over
err less than those that were not: those of the last blind sets count as they were first scored, and a new source's own
error (`new_source`) is added to each end until nine of ten rows of blind sets lie inside what was known before them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import quantiles
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.describe.own_data import own_data

Floats = npt.NDArray[np.float64]

#: How much wider, in log units, an interval is for each facet that nobody measured.
UNMEASURED = 1.5
#: And for each doubling of hosts or GPUs past the largest job that was.
DOUBLING = 0.15
#: Standard deviations that hold half and nine tenths of a normal distribution, and those past which all of it lies.
Z_50, Z_90, CERTAIN = 0.6745, 1.6449, 9.0
#: The part and the most ranks that previews were measured on.
PREVIEWED, PREVIEWED_RANKS = "Hopper", 128
ORDERS: Mapping[str, tuple[str, ...]] = {
    "step": ("kind", "stated", "generation", "precision", "scale"),
    "collective": ("stated", "reach", "band", "op", "generation"),
    "memory": ("framework",),
    "serve": ("what", "start", "kind", "engine"),
    "price": (),
}
#: The size in the middle of each band of collectives: an interval passes from one band's to the next between them, in
#: the logarithm of the size, so that no size is half as sure as its neighbour.
ANCHORS: Mapping[str, float] = {"XS": 2.0**7, "S": 2.0**15, "M": 2.0**23, "L": 2.0**31}
#: Facets that are asked for together: both may have been measured, and never on one run.
PAIRS: Mapping[str, tuple[str, str]] = {"step": ("kind", "generation"), "collective": ("op", "reach")}
_WORDS = {
    "dense": "dense models", "experts": "models with experts", "layers": "models that are lists of layers",
    "plain": "jobs that do not state their software", "software": "jobs that state framework and year",
    "described": "jobs that state software, kernels and overlap", "guessed": "rows that leave layout or precision open",
    "calibrated": "calibrated by a measurement", "one": "one scale-up domain", "cards": "cards without NVLink",
    "few": "up to 64 hosts", "sockets": "up to 64 hosts over TCP",
    "many": "more than 64 hosts", "XS": "up to 4 KiB", "S": "up to 256 KiB", "M": "below 256 MiB",
    "L": "from 256 MiB", "16": "16-bit", "8": "8-bit", "4": "4-bit", "32": "32-bit",
    "rate": "tokens a second", "token": "time of a token",
    "tuned": "tuned engines", "default": "engines at their defaults",
    "vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM",
    "small": "up to 64 GPUs", "middle": "65 to 1,024 GPUs", "large": "more than 1,024 GPUs",
}  # fmt: skip


def chance_between(ends: Sequence[Floats | float], limit: Floats | float) -> Floats:
    """Return how likely values with these 5, 25, 75 and 95 % quantiles are at most `limit`, in columns."""
    at = np.asarray(limit, np.float64)
    first, second, third, fourth = (np.asarray(end, np.float64) for end in ends)

    def along(low: Floats, high: Floats, z_low: float, z_high: float) -> Floats:
        """Standard deviations at the limit on the line through two quantiles; past an interval of no width: a step."""
        width = high - low
        inside = z_low + (at - low) / np.where(width > 0, width, 1.0) * (z_high - z_low)
        return np.where(width > 0, inside, np.where(at >= high, CERTAIN, -CERTAIN))

    below, above = along(first, second, -Z_90, -Z_50), along(third, fourth, Z_50, Z_90)
    z = np.where(at < second, below, np.where(at > third, above, along(second, third, -Z_50, Z_50)))
    # Where the lower ends meet at a bound, nothing lies below it.
    z = np.where((at < first) & (first == second), -CERTAIN, z)
    return np.asarray(0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2))), np.float64)


@dataclass(frozen=True)
class Narrowing:
    """The measurement that would narrow an interval most."""

    measure: str
    command: str
    width: float
    """The high end of the 90 % interval over its low end afterwards."""


@dataclass(frozen=True)
class Interval:
    """Between which values half and nine tenths of measurements lie, and what that rests on."""

    p50: tuple[float, float]
    p90: tuple[float, float]
    basis: str
    measurements: int | None = None
    """How many; None where the interval is drawn from others."""
    publications: int | None = None
    unmeasured: tuple[str, ...] = ()
    """What of this case was never measured, each of which makes the interval wider."""
    narrower: Narrowing | None = None
    """What to measure; None: nothing is known that would narrow it."""

    def scaled(self, factor: float) -> Interval:
        """Return the interval of a multiple of the value."""
        half, most = ((low * factor, high * factor) for low, high in (self.p50, self.p90))
        return replace(self, p50=half, p90=most)

    def above(self, bound: float) -> Interval:
        """Return the interval without what lies below a bound that nothing can beat.

        >>> Interval((0.8, 1.1), (0.5, 2.0), "").above(0.9).p90
        (0.9, 2.0)
        """
        half, most = ((max(low, bound), max(high, bound)) for low, high in (self.p50, self.p90))
        return replace(self, p50=half, p90=most)

    def chance_below(self, limit: float) -> float:
        """Return how likely the value is at most `limit`: normal between the ends, in straight lines from end to end.

        >>> [round(Interval((8.0, 12.0), (6.0, 16.0), "").chance_below(x), 2) for x in (6.0, 10.0, 12.0, 16.0, 40.0)]
        [0.05, 0.5, 0.75, 0.95, 1.0]
        """
        return float(chance_between((self.p90[0], *self.p50, self.p90[1]), limit))


@dataclass(frozen=True)
class Spread:
    """Factors on a prediction that hold 50 and 90 % of measurements, and on what they rest."""

    low_90: float
    low_50: float
    high_50: float
    high_90: float
    num_rows: int
    num_sources: int
    of_what: str
    unmeasured: tuple[str, ...] = ()
    counted: str = "{rows:,} measurements of {sources} publications"

    @property
    def basis(self) -> str:
        """What was measured, in words."""
        rows = self.counted.format(rows=self.num_rows, sources=self.num_sources)
        wider = f"; wider because {' and '.join(self.unmeasured)}" if self.unmeasured else ""
        return f"{rows} ({self.of_what}){wider}"

    def of(self, value: float) -> Interval:
        """Return the intervals of a predicted value."""
        return Interval(
            (value * self.low_50, value * self.high_50), (value * self.low_90, value * self.high_90), self.basis,
            self.num_rows, self.num_sources, self.unmeasured,
        )  # fmt: skip

    def inverse(self) -> Spread:
        """Return the spread of one over the value."""
        low_90, low_50, high_50, high_90 = (1 / end for end in (self.high_90, self.high_50, self.low_50, self.low_90))
        return replace(self, low_90=low_90, low_50=low_50, high_50=high_50, high_90=high_90)

    def wider(self, factor: float, why: str = "") -> Spread:
        """Return the spread `factor` times as wide in log units."""
        logs = (factor * math.log(x) for x in (self.low_90, self.low_50, self.high_50, self.high_90))
        low_90, low_50, high_50, high_90 = map(math.exp, logs)
        reasons = (*self.unmeasured, why) if why else self.unmeasured
        return replace(self, low_90=low_90, low_50=low_50, high_50=high_50, high_90=high_90, unmeasured=reasons)

    def joined(self, error: float) -> Spread:
        """Return the spread with an independent error, of which nine in ten lie within `error` in log units.

        >>> round(Spread(0.8, 0.9, 1.1, 1.3, 9, 3, "").joined(0.3).high_90, 3)
        1.49
        """
        inner = error * Z_50 / Z_90
        low_90, high_90 = (math.hypot(math.log(end), error) for end in (self.low_90, self.high_90))
        low_50, high_50 = (math.hypot(math.log(end), inner) for end in (self.low_50, self.high_50))
        return replace(self, low_90=math.exp(-low_90), low_50=math.exp(-low_50), high_50=math.exp(high_50),
                       high_90=math.exp(high_90))  # fmt: skip

    def longer_of(self, other: Spread, own: float, others: float) -> Spread:
        """Return the spread of the longer of two things that go on at once, this one's value and another's.

        >>> low, high = Spread(0.9, 1, 1, 1.2, 9, 3, ""), Spread(0.5, 1, 1, 2.0, 9, 3, "")
        >>> [low.longer_of(high, 10.0, host).high_90 for host in (4.0, 8.0, 20.0)]
        [1.2, 1.6, 2.0]
        """
        names, whole = ("low_90", "low_50", "high_50", "high_90"), max(own, others)
        ends = (
            {end: max(getattr(self, end) * own, getattr(other, end) * others) / whole for end in names} if whole else {}
        )
        return replace(self, **ends)

    def wider_inside(self, factor: float, why: str) -> Spread:
        """Return the spread whose inner half is `factor` times as wide in log units, within the outer ends."""
        low_50 = max(self.low_50**factor, self.low_90)
        high_50 = min(self.high_50**factor, self.high_90)
        return replace(self, low_50=low_50, high_50=high_50, unmeasured=(*self.unmeasured, why))


@dataclass(frozen=True)
class StepFacets:
    """What is known of a step that decides how far off its prediction may be."""

    kind: str  # dense, experts, layers
    stated: str  # guessed, plain, software, described, calibrated
    generation: str  # architecture of the part; "assumed rates" where nobody measured what it sustains
    precision: str
    num_gpus: int

    def as_dict(self) -> dict[str, str]:
        """Return the facets as the table has them."""
        width = {"fp8": "8", "fp4": "4", "fp32": "32", "tf32": "32"}.get(self.precision, "16")
        scale = "small" if self.num_gpus <= 64 else "middle" if self.num_gpus <= 1024 else "large"
        return {"kind": self.kind, "stated": self.stated, "generation": self.generation, "precision": width,
                "scale": scale}  # fmt: skip


#: Architectures whose sustained rates are guesses, by `sim/data/gpu_sustained.yaml`.
MEASURED_PARTS = ("Volta", "Ampere", "Hopper", "Blackwell")
ASSUMED = "assumed rates"


def generation_of(architecture: str, vendor: str) -> str:
    """Return the generation of a part as the table has it: parts whose rates are guesses are one group."""
    plain = architecture.removesuffix(" Ultra")
    return plain if vendor == "nvidia" and plain in MEASURED_PARTS else ASSUMED


def step_spread(facets: StepFacets) -> Spread:
    """Return how far off the time of a step may be."""
    return spread_in(own_data("sim", "data/uncertainty.yaml")["step"], "step", facets.as_dict(), facets.num_gpus)


def collective_spread(stated: str, reach: str, band: str, op: str, generation: str, num_hosts: int) -> Spread:
    """Return how far off the time of one collective may be."""
    facets = {"stated": stated, "reach": reach, "band": band, "op": op, "generation": generation}
    return spread_in(own_data("sim", "data/uncertainty.yaml")["collective"], "collective", facets, num_hosts)


def between_bands(by_band: Mapping[str, Spread], size_bytes: float) -> Spread:
    """Return the spread at a size: between those of the two bands whose middles lie around it.

    >>> ends = {band: Spread(1 / w, 1, 1, w, 9, 3, "") for band, w in zip(ANCHORS, (2, 2, 4, 2), strict=True)}
    >>> [round(between_bands(ends, 2.0**power).high_90, 2) for power in (3, 15, 19, 23, 27, 31, 40)]
    [2, 2.0, 2.83, 4.0, 2.83, 2, 2]
    """
    names, place = list(ANCHORS), math.log2(max(size_bytes, 1.0))
    middles = [math.log2(ANCHORS[name]) for name in names]
    above = next((number for number, middle in enumerate(middles) if middle > place), len(names))
    if above in (0, len(names)):
        return by_band[names[min(above, len(names) - 1)]]
    low, high = by_band[names[above - 1]], by_band[names[above]]
    share = (place - middles[above - 1]) / (middles[above] - middles[above - 1])
    near = high if share > 0.5 else low
    names_of_ends = ("low_90", "low_50", "high_50", "high_90")
    ends = {end: getattr(low, end) ** (1 - share) * getattr(high, end) ** share for end in names_of_ends}
    return replace(near, **ends)


def memory_spread(framework: str) -> Spread:
    """Return how far off the memory of the fullest GPU may be."""
    return spread_in(own_data("sim", "data/uncertainty.yaml")["memory"], "memory", {"framework": framework}, 1)


def serve_spread(what: str, kind: str, engine: str, tuned: bool) -> Spread:
    """Return how far off the tokens a second ("rate") or the time of a token ("token") may be.

    Of engines at their defaults only rates were published: times are as far off the other way.
    """
    facets = {"what": what if tuned else "rate", "start": "tuned" if tuned else "default", "kind": kind}
    facets |= {"engine": engine} if engine != "any" else {}
    found = spread_in(own_data("sim", "data/uncertainty.yaml")["serve"], "serve", facets, 1)
    return found if tuned or what == "rate" else found.inverse()


def preview_spread(generation: str, num_ranks: int, kernels: str = "products") -> Spread:
    """Return how far off the kernels of a previewed step may be: as those of scripts that were then measured.

    `kernels` is what takes the time: convolutions have many more kernels than products, and new ones more surprises; or
    it is the `host`, which launches them.
    """
    scored = own_data("sim", "data/previews.yaml")["previews"]
    alike = [
        each for each in scored if kernels == (each["kernels"] if each["decides"] == "kernels" else each["decides"])
    ]
    logs = [-math.log1p(each["off_percent"] / 100) for each in alike]
    outer, middle = quantiles(logs, n=20, method="exclusive"), quantiles(logs, n=4, method="exclusive")
    ends = (min(outer[0], 0.0), min(middle[0], 0.0), max(middle[2], 0.0), max(outer[-1], 0.0))
    low_90, low_50, high_50, high_90 = map(math.exp, ends)
    found = Spread(low_90, low_50, high_50, high_90, len(logs), len(logs), f"of {kernels}, on an H200",
                   counted="{rows} previewed steps of {sources} scripts that were then measured")  # fmt: skip
    if generation != PREVIEWED:
        where = "such a part, and what it sustains is assumed" if generation == ASSUMED else generation
        found = found.wider(UNMEASURED, f"no preview was ever measured on {where}")
    if num_ranks > PREVIEWED_RANKS:
        factor = 1 + DOUBLING * math.log2(num_ranks / PREVIEWED_RANKS)
        found = found.wider(factor, f"no preview was measured on more than {PREVIEWED_RANKS} ranks")
    return found


def spread_in(table: Mapping[str, Any], subject: str, facets: Mapping[str, str], size: int) -> Spread:
    """Return the spread of the most specific group of a table that enough publications measured."""
    order = ORDERS[subject]
    wanted = [facets[name] for name in order if name in facets]  # what comes last may be unsaid
    key, cell = _found(table["cells"], wanted)
    of_what = ", ".join(_SYSTEMS.get(part, words(part)) if subject == "collective" else words(part) for part in key)
    of_what = of_what or _ALL[subject]
    low_90, low_50, high_50, high_90 = (math.exp(float(x)) for x in cell["log"])
    found = Spread(low_90, low_50, high_50, high_90, int(cell["rows"]), int(cell["sources"]), of_what,
                   counted=_COUNTED[subject])  # fmt: skip
    for name, value in zip(order, wanted, strict=False):
        if value not in table["measured"].get(name, ()):
            found = found.wider(UNMEASURED, f"no {_NOUNS[name]} {words(value)} was ever measured")
    if subject in PAIRS and not found.unmeasured:
        pair = [facets[name] for name in PAIRS[subject]]
        if "|".join(pair) not in table["measured_pairs"]:
            found = found.wider(UNMEASURED, f"{words(pair[0])} on {words(pair[1])} was never measured")
    most = float(table["largest"])
    if size > most > 0:
        why = f"nothing larger than {most:,.0f} {'GPUs' if subject == 'step' else 'hosts'} was measured"
        factor = 1 + DOUBLING * math.log2(size / most)
        scale = facets.get("reach", facets.get("scale"))
        known = scale is None or any(scale in table["measured"].get(name, ()) for name in ("reach", "scale"))
        # A scale of which nothing was measured has widened it already: what is common moves on, the tails do not.
        found = found.wider(factor, why) if known else found.wider_inside(factor, why)
    found = found.joined(float(table.get("new_source", {}).get(unseen_group(subject, facets), 0.0)))
    if facets.get("generation") == ASSUMED:
        found = replace(found, unmeasured=(*found.unmeasured, "what this part sustains is assumed"))
    return found


def unseen_group(subject: str, facets: Mapping[str, str]) -> str:
    """Return the group that says what new sources were off by; "" where none was ever scored before it was looked at.

    A measured run is no new source. No system with a cluster file was: they were all known by their label.
    """
    if subject == "step":
        return "" if facets["stated"] == "calibrated" else "experts" if facets["kind"] == "experts" else "dense"
    if subject == "collective" and facets["stated"] not in ("calibrated", "described"):
        return "few" if facets["reach"] == "many" else facets["reach"]
    return ""


_COUNTED = {
    "step": "{rows:,} runs of {sources} publications, none used in the fit",
    "collective": "{rows:,} rows of {sources} systems, none used in the fit",
    "memory": "{rows:,} measured peaks in {sources} tables",
    "serve": "{rows:,} published settings of {sources} models on a part",
    "price": "{rows:,} list prices of {sources} sellers",
}  # fmt: skip
_SYSTEMS = {"described": "systems described in full", "guessed": "systems known by their label"}
_ALL = {"step": "all steps", "collective": "all collectives", "memory": "peak memory",
        "serve": "serving engines",
        "price": "list prices of a GPU-hour against the median of their sellers"}  # fmt: skip
_NOUNS = {"kind": "run of", "stated": "run of", "generation": "run on", "precision": "run in", "scale": "run on",
          "what": "run for its", "start": "run of", "engine": "run of",
          "reach": "row of", "band": "row of", "op": "row of", "framework": "peak memory of"}  # fmt: skip


def words(value: str) -> str:
    """Return a value of a facet in words."""
    return _WORDS.get(value, value)


def _found(cells: Mapping[str, Any], wanted: Sequence[str]) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    for length in range(len(wanted), -1, -1):
        key = "|".join(wanted[:length])
        if key in cells:
            return tuple(wanted[:length]), cells[key]
    raise KeyError("uncertainty.yaml has no cell for everything; run `python -m research.intervals.tables --write`")
