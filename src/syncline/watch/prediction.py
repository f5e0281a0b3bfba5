"""What was expected: step, collectives and link rates, from a plan, a simulated timeline or a table.

Prediction.read("plan.json")             # what `syncline plan --save` wrote
Prediction.read("simulated.timeline")    # what `syncline simulate --trace` wrote
Prediction.read("expected.yaml")         # step: 1.2s, collectives: {AllReduce/16MiB: 3ms}, links: {a -> b: 40Gbps}
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from syncline.describe import units
from syncline.describe.document import read_document, read_text
from syncline.describe.plain import JsonObject
from syncline.errors import SynclineError, UnitError, WatchError
from syncline.timeline import SpanKind, Timeline, load
from syncline.timeline.account import Account, reported_account
from syncline.timeline.collective import CollectiveName, canonical, expected, expected_by_size

PLAN = "syncline plan 1"
_KEYS = {"step", "exposed", "collectives", "links", "gpus", "usd_per_gpu_hour"}


@dataclass(frozen=True)
class Prediction:
    """Expected figures; None and missing keys mean that nobody predicted them. `source` goes beside every one shown."""

    source: str = ""
    step_s: float | None = None
    exposed_s: float | None = None
    collectives_s: Mapping[str, float] = field(default_factory=dict)
    link_rate_Bps: Mapping[str, float] = field(default_factory=dict)
    num_gpus: int | None = None
    usd_per_gpu_hour: float | None = None
    link_reach_Bps: Mapping[str, float] = field(default_factory=dict)
    """What links reached in an earlier run, over windows as short as those of this one."""

    def to_json(self) -> JsonObject:
        """Return what the page shows beside the step."""
        return {"source": self.source, "step_s": self.step_s, "exposed_s": self.exposed_s}

    @property
    def usd_per_day(self) -> float | None:
        """What the job costs; None where the number or the price of its GPUs is unknown."""
        known = self.num_gpus is not None and self.usd_per_gpu_hour is not None
        return 24 * (self.num_gpus or 0) * (self.usd_per_gpu_hour or 0.0) if known else None

    @property
    def account(self) -> Account | None:
        """The predicted step's account; None where its time or its exposed communication is not known."""
        if not self.step_s or self.exposed_s is None:
            return None
        return reported_account("predicted", self.source, self.step_s, self.step_s - self.exposed_s, self.exposed_s)

    def rate_of(self, link: str) -> float | None:
        """Return the expected mean rate of a link: under its name, else under the first pattern that fits it."""
        if link in self.link_rate_Bps:
            return self.link_rate_Bps[link]
        fits = (rate for name, rate in self.link_rate_Bps.items() if "*" in name and fnmatchcase(link, name))
        return next(fits, None)

    def collective_s(self, name: CollectiveName) -> tuple[float | None, bool]:
        """Return the expected time of a collective, and whether it was predicted at this size."""
        known_s = expected(self.collectives_s, name)
        return (known_s, True) if known_s is not None else (expected_by_size(self.collectives_s, name), False)

    def at_scale(self, scale: float) -> Prediction:
        """Return what is expected of a copy whose links have so much of their rate: all takes that much longer.

        That a rank computes as much longer too is up to what runs there.
        """
        if scale == 1:
            return self
        return replace(
            self,
            source=f"{self.source}, at {scale:.3g} of its rates",
            step_s=None if self.step_s is None else self.step_s / scale,
            exposed_s=None if self.exposed_s is None else self.exposed_s / scale,
            collectives_s={name: seconds / scale for name, seconds in self.collectives_s.items()},
            link_rate_Bps={name: rate * scale for name, rate in self.link_rate_Bps.items()},
        )

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Prediction:
        """Read a plan, a timeline or a table of expected figures."""
        where = os.fspath(path)
        if where.lower().endswith((".yaml", ".yml")):
            return _from_table(Path(path))
        try:
            with open(path, "rb") as file:
                begins_json = file.read(1) == b"{"
        except OSError as error:
            raise WatchError(f"cannot read the prediction: {error.strerror}.", where=where) from None
        if begins_json:
            data = _plan_data(where)
            if data is not None:
                return _from_plan(data, where)
        return from_timeline(load(path), where)


def from_timeline(timeline: Timeline, source: str = "") -> Prediction:
    """Return a timeline's collectives (median time by name and size), mean link rates and step.

    A step computes: a timeline in which nothing does is of a lone collective, which is not taken for one.
    """
    spans = timeline.spans
    took: dict[str, list[float]] = {}
    rows = timeline.metadata.get("collectives")
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and isinstance(row.get("time_s"), (int, float)):
            took.setdefault(str(row.get("name")), []).append(float(row["time_s"]))
    for i in np.flatnonzero(spans.kind == SpanKind.COLLECTIVE).tolist() if not took else ():
        key = canonical(timeline.names[spans.name[i]], int(spans.size_bytes[i])).key()
        took.setdefault(key, []).append(float(spans.end_s[i] - spans.start_s[i]))
    use = timeline.link_use()
    rates = dict(zip(timeline.links.names, use.mean_rate_Bps.tolist(), strict=True))
    steps = len(np.unique(spans.step[(spans.step >= 0) & (spans.kind == SpanKind.COMPUTE)]))
    return Prediction(
        source=f"{source}: {timeline.source.label()}" if source else timeline.source.label(),
        step_s=timeline.makespan_s / steps if steps else None,
        exposed_s=float(np.median(timeline.exposed_s())) / steps if steps and timeline.num_ranks else None,
        collectives_s={key: float(np.median(times)) for key, times in took.items()},
        link_rate_Bps=rates,
    )


def _plan_data(where: str) -> JsonObject | None:
    try:
        data = json.loads(read_text(Path(where)))
    except (json.JSONDecodeError, SynclineError):
        return None
    return data if isinstance(data, dict) and data.get("format") == PLAN else None


def _from_plan(data: Mapping[str, Any], where: str) -> Prediction:
    try:
        predicted, cost = data["predicted"], data.get("cost") or {}
        return Prediction(
            source=f"{where}: plan of {data['job']} on {data['cluster']}",
            step_s=float(predicted["step_time_s"]),
            exposed_s=float(predicted["exposed_comm_s"]),
            num_gpus=int(data["num_gpus"]),
            usd_per_gpu_hour=float(cost["usd_per_gpu_hour"]) if cost else None,
            collectives_s={str(row["name"]): float(row["time_s"]) for row in data.get("collectives", ())},
            link_rate_Bps={str(name): float(rate) for name, rate in data.get("links", {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WatchError(f"the plan is damaged: {error}.", where=where, hint="Plan the job again.") from None


def _from_table(path: Path) -> Prediction:
    document = read_document(read_text(path), str(path))
    data = document.data if isinstance(document.data, dict) else {}
    unknown = set(map(str, data)) - _KEYS
    if unknown or not data:
        problem = f'no expectation is called "{min(unknown)}".' if unknown else "nothing is expected."
        raise WatchError(problem, where=document.source, hint=f"Known: {', '.join(sorted(_KEYS))}.")
    try:
        return Prediction(
            source=document.source,
            step_s=units.time(data["step"]) if "step" in data else None,
            exposed_s=units.time(data["exposed"]) if "exposed" in data else None,
            collectives_s={str(k): units.time(v) for k, v in (data.get("collectives") or {}).items()},
            link_rate_Bps={str(k): units.rate(v) for k, v in (data.get("links") or {}).items()},
            num_gpus=int(data["gpus"]) if "gpus" in data else None,
            usd_per_gpu_hour=float(data["usd_per_gpu_hour"]) if "usd_per_gpu_hour" in data else None,
        )
    except UnitError as error:
        raise WatchError(error.message, where=document.source, hint=error.hint) from None
    except (TypeError, ValueError, AttributeError) as error:
        raise WatchError(f"cannot read the expectations: {error}.", where=document.source) from None
