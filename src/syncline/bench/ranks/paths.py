"""What lies between ranks: the links their flows cross, by routing or as stated, and how much to send over them."""

from __future__ import annotations

import json
from pathlib import Path

from syncline.bench.incidence import Crossings
from syncline.bench.pairing import Match
from syncline.bench.ranks.launched import described, flat
from syncline.errors import BenchError, FileError
from syncline.fabric import Fabric
from syncline.program import Placement, place

SMALLEST, LARGEST, SECONDS = 1 << 18, 1 << 26, 0.2


def crossings_of(
    cluster: str | None, placement: str | None, paths: Path | None, num_ranks: int
) -> tuple[Crossings, Placement]:
    """Return which links each pair of ranks crosses, and where the ranks are."""
    fabric = flat(num_ranks) if cluster is None else described(cluster)
    name = placement or ("spread" if num_ranks <= fabric.num_hosts else "packed")
    placed = place(name, fabric, num_ranks)
    known = _known_paths(paths, fabric, placed) if paths else None
    return Crossings(fabric, placed.device.tolist(), known), placed


def _known_paths(path: Path, fabric: Fabric, placed: Placement) -> dict[tuple[int, int], list[int]]:
    """Return the links of each pair of ranks, from rows that name hosts and links (by number or name)."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        rows = rows["paths"] if isinstance(rows, dict) else rows
        table = {(str(row["from"]), str(row["to"])): row["links"] for row in reversed(rows)}
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"this is not a table of paths: {error!r:.80}.", where=str(path),
                         hint='Rows: {"from": "host-0", "to": "host-1", "links": [3, 8]}.') from None  # fmt: skip
    names = names_of(placed)
    number = {fabric.link_name(link): link for link in range(len(fabric.links))}
    found = {}
    for a, src in enumerate(names):
        for b, dst in enumerate(names):
            if (src, dst) in table:
                found[a, b] = [number.get(str(link), link) for link in table[src, dst]]
    bad = next((link for row in found.values() for link in row if not _is_link(link, fabric)), None)
    if bad is not None or not found:
        what = f'"{bad}" is no link of {fabric.name}' if found else f"no pair of hosts of {fabric.name} is in it"
        raise BenchError(f"{what}.", where=str(path))
    return found


def _is_link(link: object, fabric: Fabric) -> bool:
    return isinstance(link, int) and 0 <= link < len(fabric.links)


def flow_bytes(crossings: Crossings, placed: Placement) -> int:
    """Return a size that takes a fifth of a second at the rate of the first host's slowest link."""
    rate = float(crossings.line_Bps([Match(0, placed.num_ranks - 1)])[0])
    return int(min(max(rate * SECONDS, SMALLEST), LARGEST))


def lanes(placed: Placement) -> list[list[int]]:
    """Return the ranks of each host, in the order of its rails."""
    hosts: dict[int, list[int]] = {}
    for rank, host in enumerate(placed.host.tolist()):
        hosts.setdefault(host, []).append(rank)
    return list(hosts.values())


def names_of(placed: Placement) -> list[str]:
    """Return the host of each rank by name, with the rank where a host has several."""
    names = [placed.fabric.host_names[host] for host in placed.host.tolist()]
    return [name if names.count(name) == 1 else f"{name} rank {rank}" for rank, name in enumerate(names)]
