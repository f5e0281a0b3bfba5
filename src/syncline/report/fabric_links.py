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
    return [_row(fabric, *numbers) for numbers in zip(first.tolist(), counts.tolist(), up.tolist(), strict=True)]


def links_of(fabric: Fabric, device: int) -> list[LinkRow]:
    """Return one row per link that leaves a device."""
    return [_row(fabric, link, 1, fabric.links.up[link]) for link in fabric.out_links(device).tolist()]


def _row(fabric: Fabric, link: int, count: int, up: float) -> LinkRow:
    links = fabric.links
    return LinkRow(
        tier=Tier(int(links.tier[link])).label,
        link=fabric.link_name(link),
        medium=fabric.media[links.medium[link]],
        rate_Bps=float(links.rate_Bps[link]),
        latency_s=float(links.latency_s[link]),
        count=count,
        up=int(up),
    )


def links_table(rows: list[LinkRow]) -> Table:
    """Return link rows as a table."""
    table = Table(box=None, pad_edge=False)
    for heading in ("tier", "link", "medium"):
        table.add_column(heading, overflow="fold")
    for heading in ("rate", "latency", "count", "up"):
        table.add_column(heading, justify="right", overflow="fold")
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
