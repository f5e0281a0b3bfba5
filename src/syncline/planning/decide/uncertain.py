"""What is not known exactly: each input with the range that holds eight of ten cases, and how the answer moves with it.

Inputs are taken to be independent. A range is a log-normal on either side of its value, so that a value at one end of
its range moves one way only. Where the middle half of cases is known too, as for the step model, draws follow both: a
few published runs that took ten times as long say little about the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from syncline.planning.cost.assumptions import Assumptions, listed
from syncline.planning.cost.checkpoint import Values
from syncline.planning.cost.owning import Owning
from syncline.planning.cost.recovery import Recovery
from syncline.planning.cost.reliability import FailureRate, load_reliability
from syncline.planning.money import Money
from syncline.planning.plan import PlanPrediction
from syncline.sim.uncertainty import Z_50, Z_90

#: A range holds 80 % of cases: 1.2816 standard deviations to either side.
Z80 = 1.2816
#: List prices of rented GPUs move: AWS p5 went from 98.32 to 55.04 $ an hour between two versions of one catalogue.
RENT = (0.8, 1.1)
#: What a host is bought for against the catalogue's price.
HOST_PRICE = (0.85, 1.15)
#: How long hosts stay away elsewhere, against the one system that published it.
REPAIR = (0.2, 1.5)
TITLES = {
    "years": "years the cluster is kept", "utilisation": "hours in which the GPUs do paid work",
    "financing_rate": "interest on the capital", "resale": "resale value", "power_usd_per_kWh": "power price",
    "pue": "power of the hall over power of the hosts", "facility_usd_per_kW": "building, power feeds and cooling",
    "hosts_per_fte": "hosts a person looks after", "maintenance_rate": "maintenance",
    "detect_s": "time until a failure is noticed", "restart_s": "time to replace a host and start again",
}  # fmt: skip


@dataclass(frozen=True)
class Uncertain:
    """One input: its value, its range, and the factor by which the range's ends move what it acts on."""

    name: str
    words: str
    acts_on: str  # "step", "failures", "restart", "repair" or "price"
    low: float
    value: float
    high: float
    unit: str
    source: str
    low_factor: float
    high_factor: float
    middle: tuple[float, float] | None = None  # the factors between which half of the cases lie

    def factor(self, z: Values | float) -> Values:
        """Return the factor at so many standard deviations of the input."""
        inner = [(0.0, 1.0)] if self.middle is None else [(-Z_50, self.middle[0]), (Z_50, self.middle[1])]
        points = [(-Z80, self.low_factor), *inner, (Z80, self.high_factor)]
        return np.exp(_along(np.asarray(z, np.float64), [at for at, _ in points], [math.log(f) for _, f in points]))


def _along(z: Values, at: list[float], values: list[float]) -> Values:
    """Return the line through some points, straight on past its ends."""
    first, last = ((values[k + 1] - values[k]) / (at[k + 1] - at[k]) for k in (0, -2))
    below, above = np.minimum(z - at[0], 0.0), np.maximum(z - at[-1], 0.0)
    result: Values = np.interp(z, at, values) + first * below + last * above
    return result


def inputs_of(money: Money, predicted: PlanPrediction | None, found: Recovery) -> tuple[Uncertain, ...]:
    """Return everything uncertain about a run: the step model, failures, repairs, restarts, the price of an hour.

    A step that is stated, not predicted, is taken as it is.
    """
    steps = [] if predicted is None else [_step(predicted)]
    waits = [] if found.parts.spares is None else [_repair(found)]
    restarts = [_restart(money.assumptions, found, name) for name in ("detect_s", "restart_s")]
    return (*steps, _failures(money.assumptions, found.rate), *waits, *restarts, *prices_of(money))


def _step(predicted: PlanPrediction) -> Uncertain:
    """Return the step model's own error: where nine of ten published runs of its kind lie."""
    found, second = predicted.interval, predicted.step_time_s
    middle = found.p50[0] / second, found.p50[1] / second
    part = (Z80 - Z_50) / (Z_90 - Z_50)  # of the way from the ends of the half to those of nine tenths
    low, high = (half * (end / second / half) ** part for half, end in zip(middle, found.p90, strict=True))
    source = f"50 and 90 % intervals from {found.basis}"
    return Uncertain("step_time", "predicted step time", "step", low, 1.0, high, "x", source, low, high, middle)


def _failures(a: Assumptions, used: FailureRate) -> Uncertain:
    """Return the failure rate with the spread between published systems, or that of a count of one's own."""
    rates = load_reliability().rates
    if used.is_own:
        spread, source = math.exp(Z80 / math.sqrt(used.count)), f"{used.source}; range: of so many failures"
    else:
        spread = math.exp(Z80 * float(np.std([math.log(rate.per_gpu_hour) for rate in rates.values()], ddof=1)))
        source = f"{a.reliability}; range: the spread between {', '.join(rates)}"
    rate = used.per_gpu_hour
    return Uncertain(
        "failure_rate", "failures per GPU-hour", "failures", rate / spread, rate, rate * spread, "/h", source,
        1 / spread, spread,
    )  # fmt: skip


def _repair(found: Recovery) -> Uncertain:
    """Return how long a host is away: taken as exact where the cluster or the log says so."""
    hours = found.standby.repair_s / 3600
    known = found.parts.repair_s is not None or found.rate.is_own
    low, high = (1.0, 1.0) if known else REPAIR
    source = found.repair_source + ("" if known else "; range assumed")
    return Uncertain("repair", "time until a failed host is back", "repair", low * hours, hours, high * hours, "h",
                     source, low, high)  # fmt: skip


def _restart(a: Assumptions, found: Recovery, name: str) -> Uncertain:
    """Return one part of the time from a failure to the start, as a factor on all of it."""
    low, high, source = _range(a, name)
    value, whole = float(getattr(a, name)), max(found.begin_s, 1e-3)
    least, most = (max(1 + (end - value) / whole, 1e-3) for end in (low, high))
    return Uncertain(name, TITLES[name], "restart", low, value, high, "s", source, least, most)


def _range(a: Assumptions, name: str) -> tuple[float, float, str]:
    """Return the range of an assumption, widened to hold the value that is used; a value that was set is exact."""
    extra: Mapping[str, object] = Assumptions.model_fields[name].json_schema_extra  # type: ignore[assignment]
    value = float(getattr(a, name))
    if name in a.model_fields_set or not extra.get("range"):
        return value, value, "given"
    ends = [float(end) for end in extra["range"]]  # type: ignore[attr-defined]
    return min(*ends, value), max(*ends, value), str(extra["source"])


def prices_of(money: Money) -> list[Uncertain]:
    """Return what is uncertain about the price of a GPU-hour, owned or rented."""
    rate = money.usd_per_gpu_hour
    if not money.owned:
        words = money.basis.removeprefix("rented: ")
        if money.fixed:
            table = "" if money.assumptions.gpu_hour_usd else f"{money.account.prices_source}: "
            source = f"{table}given, taken as fixed"
            return [Uncertain("rent", f"rent, {words}", "price", rate, rate, rate, "$/GPU-hour", source, 1.0, 1.0)]
        low, high = RENT
        source = f"{money.account.prices_source}; range assumed: list prices move, and large customers pay less"
        ends = (low * rate, rate, high * rate)
        return [Uncertain("rent", f"list price of {words}", "price", *ends, "$/GPU-hour", source, low, high)]
    return owned_prices(money.account.owned)


def owned_prices(owned: Owning) -> list[Uncertain]:
    """Return what is uncertain about the price of an owned GPU-hour: the assumptions that move it, and the hosts."""
    rate, found = owned.usd_per_gpu_hour, list[Uncertain]()
    for row in listed(owned.assumptions, {}):
        if row.name not in TITLES or row.name in ("detect_s", "restart_s") or not isinstance(row.value, float):
            continue
        low, high, source = _range(owned.assumptions, row.name)
        ends = [_price(owned, row.name, end) / rate for end in (low, high)]
        if max(abs(math.log(end)) for end in ends) < 1e-4:
            continue
        found.append(
            Uncertain(row.name, TITLES[row.name], "price", low, row.value, high, row.unit, source, ends[0], ends[1])
        )
    low, high = HOST_PRICE
    ends = [replace(owned, hosts_usd=owned.hosts_usd * f).usd_per_gpu_hour / rate for f in HOST_PRICE]
    host = owned.hosts_usd / owned.num_hosts
    found.append(
        Uncertain("host_price", "price of a host", "price", low * host, host, high * host, "$", "the parts catalogue; "
                  "range assumed", ends[0], ends[1])
    )  # fmt: skip
    return found


def _price(owned: Owning, name: str, value: float) -> float:
    changed = owned.assumptions.model_copy(update={name: value})
    return replace(owned, assumptions=changed).usd_per_gpu_hour
