"""Links of a fabric as rows: by tier and medium, or of one device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.fabric.fabric import Fabric, Tier


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


def links_by_tier(fabric: Fabric) -> list[LinkRow]:
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
