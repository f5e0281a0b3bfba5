"""Owning: what a cluster costs to buy and keep, and so what one of its GPU-hours costs.

owned = own(fabric, Assumptions(years=4, utilisation=0.7))
owned.usd_per_gpu_hour          # of an hour in which the GPU is used
owned.yearly()                  # hosts, network, facility, racks, power, people, maintenance, financing
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from syncline.describe import units
from syncline.describe.plain import JsonObject
from syncline.errors import CostError
from syncline.fabric.bill import Bill, BillLine, bill
from syncline.fabric.catalog import Catalog, HostModel, load_catalog
from syncline.fabric.fabric import DeviceKind, Fabric
from syncline.install.rack import stand
from syncline.install.room import Room
from syncline.planning.cost.assumptions import Assumptions

HOURS_PER_YEAR = 8766.0
_HOST = re.compile(r".* \((\d+) x (.+)\)\Z")


@dataclass(frozen=True)
class Owning:
    """A cluster that is bought: prices and power of its parts, and what follows from the assumptions."""

    assumptions: Assumptions
    num_gpus: int
    num_hosts: int
    hosts_usd: float
    nics_usd: float
    """The part of `hosts_usd` that is network cards."""
    network_usd: float
    """Switches, optics and cables."""
    host_power_w: float
    """Rated maximum of all hosts."""
    network_power_w: float
    unpriced: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    wan_usd_per_year: float = 0.0
    """Rent of the lines between sites."""
    num_racks: int = 0
    """As they stand in a room: by height, weight and power, hosts with the leaves they share."""
    whole_racks: int = 0
    """Those of them that are sold as one (NVL72), whatever power others are built for."""
    whole_racks_power_w: float = 0.0
    spare_hosts: int = 0
    """That the cluster states beside its hosts; a run pays for them (`Parts.paid_gpus`), a GPU-hour does not."""

    @property
    def capital_usd(self) -> float:
        """Hosts and network."""
        return self.hosts_usd + self.network_usd

    @property
    def to_buy_usd(self) -> float:
        """Hosts and network with the spare hosts, which are wired as the others are."""
        return self.capital_usd * (1 + self.spare_hosts / self.num_hosts)

    @property
    def rated_power_w(self) -> float:
        return self.host_power_w + self.network_power_w

    @property
    def facility_usd(self) -> float:
        """Building, power and cooling for the rated power."""
        return self.rated_power_w / 1e3 * self.assumptions.facility_usd_per_kW

    @property
    def num_ftes(self) -> float:
        return self.num_hosts / self.assumptions.hosts_per_fte

    @property
    def network_share_of_capital(self) -> float:
        """Switches, optics and cables over hosts and network."""
        return _share(self.network_usd, self.capital_usd)

    @property
    def network_share_with_nics(self) -> float:
        """The same with network cards counted as network."""
        return _share(self.network_usd + self.nics_usd, self.capital_usd)

    @property
    def network_usd_per_year(self) -> float:
        """All that the network costs: capital, financing, maintenance, power and its part of the facility."""
        a = self.assumptions
        kept = (1 - a.resale) / a.years + a.maintenance_rate + _interest(a)
        facility = self.network_power_w / 1e3 * a.facility_usd_per_kW / a.facility_years
        return self.network_usd * kept + facility + _energy_usd(self.network_power_w, a) + self.wan_usd_per_year

    @property
    def network_share_of_total(self) -> float:
        return _share(self.network_usd_per_year, self.usd_per_year)

    @property
    def usd_per_year(self) -> float:
        return sum(self.yearly().values())

    @property
    def usd_per_gpu_hour(self) -> float:
        """What an hour in which a GPU is used costs."""
        return self.usd_per_installed_gpu_hour / self.assumptions.utilisation

    @property
    def hour_words(self) -> str:
        """The price of a GPU-hour with its basis, as it is printed everywhere."""
        a = self.assumptions
        return f"{units.show_money(self.usd_per_gpu_hour)} owned ({a.years:g} years, {a.utilisation:.0%} used)"

    @property
    def usd_per_installed_gpu_hour(self) -> float:
        """What an hour of a GPU costs, used or not."""
        return self.usd_per_year / (self.num_gpus * HOURS_PER_YEAR)

    @property
    def mean_power_w(self) -> float:
        """What hosts and network draw on average, without cooling."""
        return self.network_power_w + self.host_power_w * _load(self.assumptions)

    def yearly(self) -> dict[str, float]:
        """Return dollars a year by what they are for."""
        a = self.assumptions
        written_off = (1 - a.resale) / a.years
        return {
            "hosts": self.hosts_usd * written_off,
            "network": self.network_usd * written_off,
            "financing": self.capital_usd * _interest(a),
            "maintenance": self.capital_usd * a.maintenance_rate,
            "facility": self.facility_usd / a.facility_years,
            "racks": self.num_racks * a.rack_usd_per_month * 12,
            "power": _energy_usd(self.mean_power_w, a),
            "people": self.num_ftes * a.fte_usd_per_year,
        } | ({"wan": self.wan_usd_per_year} if self.wan_usd_per_year else {})

    def cost_usd(self, years: float, utilisation: float) -> float:
        """Return what the cluster costs if it is kept for so long and used so much."""
        changed = self.assumptions.model_copy(update={"years": years, "utilisation": utilisation})
        return replace(self, assumptions=changed).usd_per_year * years

    def to_json(self) -> JsonObject:
        """Return the figures as plain data."""
        yearly = self.yearly()
        return {
            "usd_per_gpu_hour": self.usd_per_gpu_hour,
            "usd_per_installed_gpu_hour": self.usd_per_installed_gpu_hour,
            "usd_per_year": self.usd_per_year,
            "usd_per_year_by": yearly,
            "share_by": {name: _share(value, self.usd_per_year) for name, value in yearly.items()},
            "capital_usd": self.capital_usd,
            "spare_hosts": self.spare_hosts,
            "to_buy_usd": self.to_buy_usd,
            "hosts_usd": self.hosts_usd,
            "nics_usd": self.nics_usd,
            "network_usd": self.network_usd,
            "facility_usd": self.facility_usd,
            "network_usd_per_year": self.network_usd_per_year,
            "network_share_of_capital": self.network_share_of_capital,
            "network_share_of_capital_with_nics": self.network_share_with_nics,
            "network_share_of_total": self.network_share_of_total,
            "rated_power_w": self.rated_power_w,
            "mean_power_w": self.mean_power_w,
            "racks": self.num_racks,
            "whole_racks": self.whole_racks,
            "ftes": self.num_ftes,
            "unpriced": list(self.unpriced),
            "notes": list(self.notes),
        }


def own(fabric: Fabric, assumptions: Assumptions | None = None) -> Owning:
    """Return what this fabric costs to own, from its bill."""
    assumptions = assumptions or Assumptions()
    catalog = load_catalog().with_parts(fabric.spec.parts) if fabric.spec.parts else load_catalog()
    bought, notes = _with_host_prices(bill(fabric), catalog, assumptions)
    hosts = [line for line in bought.lines if line.kind == "host"]
    rack_w = assumptions.rack_kW * 1e3 if "rack_kW" in assumptions.model_fields_set else None
    racks = stand(fabric, Room(rack_power_w=rack_w))
    return Owning(
        assumptions=assumptions,
        num_gpus=fabric.num_gpus,
        num_hosts=fabric.num_hosts,
        hosts_usd=sum(line.price_usd for line in hosts),
        nics_usd=_nics_usd(fabric, catalog),
        network_usd=bought.network_price_usd,
        host_power_w=sum(line.power_w for line in hosts),
        network_power_w=bought.power_w - sum(line.power_w for line in hosts),
        unpriced=bought.unpriced,
        notes=notes,
        wan_usd_per_year=_wan_usd_per_year(fabric, assumptions),
        num_racks=racks.num_racks,
        whole_racks=racks.num_sold,
        whole_racks_power_w=racks.sold_power_w,
        spare_hosts=fabric.spec.spares if isinstance(fabric.spec.spares, int) else 0,
    )


def _wan_usd_per_year(fabric: Fabric, a: Assumptions) -> float:
    """Return the rent of the lines between sites: as the cluster file says, or by their rate."""
    wan = fabric.spec.wan
    if wan is None:
        return 0.0
    stated = float(fabric.facts.get("wan_usd_per_month", 0.0))
    rented = a.wan_usd_per_Gbps_month * wan.rate * 8 / 1e9 * int(fabric.facts.get("wan_lines", 0))
    return 12 * (stated or rented)


def annuity(years: float, rate: float) -> float:
    """Return the yearly payment that repays 1 over so many years at this interest."""
    if rate < 1e-12:  # the difference is below what a float holds
        return 1 / years
    return rate / -math.expm1(-years * math.log1p(rate))


def _interest(a: Assumptions) -> float:
    """Return what financing adds a year to each dollar of capital; what resale brings is discounted."""
    if a.financing_rate == 0:
        return 0.0
    resale_now = a.resale * math.exp(-a.years * math.log1p(a.financing_rate))
    return (1 - resale_now) * annuity(a.years, a.financing_rate) - (1 - a.resale) / a.years


def _load(a: Assumptions) -> float:
    return a.idle_power + max(0.0, a.load_power - a.idle_power) * a.utilisation


def _energy_usd(power_w: float, a: Assumptions) -> float:
    return power_w / 1e3 * a.pue * HOURS_PER_YEAR * a.power_usd_per_kWh


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _nics_usd(fabric: Fabric, catalog: Catalog) -> float:
    parts, counts = np.unique(fabric.devices.part[fabric.devices.kind == DeviceKind.NIC], return_counts=True)
    known: Mapping[str, float] = {nic.name: getattr(nic, "price_usd", None) or 0.0 for nic in catalog.parts("nic")}
    return sum(known.get(fabric.parts[part], 0.0) * int(count) for part, count in zip(parts, counts, strict=True))


def _with_host_prices(bought: Bill, catalog: Catalog, a: Assumptions) -> tuple[Bill, tuple[str, ...]]:
    """Give a price to hosts that have none: the one assumed, or that of a host with the same GPUs."""
    lines, notes = [], []
    for line in bought.lines:
        if line.kind == "host" and a.host_price_usd is not None:
            line = replace(line, unit_price_usd=a.host_price_usd, source="host_price_usd")
        elif line.kind == "host" and line.unit_price_usd is None:
            model = _like(line, catalog)
            line = replace(line, unit_price_usd=model.price_usd, source=model.price_source)
            notes.append(f"{line.part} is not sold; priced as {model.name}, which has the same GPUs")
        lines.append(line)
    return Bill(tuple(lines)), tuple(notes)


def _like(line: BillLine, catalog: Catalog) -> HostModel:
    shape = _HOST.match(line.part)
    hosts = [host for host in catalog.parts("host") if isinstance(host, HostModel) and host.price_usd is not None]
    alike = [h for h in hosts if shape and (str(h.num_gpus), h.gpu) == shape.groups()]
    if not alike:
        raise CostError(
            f"no price is known for the host {line.part}.",
            hint="Give one: `price_usd:` under `host:` in the cluster file, or host_price_usd among the assumptions.",
        )
    return min(alike, key=lambda host: host.price_usd or 0.0)
