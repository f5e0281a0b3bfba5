"""What changes of the hardware cost: the same fabric built otherwise, or as many GPUs in other hosts."""

from __future__ import annotations

from syncline.describe.plain import JsonObject
from syncline.errors import SynclineError
from syncline.fabric.build import build
from syncline.fabric.catalog import HostModel, load_catalog
from syncline.fabric.fabric import Fabric
from syncline.planning.cost.owning import Owning, own

Price = tuple[float | None, str]


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
    spec = fabric.spec
    if spec.network is None:
        return None, "several sites: not priced"
    try:
        renewed = build(spec.model_copy(update={"network": spec.network.model_copy(update=update)}))
        return own(renewed).network_usd, ""
    except SynclineError as error:
        return None, f"not priced: {error.message}"
