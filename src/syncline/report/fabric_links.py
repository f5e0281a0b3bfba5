"""Links of a fabric as rows: by tier and medium, or of one device."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.table import Table

from syncline import units
from syncline.fabric import Fabric, Tier


def tiers(fabric: Fabric) -> list[dict[str, Any]]:
    """Return one row per tier, medium and rate, with how many directed links it has."""
    links = fabric.links
    keys = np.stack((links.tier.astype(np.float64), links.medium.astype(np.float64), links.rate_Bps))
    kinds, first, which, counts = np.unique(keys, axis=1, return_index=True, return_inverse=True, return_counts=True)
    up = np.bincount(which.ravel(), weights=links.up, minlength=len(counts))
    return [
        {
            "link": f"{Tier(int(tier)).label}, e.g. {fabric.link_name(int(example))}",
            "medium": fabric.media[int(medium)],
            "rate_Bps": float(rate),
            "latency_s": float(links.latency_s[example]),
            "count": int(count),
            "up": int(alive),
        }
        for (tier, medium, rate), example, count, alive in zip(kinds.T, first, counts, up, strict=True)
    ]


def links_of(fabric: Fabric, device: int) -> list[dict[str, Any]]:
    """Return one row per link that leaves a device."""
    links = fabric.links
    return [
        {
            "link": fabric.link_name(int(i)),
            "medium": fabric.media[links.medium[i]],
            "rate_Bps": float(links.rate_Bps[i]),
            "latency_s": float(links.latency_s[i]),
            "count": 1,
            "up": int(links.up[i]),
        }
        for i in fabric.out_links(device)
    ]


def links_table(rows: list[dict[str, Any]]) -> Table:
    """Return link rows as a table."""
    table = Table(box=None, pad_edge=False)
    for heading in ("link", "medium", "rate", "latency", "count", "up"):
        table.add_column(heading, justify="left" if heading in ("link", "medium") else "right", overflow="fold")
    for row in rows:
        table.add_row(
            row["link"],
            row["medium"],
            units.show_rate(row["rate_Bps"]),
            units.show_time(row["latency_s"]),
            f"{row['count']:,}",
            f"{row['up']:,}",
        )
    return table
