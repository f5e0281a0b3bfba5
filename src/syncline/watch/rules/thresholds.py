"""The numbers that rules compare with: defaults with their reasons, changed by a file; the plan's where it has any."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from syncline.describe.document import read_document, read_text
from syncline.errors import WatchError


@dataclass(frozen=True)
class Thresholds:
    """Shares are of capacity, times in seconds, `_after_s` how long before an alert is raised or cleared.

    Average use of 60 to 80 % is what a paid-for network should see: below, it was not needed; above, there is no room
    for a neighbour, a retry or a slower day.
    """

    average_high: float = 0.80
    average_target: float = 0.60
    average_clear: float = 0.75
    average_over_s: float = 30.0
    peak_high: float = 0.95
    peak_share_of_time: float = 0.50
    burst_average_below: float = 0.60
    bursts_per_s: float = 1.0
    burst_longest_s: float = 0.1
    loss_packets: float = 2.0
    loss_over_s: float = 4.0
    loss_share: float = 1e-6
    loss_times_past: float = 4.0
    errors_over_s: float = 10.0
    pause_per_s: float = 1000.0
    pause_share: float = 0.20
    degraded_share: float = 0.80
    rail_ratio: float = 1.5
    rail_least_share: float = 0.05
    retransmitted_share: float = 0.005
    lost_share: float = 5e-4
    tail_ratio: float = 3.0
    network_share: float = 0.25
    network_times_plan: float = 1.2
    straggler_share: float = 0.05
    straggler_share_now: float = 0.12
    straggler_share_twice: float = 0.5
    straggler_least_s: float = 5e-3
    straggler_times_others: float = 3.0
    straggler_times_past: float = 2.0
    straggler_times_past_soon: float = 3.0
    regression_ratio: float = 1.25
    regression_least_s: float = 1e-3
    stalled_steps: float = 8.0
    stalled_least_s: float = 1.5
    stalled_without_steps_s: float = 60.0
    phase_longest_s: float = 1800.0
    raise_after_s: float = 0.5
    clear_after_s: float = 2.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
                raise WatchError(f"threshold {field.name} is {value!r}.", hint="It must be a number, zero or more.")
        if not self.average_clear <= self.average_high:
            raise WatchError("average_clear must not be above average_high: the alert would never hold.")

    def changed(self, values: Mapping[str, Any], where: str = "") -> Thresholds:
        """Return these with some changed."""
        known = {field.name for field in fields(self)}
        unknown = sorted(set(map(str, values)) - known)
        if unknown:
            hint = f"Known: {', '.join(sorted(known))}."
            raise WatchError(f'no threshold is called "{unknown[0]}".', where=where, hint=hint)
        try:
            return replace(self, **values)
        except WatchError as error:
            raise WatchError(error.message, where=where, hint=error.hint) from None


def read_thresholds(path: str | os.PathLike[str]) -> Thresholds:
    """Read thresholds from a YAML file of `name: number` lines; the rest keep their defaults."""
    document = read_document(read_text(Path(path)), os.fspath(path))
    if not isinstance(document.data, dict):
        raise WatchError("not a table of thresholds.", where=document.source, hint="Write `average_high: 0.85`.")
    return Thresholds().changed(document.data, document.source)
