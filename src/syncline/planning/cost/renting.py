"""Renting: what the same GPUs cost in each cloud.

quotes = rent(gpu_models(fabric), load_prices(), Assumptions())
quotes[0].label, quotes[0].usd_per_gpu_hour
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from syncline.describe import units
from syncline.describe.plain import JsonObject
from syncline.errors import CostError
from syncline.fabric.fabric import DeviceKind, Fabric
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.owning import HOURS_PER_YEAR
from syncline.planning.cost.prices import Price, Prices, load_prices

GIVEN = "your price"
IGNORED = ("data leaving the cloud (egress)", "cloud storage", "waiting for capacity")


@dataclass(frozen=True)
class Lease:
    """So many of one instance."""

    price: Price
    num_instances: int

    @property
    def usd_per_hour(self) -> float:
        """At list price."""
        return self.price.price_usd * self.num_instances


@dataclass(frozen=True)
class Quote:
    """The GPUs of a fabric in one cloud. With a commitment every hour is paid, without one only those used."""

    cloud: str
    leases: tuple[Lease, ...]
    num_gpus: int
    discount: float = 0.0

    @property
    def fixed(self) -> bool:
        """Whether every price was given (an option, a table of one's own), and is no list price that ships."""
        shipped = load_prices().rows
        return all(lease.price not in shipped for lease in self.leases)

    @property
    def label(self) -> str:
        if self.cloud == GIVEN:
            return GIVEN
        return f"{self.cloud} {' + '.join(lease.price.item for lease in self.leases)}"

    @property
    def committed(self) -> bool:
        return self.discount > 0

    @property
    def usd_per_hour(self) -> float:
        """Of all the GPUs, after the discount."""
        return sum(lease.usd_per_hour for lease in self.leases) * (1 - self.discount)

    @property
    def usd_per_gpu_hour(self) -> float:
        """Of one GPU, after the discount, per hour that is paid."""
        return self.usd_per_hour / self.num_gpus

    def usd_per_used_gpu_hour(self, utilisation: float) -> float:
        """Return what an hour in which a GPU is used costs."""
        return self.usd_per_gpu_hour / (utilisation if self.committed else 1.0)

    def hour_words(self, utilisation: float) -> str:
        """Return the price of a used GPU-hour with its basis, as it is printed everywhere."""
        kind = "taken as fixed" if self.fixed else "list price, -20 % to +10 %"
        return f"{units.show_money(self.usd_per_used_gpu_hour(utilisation))} rented ({self.label}, {kind})"

    def cost_usd(self, years: float, utilisation: float) -> float:
        """Return what renting for so long and so much costs."""
        paid = 1.0 if self.committed else utilisation
        return self.usd_per_hour * HOURS_PER_YEAR * years * paid

    def to_json(self, utilisation: float) -> JsonObject:
        """Return the figures as plain data."""
        return {
            "cloud": self.cloud,
            "label": self.label,
            "usd_per_gpu_hour": self.usd_per_used_gpu_hour(utilisation),
            "usd_per_paid_gpu_hour": self.usd_per_gpu_hour,
            "usd_per_hour": self.usd_per_hour,
            "committed": self.committed,
            "discount": self.discount,
            "instances": [{"count": lease.num_instances} | dict(vars(lease.price)) for lease in self.leases],
        }


def gpu_models(fabric: Fabric) -> dict[str, int]:
    """Return how many GPUs of each model a fabric has."""
    parts, counts = np.unique(fabric.devices.part[fabric.devices.kind == DeviceKind.GPU], return_counts=True)
    return {fabric.parts[part]: int(count) for part, count in zip(parts, counts, strict=True)}


def rent(gpus: Mapping[str, int], prices: Prices, assumptions: Assumptions | None = None) -> tuple[Quote, ...]:
    """Return one quote for each cloud that rents all these GPUs, cheapest first.

    With `assumptions.cloud` only that one, and then a GPU it does not rent is an error. With `gpu_hour_usd` that price
    alone.
    """
    a = assumptions or Assumptions()
    if a.gpu_hour_usd is not None:
        return (_given(gpus, a.gpu_hour_usd, a),)
    clouds = prices.clouds if a.cloud is None else (prices.cloud(a.cloud),)
    quotes = []
    for cloud in clouds:
        offers = {gpu: prices.offers(gpu, cloud=cloud, region=a.region) for gpu in gpus}
        if all(offers.values()):
            leases = tuple(Lease(offers[gpu][0], -(-count // offers[gpu][0].num_gpus)) for gpu, count in gpus.items())
            quotes.append(Quote(cloud, leases, sum(gpus.values()), a.commitment_discount))
    if not quotes and (a.cloud is not None or a.region is not None):
        raise _not_rented(gpus, prices, clouds, a)
    regions = sorted({region for row in prices.rows for region in row.regions})
    if a.region is not None and a.region not in regions:
        raise CostError(
            f'{prices.source} has no price of a region "{a.region}".',
            detail=f"Its regions: {', '.join(regions)}.",
            hint="Leave `region` out for the prices that hold everywhere.",
        )
    return tuple(sorted(quotes, key=lambda quote: quote.usd_per_hour))


def _given(gpus: Mapping[str, int], usd: float, a: Assumptions) -> Quote:
    """Return the quote of a price that was given; the discount is in it already."""
    if a.cloud is not None or a.commitment_discount:
        raise CostError(
            "a price of your own (`gpu_hour_usd`) stands alone.",
            hint="Leave out cloud and commitment_discount: give the dollars that you pay.",
        )
    leases = tuple(
        Lease(Price("gpu_hour", GIVEN, "GPU-hour", gpu, 1, usd, "", "", "current", "given", ""), count)
        for gpu, count in gpus.items()
    )
    return Quote(GIVEN, leases, sum(gpus.values()))


def _not_rented(gpus: Mapping[str, int], prices: Prices, clouds: tuple[str, ...], a: Assumptions) -> CostError:
    missing = next(
        (gpu for gpu in gpus if not any(prices.offers(gpu, cloud=c, region=a.region) for c in clouds)),
        " and ".join(gpus),
    )
    who = f"no cloud rents {missing}" if a.cloud is None else f"{clouds[0]} rents no {missing}"
    place = f" in {a.region}" if a.region else ""
    known = dict.fromkeys(f"{row.provider} ({row.region or 'everywhere'})" for row in prices.offers(missing))
    return CostError(
        f"{who}{place}, as far as {prices.source} knows.",
        detail=f"Who does: {', '.join(known)}." if known else f"Nobody in the table rents {missing}.",
        hint="Choose another `cloud` or `region`, or add the price to a table of your own (`prices`).",
    )
