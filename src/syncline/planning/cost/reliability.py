"""Reliability: how often systems failed and how long hosts then stayed away, as rates for clusters of another size.

    rates = load_reliability()
    rates.rate("llama3-405b").per_gpu_hour
    failure_rate("failures.csv", num_gpus=512)     # a log of one's own

Columns of the table: system, metric, cause, value, unit, num_gpus, days, gpus_per_host, interval_s, source, notes.
Metrics that make rates: `interruptions` (a count over num_gpus and days), `cause` (a part of those, "Network: cable"
say), `host_failures` (per 1000 host-days), `repair` (hours until a host is back, each row as likely as the next),
`link_failures` and `switch_failures` (share a month). Others are kept to be compared with.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from syncline.errors import CostError
from syncline.planning.cost.table import TableRow, read_table, shipped_or

COLUMNS = (
    "system", "metric", "cause", "value", "unit", "num_gpus", "days", "gpus_per_host", "interval_s", "source", "notes",
)  # fmt: skip
RATES = ("interruptions", "cause", "host_failures", "repair", "link_failures", "switch_failures")
LOG_COLUMNS = ("time", "repair_hours")
LEAST_LOGGED = 3
COMPARED = ("planned", "mttf", "mttf_projected", "goodput", "goodput_expected", "flaps", "checkpoint_write")
HOURS_PER_MONTH = 730.5
# Causes that are the network's, whichever group a table puts them in.
NETWORK_CAUSES = ("Network: ", "Host: NIC")
#: Causes that start the job again on the same hosts.
SOFTWARE_CAUSES = ("Dependency: ", "Unknown: ", "Software: ")
#: The system whose repairs are taken where no other is known.
REPAIRS = "infinitehbd"


@dataclass(frozen=True)
class FailureRate:
    """Unplanned interruptions of a job, per GPU and hour, with the counts behind them."""

    system: str
    per_gpu_hour: float
    source: str
    count: float = 0.0
    gpu_hours: float = 0.0
    causes: Mapping[str, float] = field(default_factory=dict)
    """Interruptions by cause, as counted; empty if the system printed none."""
    notes: str = ""
    gpus_per_host: int = 8
    repair_hours: tuple[float, ...] = ()
    """Hours until a host was back, each as likely as the next; empty: not known."""
    is_own: bool = False
    """Whether it was counted on the cluster itself: then the count is all that is uncertain."""

    @property
    def host_share(self) -> float:
        """The part of the interruptions that take a host away until it is repaired; all where causes are not known."""
        if not self.causes:
            return 1.0
        soft = sum(number for cause, number in self.causes.items() if cause.startswith(SOFTWARE_CAUSES))
        return 1 - soft / sum(self.causes.values())

    @property
    def network_share(self) -> float | None:
        """The part of the interruptions that switches, cables and NICs caused; None if it is not known."""
        if not self.causes or self.is_own:
            return None
        network = sum(number for cause, number in self.causes.items() if cause.startswith(NETWORK_CAUSES))
        return network / sum(self.causes.values())

    def on_parts(self, num_gpus: int, num_hosts: int, num_nics: int) -> FailureRate:
        """Return the rate per GPU-hour of a cluster with other numbers of hosts and NICs a GPU.

        GPUs and software fail per GPU, hosts per host, switches, cables and NICs per NIC; the system that was counted
        had one NIC a GPU. Without counted causes, and on the cluster itself, the rate stays what it is.
        """
        if not self.causes or not self.gpu_hours or self.is_own:
            return self
        per_gpu = {"host": num_hosts / num_gpus * self.gpus_per_host, "network": num_nics / num_gpus, "gpu": 1.0}
        known = sum(self.causes.values())
        scale = sum(count * per_gpu[_part(cause)] for cause, count in self.causes.items()) / known
        causes = {cause: count * per_gpu[_part(cause)] for cause, count in self.causes.items()}
        return replace(self, per_gpu_hour=self.per_gpu_hour * scale, causes=causes)

    def mttf_s(self, num_gpus: int) -> float:
        """Return the mean time between interruptions of a job of so many GPUs."""
        if num_gpus < 1:
            raise CostError(f"a job needs at least 1 GPU, got {num_gpus}.")
        return 3600 / (self.per_gpu_hour * num_gpus) if self.per_gpu_hour else float("inf")


def _part(cause: str) -> str:
    """Return what a cause is counted by."""
    if cause.startswith(NETWORK_CAUSES):
        return "network"
    return "host" if cause.startswith(("Host: ", "Unplanned Maintenance: ")) else "gpu"


@dataclass(frozen=True)
class ReliabilityFigure:
    """A published figure that is not a rate, to compare a model with."""

    system: str
    metric: str
    value: float
    num_gpus: int
    interval_s: float
    source: str


@dataclass(frozen=True)
class Reliability:
    """All rates and observations of one table."""

    rates: Mapping[str, FailureRate]
    observations: tuple[ReliabilityFigure, ...]
    link_failures_per_hour: float
    switch_failures_per_hour: float
    source: str

    def rate(self, system: str) -> FailureRate:
        """Return the rate of a system by name, or raise CostError."""
        if system in self.rates:
            return self.rates[system]
        raise CostError(
            f'no failure rate of "{system}" in {self.source}.',
            detail=f"Known: {', '.join(self.rates)}.",
            hint="Add its rows to a table of your own and give it as `reliability`.",
        )


@functools.cache
def load_reliability() -> Reliability:
    """Return the table that ships with syncline."""
    return parse_reliability(*shipped_or(None, "reliability.csv"))


def parse_reliability(text: str, source: str) -> Reliability:
    """Read a table of failures; errors name its line."""
    rows = read_table(text, source, COLUMNS)
    rates: dict[str, FailureRate] = {}
    causes: dict[str, dict[str, float]] = {}
    repairs: dict[str, list[float]] = {}
    observations = []
    fixed = {"link_failures": 0.0, "switch_failures": 0.0}
    for row in rows:
        system, metric, value = row.text("system"), row.text("metric", (*RATES, *COMPARED)), row.number("value")
        if not row.text("source"):
            raise row.error("source is empty.", "A rate without its source is not used.")
        if metric in ("interruptions", "host_failures"):
            if system in rates:
                raise row.error(f'"{system}" already has a rate.', "Keep one, or give the other another name.")
            rates[system] = _rate(row, metric)
        elif metric == "cause":
            causes.setdefault(system, {})[row.text("cause")] = value
        elif metric == "repair":
            repairs.setdefault(system, []).append(value)
        elif metric in fixed:
            fixed[metric] = _share_a_month(row) / HOURS_PER_MONTH
        else:
            observations.append(_observation(row, metric))
    for system, found in causes.items():
        _check_causes(system, found, rates.get(system), source)
        rates[system] = replace(rates[system], causes=found)
    for system, hours in repairs.items():
        if system not in rates:
            raise CostError(f'repairs of "{system}" without its failures.', where=source, hint="Add their row.")
        rates[system] = replace(rates[system], repair_hours=tuple(hours))
    return Reliability(rates, tuple(observations), fixed["link_failures"], fixed["switch_failures"], source)


def failure_rate(named: str, num_gpus: int) -> FailureRate:
    """Return the rate of a published system by name, or that of a CSV of one's own: a log, or a table of one rate."""
    if not named.endswith(".csv"):
        return load_reliability().rate(named)
    text, source = shipped_or(named, named)
    heading = next(iter(text.lstrip("\ufeff").splitlines()), "")
    if "system" in heading:
        rates = parse_reliability(text, source).rates
        if len(rates) != 1:
            names = ", ".join(rates) or "none"
            raise CostError(f"{source} has {len(rates)} failure rates: {names}.", hint="Keep the rows of one system.")
        return next(iter(rates.values()))
    return read_log(text, source, num_gpus)


def read_log(text: str, source: str, num_gpus: int) -> FailureRate:
    """Return the rate that a log of failures of a cluster of so many GPUs comes to.

    Columns: time (a date and time, or days) and repair_hours (empty where no host left); host, part and others may
    stand beside them. The span is that between the first and the last failure.
    """
    rows = read_table(text, source, LOG_COLUMNS)
    days = sorted(_day(row) for row in rows)
    if len(rows) < LEAST_LOGGED or days[-1] == days[0]:
        raise CostError(
            f"{source} has {len(rows)} failures over {days[-1] - days[0]:.3g} days: too few for a rate.",
            hint=f"Log at least {LEAST_LOGGED} at different times, or name a published system.",
        )
    hours = tuple(row.number("repair_hours") for row in rows if row.text("repair_hours"))
    away = len(hours) / len(rows)
    causes = {"Host: in the log": away * (len(rows) - 1), "Software: in the log": (1 - away) * (len(rows) - 1)}
    gpu_hours = num_gpus * (days[-1] - days[0]) * 24
    return FailureRate(
        source, (len(rows) - 1) / gpu_hours, f"{source}: {len(rows)} failures in {days[-1] - days[0]:,.1f} days",
        len(rows) - 1, gpu_hours, {cause: count for cause, count in causes.items() if count}, repair_hours=hours,
        is_own=True,
    )  # fmt: skip


def _day(row: TableRow) -> float:
    """Return the time of a logged failure in days."""
    try:
        at = datetime.fromisoformat(row.text("time"))
    except ValueError:
        return row.number("time")
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() / 86400


def _rate(row: TableRow, metric: str) -> FailureRate:
    value = row.number("value")
    if metric == "host_failures":
        per_host = row.whole("gpus_per_host", low=1)
        return FailureRate(
            row.text("system"), value / 1000 / 24 / per_host, row.text("source"), notes=row.text("notes"),
            gpus_per_host=per_host,
        )  # fmt: skip
    days = row.number("days")
    gpu_hours = row.whole("num_gpus", low=1) * days * 24
    if gpu_hours == 0:
        raise row.error("0 days.", "Say over how many days the interruptions were counted.")
    rate = value / gpu_hours
    per_host = row.whole("gpus_per_host", low=1) if row.text("gpus_per_host") else 8
    return FailureRate(
        row.text("system"), rate, row.text("source"), value, gpu_hours, notes=row.text("notes"), gpus_per_host=per_host
    )


def _share_a_month(row: TableRow) -> float:
    share = row.number("value")
    if share > 1:
        raise row.error(f"value is {share:g}, but it is a share a month.", "Write 0.057 % as 0.00057.")
    return share


def _observation(row: TableRow, metric: str) -> ReliabilityFigure:
    num_gpus = row.whole("num_gpus") if row.text("num_gpus") else 0
    interval = row.number("interval_s") if row.text("interval_s") else 0.0
    return ReliabilityFigure(row.text("system"), metric, row.number("value"), num_gpus, interval, row.text("source"))


def _check_causes(system: str, causes: Mapping[str, float], rate: FailureRate | None, source: str) -> None:
    if rate is None or not rate.count:
        raise CostError(f'causes of "{system}" without its interruptions.', where=source, hint="Add their row.")
    if sum(causes.values()) > rate.count:
        raise CostError(
            f'"{system}" has {rate.count:g} interruptions, but its causes add up to {sum(causes.values()):g}.',
            where=source,
            hint="Causes are parts of the interruptions.",
        )
