"""Prices: a dated table of what clouds and parts cost, each row with its source.

    prices = load_prices()               # what ships with syncline
    prices = load_prices("ours.csv")     # yours, in the same form
    prices.offers("H100-SXM5-80GB", cloud="AWS")[0].usd_per_gpu_hour

Columns: kind (instance, gpu_hour, or a reference price), provider, item, gpu (a name of the parts catalogue), num_gpus,
price, currency (USD), per, region (several with "/"; empty: everywhere), date, status, source, notes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from syncline.errors import CostError
from syncline.planning.cost.table import TableRow, read_table, shipped_or

COLUMNS = (
    "kind", "provider", "item", "gpu", "num_gpus", "price", "currency", "per", "region", "date", "status", "source",
    "notes",
)  # fmt: skip
RENTED = ("instance", "gpu_hour")
KINDS = (*RENTED, "host", "facility", "switch", "network")
STATUSES = ("current", "superseded", "partial")
_PER = {"instance": "hour", "gpu_hour": "hour", "network": "cluster"}
_DATE = re.compile(r"\d{4}(-\d{2}(-\d{2})?)?\Z")


@dataclass(frozen=True)
class Price:
    """One row: what a thing costs, where, when, and who says so."""

    kind: str
    provider: str
    item: str
    gpu: str
    num_gpus: int
    price_usd: float
    region: str
    date: str
    status: str
    source: str
    notes: str

    @property
    def regions(self) -> tuple[str, ...]:
        """The regions of this price; none: everywhere."""
        return tuple(self.region.split("/")) if self.region else ()

    @property
    def usd_per_gpu_hour(self) -> float:
        """The list price of one GPU for an hour (instances and GPU-hours only)."""
        return self.price_usd / self.num_gpus

    @property
    def label(self) -> str:
        return f"{self.provider} {self.item}"


@dataclass(frozen=True)
class Prices:
    """All rows of one table."""

    rows: tuple[Price, ...]
    source: str

    @property
    def clouds(self) -> tuple[str, ...]:
        """Every provider with instances. One with a `gpu_hour` only, which is no quote, counts when it is named."""
        return tuple(dict.fromkeys(row.provider for row in self.rows if row.kind == "instance"))

    def cloud(self, name: str) -> str:
        """Return a provider's name as the table spells it, or raise CostError."""
        found = {row.provider.casefold(): row.provider for row in self.rows if row.kind in RENTED}
        if name.casefold() in found:
            return found[name.casefold()]
        raise CostError(
            f'no prices of a cloud "{name}" in {self.source}.',
            detail=f"Known: {', '.join(found.values())}.",
            hint="Add its rows to a table of your own and give it as `prices`.",
        )

    def offers(self, gpu: str, *, cloud: str | None = None, region: str | None = None) -> tuple[Price, ...]:
        """Return what rents this GPU now, cheapest first: whole current instances, one region a row.

        Prices that are superseded or leave out part of the instance are not offers; ask for those with `rows`.
        """
        rows = [row for row in self.rows if row.kind in RENTED and row.status == "current" and row.gpu == gpu]
        if cloud is not None:
            rows = [row for row in rows if row.provider == self.cloud(cloud)]
        if region is not None:
            rows = [row for row in rows if not row.regions or region in row.regions]
        return tuple(sorted(rows, key=lambda row: row.usd_per_gpu_hour))


@functools.cache
def _shipped() -> Prices:
    return parse_prices(*shipped_or(None, "prices.csv"))


def load_prices(path: str | Path | None = None) -> Prices:
    """Return the table that ships with syncline, or a file of the same form."""
    return _shipped() if path is None else parse_prices(*shipped_or(path, "prices.csv"))


def parse_prices(text: str, source: str) -> Prices:
    """Read a table of prices; errors name its line."""
    rows = tuple(_price(row) for row in read_table(text, source, COLUMNS))
    _refuse_twins(rows, source)
    return Prices(rows, source)


def _price(row: TableRow) -> Price:
    kind = row.text("kind", KINDS)
    rented = kind in RENTED
    currency = row.text("currency")
    if currency != "USD":
        raise row.error(
            f'unknown currency "{currency}".', "Prices are in USD: convert them, and say the rate and day in notes."
        )
    if row.text("per") != _PER.get(kind, "each"):
        raise row.error(f'per is "{row.text("per")}".', f'A price of kind {kind} is per "{_PER.get(kind, "each")}".')
    if (date := row.text("date")) and not _DATE.match(date):
        raise row.error(f'date "{date}" cannot be read.', "Write it as 2026-08 or 2026-08-31.")
    for column in ("item", "source", *(("provider", "gpu") if rented else ())):
        if not row.text(column):
            raise row.error(f"{column} is empty.", "A price without its source is not used." if column == "source" else
                            f"A price of kind {kind} needs it.")  # fmt: skip
    num_gpus = row.whole("num_gpus", low=1) if rented or row.text("num_gpus") else 0
    status = row.text("status", STATUSES)
    plain = {name: row.text(name) for name in ("provider", "item", "gpu", "region", "date", "source", "notes")}
    return Price(kind=kind, num_gpus=num_gpus, price_usd=row.number("price"), status=status, **plain)


def _refuse_twins(rows: Iterable[Price], source: str) -> None:
    seen: dict[tuple[str, ...], float] = {}
    for row in rows:
        key = (row.kind, row.provider, row.item, row.region, row.status)
        if row.status == "current" and row.price_usd != seen.setdefault(key, row.price_usd):
            raise CostError(
                f"{row.label.strip()} has two current prices: ${seen[key]:g} and ${row.price_usd:g}.",
                where=source,
                hint="Mark the older one superseded, or name their regions.",
            )
