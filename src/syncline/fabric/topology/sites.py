"""Several sites joined by a WAN: each site is a cluster of its own, with a border router per site."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from syncline.describe.quantity import Rate, Seconds, Strict
from syncline.fabric.draft import Draft
from syncline.fabric.wiring import IntArray, Tier


class Wan(Strict):
    """The lines between sites: `rate` and one-way `latency` of each, joined as a mesh, ring or star."""

    rate: Rate = Field(gt=0)
    latency: Seconds = 0.01
    pattern: Literal["mesh", "ring", "star"] = "mesh"
    lines: int = Field(default=1, ge=1, le=1024)
    """Parallel lines between two joined sites."""
    price_per_month_usd: float = Field(default=0.0, ge=0)
    """Rent of one line; reported apart, as rent is not a purchase."""


def join_sites(draft: Draft, wan: Wan, names: list[str], tops: list[IntArray]) -> None:
    """Give each site a border router above its top switches and lay the lines between them."""
    borders = []
    for site, (name, top) in enumerate(zip(names, tops, strict=True)):
        (border,) = draft.add_switches([f"{name}/border"], "border router", level=4, site=site)
        # The router is never the limit: every top switch reaches it at the rate of all lines together.
        draft.join(
            top,
            np.full(len(top), border),
            medium="border",
            tier=Tier.WAN,
            rate_Bps=wan.rate * wan.lines * max(1, len(names) - 1),
            latency_s=1e-6,
        )
        borders.append(int(border))
    for a, b in site_pairs(len(names), wan.pattern):
        for _ in range(wan.lines):
            draft.join(borders[a], borders[b], medium="WAN", tier=Tier.WAN, rate_Bps=wan.rate, latency_s=wan.latency)
    num_lines = len(site_pairs(len(names), wan.pattern)) * wan.lines
    draft.facts["wan_lines"] = num_lines
    draft.facts["wan_usd_per_month"] = wan.price_per_month_usd * num_lines


def site_pairs(count: int, pattern: str) -> list[tuple[int, int]]:
    """Return which sites a line joins."""
    if pattern == "star":
        return [(0, b) for b in range(1, count)]
    if pattern == "ring":
        return sorted({(min(a, (a + 1) % count), max(a, (a + 1) % count)) for a in range(count) if count > 1})
    return [(a, b) for a in range(count) for b in range(a + 1, count)]
