"""Links of a fabric as rows: by tier and medium, or of one device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rich.table import Table

from syncline.describe import units
from syncline.fabric import Fabric, Tier


@dataclass(frozen=True)
class LinkRow:
    """Directed links that are alike: the first of them, and how many there are and are up."""

    tier: str
    link: str
    medium: str
    rate_Bps: float
    latency_s: float
    count: int
    up: int


def tiers(fabric: Fabric) -> list[LinkRow]:
    """Return one row per tier, medium and rate: how many directed links it has, and the first of them."""
    links = fabric.links
    rates, rate_index = np.unique(links.rate_Bps, return_inverse=True)
    key = (links.tier.astype(np.int64) * len(fabric.media) + links.medium) * len(rates) + rate_index.ravel()
    _, first, which, counts = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    up = np.bincount(which.ravel(), weights=links.up, minlength=len(counts))
    return [
        LinkRow(
            tier=Tier(int(links.tier[i])).label,
            link=fabric.link_name(int(i)),
            medium=fabric.media[links.medium[i]],
            rate_Bps=float(links.rate_Bps[i]),
            latency_s=float(links.latency_s[i]),
            count=int(count),
            up=int(alive),
        )
        for i, count, alive in zip(first, counts, up, strict=True)
    ]


def links_of(fabric: Fabric, device: int) -> list[LinkRow]:
    """Return one row per link that leaves a device."""
    links = fabric.links
    return [
        LinkRow(
            tier=Tier(int(links.tier[i])).label,
            link=fabric.link_name(int(i)),
            medium=fabric.media[links.medium[i]],
            rate_Bps=float(links.rate_Bps[i]),
            latency_s=float(links.latency_s[i]),
            count=1,
            up=int(links.up[i]),
        )
        for i in fabric.out_links(device)
    ]


def links_table(rows: list[LinkRow]) -> Table:
    """Return link rows as a table."""
    table = Table(box=None, pad_edge=False)
    for heading in ("tier", "link", "medium", "rate", "latency", "count", "up"):
        table.add_column(heading, justify="left" if heading in ("tier", "link", "medium") else "right", overflow="fold")
    for row in rows:
        table.add_row(
            row.tier,
            row.link if row.count == 1 else f"{row.link} and {row.count - 1:,} more",
            row.medium,
            units.show_rate(row.rate_Bps),
            units.show_time(row.latency_s),
            f"{row.count:,}",
            f"{row.up:,}",
        )
    return table
