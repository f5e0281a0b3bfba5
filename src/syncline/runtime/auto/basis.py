"""What a choice follows from: every rank's link, processors, codecs and work, gathered and put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

import torch

from syncline.program.choice import ChoiceBasis, CodecPrice
from syncline.program.overlap import Work
from syncline.runtime.alive.agreement import exchange_json
from syncline.runtime.auto.probe import add_s, host, prices, probe_link
from syncline.runtime.wire.links import GroupLinks

GUESSED_BUCKET = 25 << 18


def gathered_costs(names: list[str], shapes: Sequence[tuple[int, ...]], links: GroupLinks) -> dict[str, Any]:
    """Return this rank's numbers, gathered so that every rank works with the same ones."""
    link = probe_link(links.team)
    found = [asdict(price) for price in prices(names, shapes, links.device)]
    own = {**link, **host(), "add_s": add_s(), "prices": found}
    rows = exchange_json(own, links.team)
    return {**rows[0], "rate_Bps": min(row["rate_Bps"] for row in rows), "cores": _cores(rows)}


def basis_of(rows: list[dict[str, Any]], work: Work, num_ranks: int, piece_bytes: int) -> ChoiceBasis:
    """Return the numbers of all ranks as one."""
    first = rows[0]
    return ChoiceBasis(
        num_ranks,
        min(row["rate_Bps"] for row in rows),
        max(row["latency_s"] for row in rows),
        first["cores"],
        fmean(row["byte_s"] for row in rows),
        fmean(row["message_s"] for row in rows),
        fmean(row["add_s"] for row in rows),
        work,
        tuple(CodecPrice(**price) for price in first["prices"]),
        piece_bytes,
    )


def guessed_work(shapes: Sequence[tuple[int, ...]]) -> Work:
    """Return what is known of a step before the first: its gradients, in buckets as DDP makes them."""
    total = sum(torch.Size(shape).numel() for shape in shapes)
    num = max(1, round(total / GUESSED_BUCKET))
    return Work(0.0, (0.0,) * num, (total // num,) * num, 0.0)


def _cores(rows: list[dict[str, Any]]) -> float:
    """Return the processors of all ranks together, as if every host gave its ranks what the scarcest gives."""
    hosts = [row["host"] for row in rows]
    return min(float(row["cores"]) / hosts.count(row["host"]) for row in rows) * len(rows)
