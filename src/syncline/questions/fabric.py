"""What is a cluster: how much of what, how it is joined, and what it costs to buy?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from syncline.describe.plain import JsonObject
from syncline.fabric import Fabric
from syncline.fabric.assumed import assumed_of, assumed_of_network
from syncline.fabric.inventory import Inventory
from syncline.fabric.inventory import inventory as count
from syncline.questions.answer import Answer, Output, page_output
from syncline.questions.cluster import Cluster, built
from syncline.sim.transport import AUTO, message_lines, transport_on


@dataclass(frozen=True, eq=False)
class InventoryAnswer(Answer):
    """Counts, bisection, oversubscription, price and power of a cluster; its page is its picture."""

    schema_name: ClassVar[str] = "fabric-show"
    outputs: ClassVar[Mapping[str, Output]] = {**page_output("Write an interactive page with the picture.")}

    fabric: Fabric = field(repr=False)
    inventory: Inventory = field(repr=False)

    @property
    def assumed(self) -> tuple[str, ...]:
        """What the description leaves open and was filled in, in words."""
        spec = self.fabric.spec
        return (
            *assumed_of(spec),
            *assumed_of_network(spec),
            *message_lines(self.fabric, transport_on(AUTO, self.fabric)),
        )

    def to_json(self) -> JsonObject:
        return {**self.inventory.to_json(), "assumed": list(self.assumed)}


def inventory(cluster: Cluster) -> InventoryAnswer:
    """Count, measure and price a cluster.

    >>> inventory("h100-64-rail").inventory.num_gpus
    512
    """
    fabric = built(cluster)
    return InventoryAnswer(fabric, count(fabric))
