"""Assumptions: every number about money that is neither a price of the catalogue nor a count of the fabric.

    assumptions = Assumptions(years=3, utilisation=0.6)
    assumptions, origin = load_assumptions("ours.yaml", {"pue": 1.4})

Each default has a source, or says that it is assumed. A file sets any of them by name; an option goes over the file.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from syncline.describe.document import Document, read_document, read_text
from syncline.describe.guide import cite
from syncline.describe.mistakes import plain_rule
from syncline.describe.quantity import Strict
from syncline.errors import CostError, SynclineError
from syncline.install.room import RACK_POWER_W

GUIDE = cite("method/cost")


def _assume(default: Any, unit: str, source: str, between: tuple[float, float] | None = None, **bounds: Any) -> Any:
    """Return an assumption; `between` holds eight of ten cases, as far as anyone can say."""
    extra: Any = {"unit": unit, "source": source, "range": list(between) if between else None}
    return Field(default=default, json_schema_extra=extra, **bounds)


class Assumptions(Strict):
    """What is taken for granted; units end the names, shares are between 0 and 1."""

    years: float = _assume(
        4.0, "years", "assumed: how long the cluster is kept and written off", between=(3.0, 6.0), gt=0, le=40
    )
    utilisation: float = _assume(
        0.7, "of all hours", "assumed: hours in which the GPUs do paid work", between=(0.5, 0.9), gt=0, le=1
    )
    financing_rate: float = _assume(
        0.0, "a year", "assumed: bought with own money, which costs nothing", between=(0.0, 0.1), ge=0, le=1
    )
    resale: float = _assume(0.0, "of the price", "assumed: worth nothing at the end", between=(0.0, 0.2), ge=0, lt=1)
    power_usd_per_kWh: float = _assume(
        0.08, "$/kWh", "EIA, US industrial average 2023: 8.06 cents per kWh", between=(0.05, 0.12), ge=0, le=10
    )
    pue: float = _assume(
        1.25, "ratio", "assumed: a new hall; Uptime Institute 2024: average 1.56, new ones 1.3 or better",
        between=(1.1, 1.5), ge=1, le=5
    )  # fmt: skip
    load_power: float = _assume(
        0.76, "of rated host power", "arXiv 2506.14551: heavy training on 8 x H100 draws 76 % of its 10.2 kW", gt=0,
        le=1
    )  # fmt: skip
    idle_power: float = _assume(0.25, "of rated host power", "assumed: a host that waits", ge=0, le=1)
    facility_usd_per_kW: float = _assume(
        4900.0, "$/kW", "H100 Freakonomics spreadsheet, Aug 2024: 50 k$ for a host of 10.2 kW",
        between=(3000.0, 12000.0), ge=0, le=1e6
    )  # fmt: skip
    facility_years: float = _assume(15.0, "years", "assumed: how long building, power and cooling last", gt=0, le=100)
    rack_kW: float = _assume(
        RACK_POWER_W / 1e3, "kW", "assumed: four 10.2 kW hosts and their leaf a rack", gt=0, le=1000
    )
    rack_usd_per_month: float = _assume(
        0.0, "$/month", "assumed: own hall; for colocation set this and facility_usd_per_kW to 0", ge=0, le=1e6
    )
    hosts_per_fte: float = _assume(
        64.0, "hosts", "assumed: hosts one full-time person looks after", between=(32.0, 200.0), gt=0, le=1e6
    )
    fte_usd_per_year: float = _assume(200_000.0, "$/year", "assumed: salary with overhead", ge=0, le=1e8)
    maintenance_rate: float = _assume(
        0.05, "of capital a year", "assumed: support contracts and spares", between=(0.02, 0.08), ge=0, le=1
    )
    wan_usd_per_Gbps_month: float = _assume(
        100.0, "$/month",
        "assumed: a leased wave of 100 Gb/s for some 10,000 $ a month; a cluster file's own price goes first", ge=0,
        le=1e6
    )  # fmt: skip
    host_price_usd: float | None = _assume(None, "$", "the parts catalogue", ge=0, le=1e9)
    commitment_discount: float = _assume(
        0.0, "of the list price", "assumed: on demand; above 0 means committed, every hour is then paid", ge=0, lt=1
    )
    gpu_hour_usd: float | None = _assume(
        None, "$", "the price table; given: your own rent, taken as fixed", gt=0, le=1e4
    )
    cloud: str | None = _assume(None, "", "every cloud of the price table", min_length=1, max_length=60)
    region: str | None = _assume(None, "", "the cheapest region listed", min_length=1, max_length=60)
    reliability: str = _assume(
        "llama3-405b", "", "the failure rate of Llama 3 405B on 16,384 H100 (arXiv 2407.21783)", min_length=1,
        max_length=500
    )  # fmt: skip
    checkpoint_s: float | None = _assume(None, "s", "computed from the job's state", ge=0, le=86400)
    detect_s: float = _assume(
        300.0, "s", "assumed: a crash is seen at once, a hang when NCCL's watchdog ends it, after 600 s unless set",
        between=(30.0, 900.0), ge=0, le=864000
    )  # fmt: skip
    restart_s: float = _assume(
        300.0, "s", "assumed: replace the host and start again; loading the checkpoint comes on top",
        between=(150.0, 900.0), ge=0, le=864000
    )  # fmt: skip
    storage_Bps_per_host: float = _assume(
        0.625e9, "B/s", "NVIDIA DGX SuperPOD H100 guide, standard storage: 20 GB/s of writes for 32 hosts",
        between=(0.3e9, 1.9e9), gt=0, le=1e12
    )  # fmt: skip
    snapshot_Bps: float = _assume(
        10e9, "B/s", "assumed: what a GPU copies to its host's memory while all of them do", between=(5e9, 25e9),
        gt=0, le=1e12
    )  # fmt: skip
    checkpoint_interval_s: float | None = _assume(None, "s", "the best interval, computed", gt=0, le=1e8)


@dataclass(frozen=True)
class Assumption:
    """One assumption as it is shown: its value, who set it, and why."""

    name: str
    value: float | str | None
    unit: str
    origin: str
    source: str


def listed(assumptions: Assumptions, origin: Mapping[str, str]) -> tuple[Assumption, ...]:
    """Return every assumption with its source; `origin` says which ones a file or an option set."""
    rows = []
    for name, field in Assumptions.model_fields.items():
        extra: Any = field.json_schema_extra
        set_by = origin.get(name, "default" if name not in assumptions.model_fields_set else "given")
        source = extra["source"] if set_by == "default" else set_by
        rows.append(Assumption(name, getattr(assumptions, name), extra["unit"], set_by, source))
    return tuple(rows)


def load_assumptions(
    path: str | Path | None = None, options: Mapping[str, Any] | None = None
) -> tuple[Assumptions, dict[str, str]]:
    """Return the defaults with a file's values over them and options over those, and who set what."""
    document = read_document(read_text(Path(path)), str(path)) if path is not None else None
    data: Any = document.data if document is not None else {}
    if not isinstance(data, dict):
        raise CostError("assumptions are a mapping: `years: 4`.", where=str(path), hint=f"See {GUIDE}.")
    given = {name: value for name, value in (options or {}).items() if value is not None}
    for name, value in (data | given).items():
        if isinstance(value, bool):  # which would be read as 0 or 1
            where = document.where((name,)) if document is not None and name not in given else ""
            raise CostError(f"{name} is {value}; it must be a number or a name.", where=where, hint=f"See {GUIDE}.")
    origin = dict.fromkeys(data, f"file {path}") | dict.fromkeys(given, "option")
    try:
        return Assumptions.model_validate(data | given), origin
    except ValidationError as error:
        raise _problem(error, document, given) from None


def _problem(error: ValidationError, document: Document | None, options: Mapping[str, Any]) -> SynclineError:
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    where = document.where((name,)) if document is not None and name not in options else ""
    if first["type"] == "extra_forbidden":
        close = difflib.get_close_matches(name, Assumptions.model_fields, n=3, cutoff=0.5)
        detail = f"Close: {', '.join(close)}." if close else ""
        return CostError(f'there is no assumption "{name}".', where=where, detail=detail, hint=f"{GUIDE} has them all.")
    rule = plain_rule(str(first["msg"]))
    default = Assumptions.model_fields[name].default
    usual = f"The default is {default}." if default is not None else f"{GUIDE} says what it means."
    return CostError(f"{name} is {first['input']!r}; it must be {rule}.", where=where, hint=usual)
