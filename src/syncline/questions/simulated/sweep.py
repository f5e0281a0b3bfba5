"""What every question about collectives takes: cluster, sizes, routing, transport, placement."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from numbers import Real
from typing import Annotated, Any, cast

from syncline.describe import units
from syncline.errors import UsageError
from syncline.fabric import Fabric
from syncline.fabric.assumed import assumed_of
from syncline.fabric.inventory import built_otherwise
from syncline.questions.answer import Parameter
from syncline.sim.slow_port import slow_cables, slow_ports
from syncline.sim.sweep import sizes_between
from syncline.sim.transport import message_lines, rails_apart

Sizes = str | int | Sequence[int]

SizeOption = Annotated[Sizes, Parameter("One size, or a range that doubles: 1KiB..16GiB.", names=("--size",), kind=str)]
ChunksOption = Annotated[
    int, Parameter("Chunks that follow each other through the rounds (0: as suits the size).", rare=True)
]
RoutingOption = Annotated[
    str,
    Parameter(
        "auto: as cluster file and transport have it; ecmp, adaptive, spray, static; packets: flowlet; "
        "dragonflies: ugal, valiant"
    ),
]
TransportOption = Annotated[
    str, Parameter("auto: what the links carry; rdma, efa, tcp, ideal; packet level: dcqcn, ndp ...")
]
PlacementOption = Annotated[str, Parameter("packed, spread, rail-aware, grid (torus), or auto: grid, else packed.")]
RanksOption = Annotated[int | None, Parameter("Number of ranks (default: every GPU).", names=("--ranks", "-n"))]
SeedOption = Annotated[int, Parameter("Seed of the ECMP hash.", rare=True)]
CrossRailOption = Annotated[str, Parameter("Between rails: fabric (over the spine) or nvlink (PXN).", rare=True)]


def assumptions(fabric: Fabric, transport: str, routing: str = "") -> list[str]:
    """Return what an answer takes for granted: what the cluster's file leaves open, and what messages cost.

    Of cables that cost more than leaving them out it speaks where a routing that spreads evenly is named.
    """
    rails = ["messages change rails over NVLink (PXN): nothing else joins them"] if rails_apart(fabric) else []
    slow, cables = slow_ports(fabric), slow_cables(fabric) if routing in ("ecmp", "spray", "static") else None
    return [
        *assumed_of(fabric.spec),
        *built_otherwise(fabric),
        *rails,
        *message_lines(fabric, transport),
        *([slow.on_the_links()] if slow else []),
        *([cables.words()] if cables else []),
    ]


def read_sizes(size: Sizes) -> list[int]:
    """Read "1KiB..16GiB" as sizes that double, one size, or sizes in bytes (1e6 is one too).

    >>> read_sizes("1KiB..4KiB")
    [1024, 2048, 4096]
    """
    if not isinstance(size, str):
        given: list[Any] = [size] if isinstance(size, Real) else list(cast(Sequence[int], size))  # NumPy's numbers too
        if not given or not all(map(_is_whole, given)):
            raise UsageError(f"{str(size)[:60]} is no size of a buffer.",
                             hint='Give "1GiB", "1KiB..16GiB", or whole numbers of bytes.')  # fmt: skip
        return [int(one) for one in given]
    low, dots, high = size.partition("..")
    return sizes_between(units.size(low), units.size(high)) if dots else [units.size(low)]


def _is_whole(number: Any) -> bool:
    return isinstance(number, Real) and isfinite(number) and number % 1 == 0
