"""Changes of the hardware: the fabric as it would be then, and what that costs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from syncline.describe.plain import JsonObject
from syncline.errors import SynclineError
from syncline.fabric.build import build
from syncline.fabric.catalog import HostModel, load_catalog
from syncline.fabric.fabric import NETWORK_TIERS, DeviceKind, Fabric, Tier
from syncline.fabric.spec import HostGroup
from syncline.planning.cost.owning import Owning, own

Price = tuple[float | None, str]
WAN = (Tier.WAN,)


def faster_links(fabric: Fabric, factor: float, tiers: Collection[Tier] = NETWORK_TIERS) -> Fabric:
    """Return the fabric with all links of these tiers faster, and the way of a NIC into its host with its ports."""
    links, kind = fabric.links, fabric.devices.kind
    wide = np.isin(links.tier, [int(tier) for tier in tiers])
    if Tier.ACCESS in tiers:
        nic = (kind[links.src] == DeviceKind.NIC) | (kind[links.dst] == DeviceKind.NIC)
        wide |= (links.tier == Tier.PCIE) & nic
    return replace(fabric, links=replace(links, rate_Bps=np.where(wide, links.rate_Bps * factor, links.rate_Bps)))


def wide_hosts(fabric: Fabric, domain: int) -> Fabric:
    """Return the fabric with so many GPUs in one scale-up domain."""

    def widened(groups: tuple[HostGroup, ...]) -> tuple[HostGroup, ...]:
        hosts = (group.host.model_copy(update={"domain_gpus": domain}) for group in groups)
        return tuple(group.model_copy(update={"host": host}) for group, host in zip(groups, hosts, strict=True))

    sites = tuple(site.model_copy(update={"hosts": widened(site.hosts)}) for site in fabric.spec.sites)
    return build(fabric.spec.model_copy(update={"hosts": widened(fabric.spec.hosts), "sites": sites}))


def level_fabric(fabric: Fabric) -> Fabric:
    """Return the fabric without oversubscription; an error where its network has none to take away."""
    return _built(fabric, {"oversubscription": 1.0})


def upgrade_price(fabric: Fabric, link: str) -> Price:
    """Return the price of new switches, optics and cables for a link, network cards not counted; None: not known."""
    price, note = _rebuilt(fabric, {"link": link, "switch": None, "uplink": None})
    return price, note or "price of switches, optics and cables; network cards come on top"


def level_price(fabric: Fabric) -> Price:
    """Return what the same network without oversubscription costs more."""
    price, note = _rebuilt(fabric, {"oversubscription": 1.0})
    if price is None:
        return None, note
    return max(0.0, price - own(fabric).network_usd), "what the same network without oversubscription costs more"


def double_price(fabric: Fabric) -> Price:
    """Return the price of a second network beside the first: switches, optics, cables and network cards again."""
    try:
        owned = own(fabric)
    except SynclineError as error:
        return None, f"not priced: {error.message}"
    if not owned.network_usd:
        return None, "not priced: the network has no price"
    cards = "and network cards" if owned.nics_usd else "without network cards, whose price is not known,"
    return owned.network_usd + owned.nics_usd, f"switches, optics, cables {cards} again; hosts must have room for them"


def domain_price(num_gpus: int, domain: int) -> Price:
    """Return the price of as many GPUs in the cheapest hosts with such a scale-up domain: hosts cannot be rewired."""
    hosts = [host for host in load_catalog().parts("host") if isinstance(host, HostModel)]
    wide = [
        (h.price_usd / h.num_gpus, h.name) for h in hosts if h.price_usd and (h.scale_up_domain_gpus or 0) >= domain
    ]
    if not wide:
        return None, "not priced: no host of the catalogue has such a domain"
    price, name = min(wide)
    return price * num_gpus, f"new hosts: as many GPUs as {name}; that its GPUs are faster too is not counted"


def wan_price(owned: Owning) -> Price:
    """Return what as many lines between sites again cost over the years that the cluster is kept."""
    years = owned.assumptions.years
    return owned.wan_usd_per_year * years, f"rent of {years:g} years"


def _rebuilt(fabric: Fabric, update: JsonObject) -> Price:
    """Return the price of the network of a fabric that is built with other settings."""
    if fabric.spec.network is None:
        return None, "several sites: not priced"
    try:
        return own(_built(fabric, update)).network_usd, ""
    except SynclineError as error:
        return None, f"not priced: {error.message}"


def _built(fabric: Fabric, update: JsonObject) -> Fabric:
    """Return the fabric with other settings of its network, at every site."""
    spec = fabric.spec
    if spec.network is not None:
        return build(spec.model_copy(update={"network": spec.network.model_copy(update=update)}))
    sites = tuple(site.model_copy(update={"network": site.network.model_copy(update=update)}) for site in spec.sites)
    return build(spec.model_copy(update={"sites": sites}))
