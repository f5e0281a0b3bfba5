"""What a faster network costs more than the one there is: the same fabric built with the next link."""

from __future__ import annotations

from syncline.errors import SynclineError
from syncline.fabric.build import build
from syncline.fabric.fabric import Fabric
from syncline.plan.cost import own


def upgrade_price(fabric: Fabric, link: str) -> tuple[float | None, str]:
    """Return the price of new switches, optics and cables for a link, network cards not counted; None: not known."""
    spec = fabric.spec
    if spec.network is None:
        return None, "several sites: not priced"
    network = spec.network.model_copy(update={"link": link, "switch": None, "uplink": None})
    try:
        renewed = build(spec.model_copy(update={"network": network}))
        price = own(renewed).network_usd
    except SynclineError as error:
        return None, f"not priced: {error.message}"
    return price, "price of switches, optics and cables; network cards come on top"
