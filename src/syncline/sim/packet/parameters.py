"""Named parameter sets of transports: numbers with their source, scaled to a network's rate and round trip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

from syncline._native.packet import Profile
from syncline.describe import units
from syncline.describe.own_data import own_data
from syncline.errors import SimulationError

KINDS = ("line", "dcqcn", "dctcp", "swift", "hpcc", "timely", "cubic", "pull", "spray", "slotted", "custom")
RECOVERIES = ("go-back-n", "selective")
SPREADS = ("flow", "flowlet", "packet", "recycle")
Setting = str | float | bool
"""A number of a set as a person writes it: `4us`, `100Gbps`, `0.5`."""
_PS = 1e12
_OURS = {
    "about", "source", "kind", "recovery", "spread", "lossless", "credits", "marks", "trims", "trim_tail",
    "headers_ahead", "queue_packets",
}  # fmt: skip
_TIMES = {
    "timeout", "timeout_low", "alpha_timer", "rate_timer", "cnp_interval", "decrease_interval", "flowlet_gap", "slot",
    "guard", "reorder",
}  # fmt: skip
_MAY_BE_ZERO = {"cnp_interval", "timeout_low", "reorder", "guard"}
_FLAGS = {"tail_probe", "finds_lost_repeats", "window_follows_rate", "clamps_target", "cuts_on_timer"}
_BDP = {
    "window_bdp": "window_bytes",
    "max_window_bdp": "max_window_bytes",
    "additive_bdp": "additive_bytes",
}
_RTT = {
    "reorder_bdp": "reorder_ps",
    "target_bdp": "target_ps",
    "low_bdp": "low_ps",
    "high_bdp": "high_ps",
    "flow_scale_bdp": "flow_scale_ps",
}
_SHARES = {
    "additive_share": "additive_Bps",
    "hyper_share": "hyper_Bps",
    "min_share": "min_Bps",
    "timely_share": "timely_Bps",
}
_RATES = {"additive": "additive_Bps", "hyper": "hyper_Bps", "min": "min_Bps"}
_PACKETS = {"window_packets": "window_bytes", "min_window_packets": "min_window_bytes"}
_PLAIN = {
    "ack_every", "header_bytes", "duplicate_threshold", "gain", "fast_stages", "byte_counter", "additive_packets",
    "decrease", "max_decrease", "few_packets", "target_utilisation", "max_stage", "smoothing", "cubic_c",
}  # fmt: skip


@dataclass(frozen=True)
class Marks:
    """When a queue marks: between two depths with rising probability; both the same is a step.

    Depths are times at the rate of the access link, or `step_bdp` round trips' worth of data.
    """

    low_s: float = 0.0
    high_s: float = 0.0
    probability: float = 1.0
    step_bdp: float = 0.0


@dataclass(frozen=True)
class TransportSet:
    """One named set: the law it follows, what it asks of switches, its numbers and where they come from."""

    name: str
    about: str
    source: str
    kind: str
    recovery: str
    spread: str = "flow"
    lossless: bool = False
    credits: bool = False
    trims: bool = False
    trim_tail: float = 0.0
    headers_ahead: int = 0
    queue_packets: int = 0
    marks: Marks | None = None
    numbers: Mapping[str, Setting] = field(default_factory=lambda: MappingProxyType({}))

    def profile(
        self, *, payload_bytes: int, rate_Bps: float, rtt_s: float, data_class: int, spread: str = "", num_hops: int = 4
    ) -> Profile:
        """Return the engine's profile on a network of that access rate and base round trip, over so many links."""
        found = Profile()
        found.transport = KINDS.index(self.kind)
        found.recovery = RECOVERIES.index(self.recovery)
        found.spread = SPREADS.index(spread or self.spread)
        found.data_class = data_class
        found.payload_bytes = payload_bytes
        found.base_rtt_ps = max(1, round(rtt_s * _PS))
        found.min_window_bytes = payload_bytes
        bdp = rate_Bps * rtt_s
        for name, value in self.numbers.items():
            if name in _TIMES:
                least = 0 if name in _MAY_BE_ZERO else 1
                setattr(found, f"{name}_ps", max(least, round(units.time(value) * _PS)))
            elif name == "acks_with_data":
                found.ack_class = data_class if value else found.ack_class
            elif name in _FLAGS:
                setattr(found, name, bool(value))
            elif name == "hop_share":
                found.hop_ps = round(float(value) * rtt_s / num_hops * _PS)
            elif name in _BDP:
                setattr(found, _BDP[name], max(float(value) * bdp, 1.0))
            elif name in _RTT:
                attribute = _RTT[name]
                scaled = float(value) * rtt_s * _PS
                setattr(found, attribute, scaled if attribute == "flow_scale_ps" else round(scaled))
            elif name in _SHARES:
                setattr(found, _SHARES[name], float(value) * rate_Bps)
            elif name in _RATES:
                setattr(found, _RATES[name], units.rate(value))
            elif name in _PACKETS:
                setattr(found, _PACKETS[name], float(value) * payload_bytes)
            else:
                setattr(found, name, type(getattr(found, name))(float(value)))
        return found


@cache
def transport_sets() -> Mapping[str, TransportSet]:
    """Return all parameter sets by name."""
    return MappingProxyType(
        {name: read_set(name, row) for name, row in own_data("sim", "packet/transports.yaml").items()}
    )


def transport_set(name: str, changes: Mapping[str, Setting] | None = None) -> TransportSet:
    """Return the set of that name, with numbers of it changed."""
    sets = transport_sets()
    if name not in sets:
        raise SimulationError(f'no packet transport is called "{name}".', hint=f"One of: {', '.join(sets)}.")
    if not changes:
        return sets[name]
    return read_set(name, {**own_data("sim", "packet/transports.yaml")[name], **changes})


def read_set(name: str, row: Mapping[str, Any]) -> TransportSet:
    """Return one set from its row, every key checked."""
    known = (
        _OURS
        | _TIMES
        | _PLAIN
        | _FLAGS
        | {"hop_share", "acks_with_data"}
        | set(_BDP)
        | set(_RTT)
        | set(_SHARES)
        | set(_RATES)
        | set(_PACKETS)
    )
    for key in row.keys() - known:
        raise SimulationError(
            f'transport "{name}" has no parameter "{key}".', hint=f"Known: {', '.join(sorted(known))}."
        )
    for key, allowed in (("kind", KINDS), ("recovery", RECOVERIES), ("spread", SPREADS)):
        if row.get(key, allowed[0]) not in allowed:
            raise SimulationError(f'transport "{name}": {key} "{row[key]}" is not one of {", ".join(allowed)}.')
    marks = row.get("marks")
    return TransportSet(
        name,
        str(row.get("about", "")),
        str(row.get("source", "")),
        str(row["kind"]),
        str(row["recovery"]),
        str(row.get("spread", "flow")),
        bool(row.get("lossless", False)),
        bool(row.get("credits", False)),
        bool(row.get("trims", False)),
        float(row.get("trim_tail", 0.0)),
        int(row.get("headers_ahead", 0)),
        int(row.get("queue_packets", 0)),
        None if marks is None else _marks(marks),
        MappingProxyType({key: value for key, value in row.items() if key not in _OURS}),
    )


def _marks(row: Mapping[str, Any]) -> Marks:
    return Marks(
        units.time(row.get("low", 0.0)),
        units.time(row.get("high", 0.0)),
        float(row.get("probability", 1.0)),
        float(row.get("step_bdp", 0.0)),
    )
