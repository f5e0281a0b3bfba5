"""How far off a prediction may be: the factors between which 50 and 90 % of measurements lie, and what that rests on.

    spread = step_spread(StepFacets("dense", "plain", "Hopper", "bf16", 512))
    spread.of(4.6)              # Interval(p50=(4.3, 5.0), p90=(3.7, 6.1), basis="...", ...)
    spread.low_90, spread.high_90

One rule gives every interval. How far errors log(measured / predicted) reach to either side is a product of effects of
what is known of a case: what is predicted, how much is stated, how far it reaches, its size and part, whether anybody
has looked at its source. `data/uncertainty.yaml` holds the effects, fitted to published measurements that the
predicting constants never saw; each is drawn to 1 as if `PRIOR` publications that know no effect had spoken too. An
effect that few publications speak of is less sure, and one that nobody measured as unsure as effects differ: both make
the interval wider (`spread_in`). `research/intervals` makes the table anew from residuals, so it follows the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from statistics import quantiles
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.describe.own_data import own_data

Floats = npt.NDArray[np.float64]
Facets = Mapping[str, str | Mapping[str, float]]

#: As how many publications without any effect each effect is drawn to none.
PRIOR = 10.0
#: How many times as wide, in log units, an interval is where what it is made of was judged and not measured.
JUDGED = 1.5
#: Standard deviations that hold half and nine tenths of a normal distribution, and those past which all of it lies.
Z_50, Z_90, CERTAIN = 0.6745, 1.6449, 9.0
#: The part and the most ranks that previews were measured on.
PREVIEWED, PREVIEWED_RANKS = "Hopper", 128
#: What is known of a case, and which two of it have an effect together.
FACETS: Mapping[str, tuple[str, ...]] = {
    "step": ("kind", "stated", "source", "generation", "precision", "scale", "shared"),
    "collective": ("stated", "reach", "size", "op", "generation"),
    "memory": ("framework",),
    "serve": ("what", "start", "kind", "engine"),
    "price": (),
}
PAIRS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "collective": (("stated", "reach"), ("op", "reach"), ("size", "reach")),
}
#: Sizes of collectives that have an effect of their own; another size has a share of those of the two next to it.
ANCHORS: Mapping[str, float] = {"XS": 2.0**7, "S": 2.0**15, "M": 2.0**23, "L": 2.0**31}
_WORDS = {
    "dense": "dense models", "experts": "models with experts", "layers": "models that are lists of layers",
    "plain": "jobs that do not state their software", "software": "jobs that state framework and year",
    "described": "jobs that state software, kernels and overlap", "guessed": "rows that leave layout or precision open",
    "calibrated": "calibrated by a measurement", "plainly": "uncalibrated", "job": "jobs measured at another size",
    "model": "models measured in another split", "system": "systems measured with another model",
    "one": "one scale-up domain", "cards": "cards without NVLink",
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


@dataclass(frozen=True)
class StepFacets:
    """What is known of a step that decides how far off its prediction may be."""

    kind: str  # dense, experts, layers
    stated: str  # guessed, plain, software, described, calibrated
    generation: str  # architecture of the part; "assumed rates" where nobody measured what it sustains
    precision: str
    num_gpus: int
    shared: str = ""  # job, model, system: what a calibrated step has in common with the measured one

    def as_dict(self) -> dict[str, str]:
        """Return the facets as the table has them."""
        width = {"fp8": "8", "fp4": "4", "fp32": "32", "tf32": "32"}.get(self.precision, "16")
        scale = "small" if self.num_gpus <= 64 else "middle" if self.num_gpus <= 1024 else "large"
        return {"kind": self.kind, "stated": self.stated, "generation": self.generation, "precision": width,
                "scale": scale, "source": "known" if self.stated == "calibrated" else "new",
                **({"shared": self.shared} if self.shared else {})}  # fmt: skip


#: Architectures whose sustained rates are guesses, by `sim/data/gpu_sustained.yaml`.
MEASURED_PARTS = ("Volta", "Ampere", "Hopper", "Blackwell")
ASSUMED = "assumed rates"


def generation_of(architecture: str, vendor: str) -> str:
    """Return the generation of a part as the table has it: parts whose rates are guesses are one group."""
    plain = architecture.removesuffix(" Ultra")
    return plain if vendor == "nvidia" and plain in MEASURED_PARTS else ASSUMED


def how_known(calibrated: bool) -> str:
    """Return how the time of a collective is known; how fully its system is described was found to change nothing."""
    return "calibrated" if calibrated else "plainly"


@lru_cache(1024)
def step_spread(facets: StepFacets) -> Spread:
    """Return how far off the time of a step may be."""
    return _spread_of("step", facets.as_dict(), facets.num_gpus)


@lru_cache(4096)
def collective_spread(
    calibrated: bool, reach: str, op: str, generation: str, num_hosts: int, size_bytes: float
) -> Spread:
    """Return how far off the time of one collective may be."""
    facets: Facets = {"stated": how_known(calibrated), "reach": reach, "op": op, "generation": generation,
              "size": size_shares(size_bytes)}  # fmt: skip
    return _spread_of("collective", facets, num_hosts)


def size_shares(size_bytes: float) -> dict[str, float]:
    """Return the anchors around a size and its share of each, in the logarithm of the size.

    >>> size_shares(2.0**19), size_shares(2.0**40)
    ({'S': 0.5, 'M': 0.5}, {'L': 1.0})
    """
    names, at = list(ANCHORS), np.log2(list(ANCHORS.values()))
    place = float(np.interp(math.log2(max(size_bytes, 1.0)), at, range(len(names))))
    below, share = int(place), place % 1
    return {names[below]: 1 - share} | ({names[below + 1]: share} if share else {})


def memory_spread(framework: str) -> Spread:
    """Return how far off the memory of the fullest GPU may be."""
    return _spread_of("memory", {"framework": framework})


def serve_spread(what: str, kind: str, engine: str, tuned: bool) -> Spread:
    """Return how far off the tokens a second ("rate") or the time of a token ("token") may be.

    Of engines at their defaults only rates were published: times are as far off the other way.
    """
    facets = {"what": what if tuned else "rate", "start": "tuned" if tuned else "default", "kind": kind}
    facets |= {"engine": engine} if engine != "any" else {}
    found = _spread_of("serve", facets)
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
        found = found.wider(JUDGED, f"no preview was ever measured on {where}")
    if num_ranks > PREVIEWED_RANKS:
        found = found.wider(
            math.exp(math.log2(num_ranks / PREVIEWED_RANKS) / PRIOR),
            f"no preview was measured on more than {PREVIEWED_RANKS} ranks",
        )
    return found


def _spread_of(subject: str, facets: Facets, size: int = 1) -> Spread:
    return spread_in(own_data("sim", "data/uncertainty.yaml")[subject], subject, facets, size)


def effects_of(subject: str, facets: Facets) -> dict[tuple[str, ...], float]:
    """Return the effects on a case's interval by what of it they are of, each with the case's share of it."""
    shares = {name: {of: 1.0} if isinstance(of, str) else of for name in FACETS[subject] if (of := facets.get(name))}
    found: dict[tuple[str, ...], float] = {(): 1.0}
    found |= {(name, value): share for name, values in shares.items() for value, share in values.items()}
    for left, right in PAIRS.get(subject, ()):
        for (one, a), (other, b) in product(shares.get(left, {}).items(), shares.get(right, {}).items()):
            found[left, one, right, other] = a * b
    return found


def spread_in(table: Mapping[str, Any], subject: str, facets: Facets, size: int) -> Spread:
    """Return the spread of a case by a table of effects.

    Either side is exp(sum of effects + their variance) long, in units of the `standard` quantiles. Each doubling past
    the largest measured case is one more effect that nobody measured. The basis counts rows of the rarest effect.
    """
    known, low, high, doubt = table["effects"], 0.0, 0.0, 0.0
    rarest: tuple[tuple[str, ...], Mapping[str, Any]] = ((), known[""])
    unmeasured: list[str] = []
    for effect, share in effects_of(subject, facets).items():
        row = known.get("|".join(effect))
        if row is not None:
            low, high = low + share * row["log"][0], high + share * row["log"][1]
            rarest = min(rarest, (effect, row), key=lambda of: int(of[1]["sources"]))
        elif len(effect) == 2:
            unmeasured.append(f"no {_NOUNS[effect[0]]} {words(effect[1])} was ever measured")
        elif all("|".join(half) in known for half in (effect[:2], effect[2:])):
            unmeasured.append(f"{words(effect[1])} on {words(effect[3])} was never measured")
        doubt += share**2 / (PRIOR + (0 if row is None else row["sources"]))
    most = float(table["largest"])
    if size > most > 0:
        doubt += math.log2(size / most) / PRIOR
        unmeasured.append(f"nothing larger than {most:,.0f} {'GPUs' if subject == 'step' else 'hosts'} was measured")
    if facets.get("generation") == ASSUMED:
        unmeasured.append("what this part sustains is assumed")
    below, above = math.exp(low + doubt), math.exp(high + doubt)
    low_90, low_50, high_50, high_90 = (math.exp(at * (below if at < 0 else above)) for at in table["standard"])
    of_what = ", ".join(words(part) for part in rarest[0][1::2]) or _ALL[subject]
    return Spread(
        low_90, low_50, high_50, high_90, int(rarest[1]["rows"]), int(rarest[1]["sources"]), of_what,
        tuple(unmeasured), _COUNTED[subject],
    )  # fmt: skip


_COUNTED = {
    "step": "{rows:,} runs of {sources} publications, none used in the fit",
    "collective": "{rows:,} rows of {sources} systems, none used in the fit",
    "memory": "{rows:,} measured peaks in {sources} tables",
    "serve": "{rows:,} published settings of {sources} models on a part",
    "price": "{rows:,} list prices of {sources} sellers",
}  # fmt: skip
_ALL = {"step": "all steps", "collective": "all collectives", "memory": "peak memory",
        "serve": "serving engines",
        "price": "list prices of a GPU-hour against the median of their sellers"}  # fmt: skip
_NOUNS = {"kind": "run of", "stated": "run of", "source": "run of a source that is",
          "generation": "run on", "precision": "run in", "scale": "run on", "shared": "run of", "what": "run for its",
          "start": "run of", "engine": "run of",
          "reach": "row of", "size": "row of", "op": "row of", "framework": "peak memory of"}  # fmt: skip


def words(value: str) -> str:
    """Return a value of a facet in words."""
    return _WORDS.get(value, value)
