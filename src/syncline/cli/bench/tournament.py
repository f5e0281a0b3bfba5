"""`syncline bench tournament`: which host, link, leaf or spine is slow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.bench.options import Backend, Check, Cluster, Deadline, Local, PlacementName
from syncline.cli.bench.start import launched, start_here, teller
from syncline.cli.shell.output import JsonOption, emit
from syncline.describe.plain import JsonObject

if TYPE_CHECKING:
    from syncline.bench.incidence import Crossings
    from syncline.fabric import Fabric
    from syncline.finding import Finding
    from syncline.program import Placement

FlowSize = Annotated[str | None, typer.Option("--size", help="Bytes of one flow (default: 0.2 s worth).")]
FlowRepeats = Annotated[int, typer.Option("--repeats", "-n", min=1, help="Repetitions of a flow; the best counts.")]
MaxRounds = Annotated[int, typer.Option(min=0, help="At most this many rounds (default: every pair both ways).")]
NoSecond = Annotated[bool, typer.Option("--one-pass", help="Do not test suspects again, alone, against good hosts.")]
PathFile = Annotated[
    Path | None, typer.Option("--paths", help='Known paths: JSON rows of {"from", "to", "links"}, as a lab prints.')
]
Anyway = Annotated[
    bool, typer.Option("--anyway", help="Play without asking first whether packets of full size arrive.")
]
SMALLEST, LARGEST, SECONDS = 1 << 18, 1 << 26, 0.2


def tournament(
    context: typer.Context,
    cluster: Cluster = None,
    size: FlowSize = None,
    repeats: FlowRepeats = 3,
    max_rounds: MaxRounds = 0,
    one_pass: NoSecond = False,
    paths: PathFile = None,
    anyway: Anyway = False,
    backend: Backend = None,
    deadline: Deadline = 60.0,
    local: Local = None,
    placement: PlacementName = None,
    check: Check = False,
    json: JsonOption = False,
) -> None:
    """Test every pair of hosts, and pin slow results on a host's TX or RX, a link, a leaf or a spine."""
    start_here(context, local)
    from syncline.bench.tournament import run
    from syncline.bench.tournament_finding import findings
    from syncline.cli.bench.probe import packet_findings, work_findings
    from syncline.describe import units
    from syncline.finding import worst
    from syncline.report.text.check.bench import finding_lines
    from syncline.report.text.check.tournament import tournament_lines
    from syncline.runtime.execute.pairs import PairTest
    from syncline.runtime.group import Group, meet

    launch = launched()
    crossings, placed = _crossings(cluster, placement, paths, launch.num_ranks)
    names, first, store = _names(placed), launch.rank == 0, meet(launch)
    found = [] if anyway else packet_findings(store, launch.rank, names, crossings.leaf)
    if found is None:
        return
    if found:
        _refuse(found, {"cluster": cluster, "hosts": names}, check, json)
        return
    with Group.join(launch, backend=backend or Group.usual_backend(), store=store) as group:
        slow = work_findings(group, names)
        flow_bytes = units.size(size) if size else _flow_bytes(crossings, placed)
        test = PairTest(group, flow_bytes, repeats=repeats, deadline_s=deadline)
        result = run(crossings, test.play, lanes=_lanes(placed), max_rounds=max_rounds, second_pass=not one_pass,
                     tell=teller(group)).judged(crossings, test.resent, test.seconds)  # fmt: skip
        live = group.texts(os.uname().nodename)
    if not first:
        return
    if cluster is None:
        result = result.relative()
    found = [*findings(result, names), *slow]
    payload: JsonObject = {"cluster": cluster, "hosts": names, "live_hosts": live, "flow_bytes": flow_bytes}
    payload |= result.to_json(names) | {"findings": [finding.to_json() for finding in found]}

    def text(console: Any) -> None:
        for line in (*tournament_lines(result, names), ""):
            console.print(line, soft_wrap=True)
        for line in finding_lines(found) or ["nothing is slow beyond the noise, and no part loses packets"]:
            console.print(line, soft_wrap=True)

    emit(payload, json, text)
    if check:
        raise typer.Exit(int(worst(found)))


def _refuse(found: list[Finding], payload: JsonObject, check: bool, json: bool) -> None:
    """Say what must be mended before flows can be measured."""
    from syncline.finding import worst
    from syncline.report.text.check.bench import finding_lines

    said = "no flow was played: mend this first (--anyway plays all the same)"
    payload |= {"matches": [], "not_played": said, "findings": [finding.to_json() for finding in found]}
    emit(payload, json, lambda console: console.print("\n".join((*finding_lines(found), said)), soft_wrap=True))
    if check:
        raise typer.Exit(int(worst(found)))


def _crossings(
    cluster: str | None, placement: str | None, paths: Path | None, num_ranks: int
) -> tuple[Crossings, Placement]:
    from syncline.bench.incidence import Crossings
    from syncline.cli.bench.start import described, flat
    from syncline.program import place

    fabric = flat(num_ranks) if cluster is None else described(cluster)
    name = placement or ("spread" if num_ranks <= fabric.num_hosts else "packed")
    placed = place(name, fabric, num_ranks)
    known = _known_paths(paths, fabric, placed) if paths else None
    return Crossings(fabric, placed.device.tolist(), known), placed


def _known_paths(path: Path, fabric: Fabric, placed: Placement) -> dict[tuple[int, int], list[int]]:
    """Return the links of each pair of ranks, from rows that name hosts and links (by number or name)."""
    import json

    from syncline.errors import BenchError, FileError

    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        rows = rows["paths"] if isinstance(rows, dict) else rows
        table = {(str(row["from"]), str(row["to"])): row["links"] for row in reversed(rows)}
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"this is not a table of paths: {error!r:.80}.", where=str(path),
                         hint='Rows: {"from": "host-0", "to": "host-1", "links": [3, 8]}.') from None  # fmt: skip
    names = _names(placed)
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


def _flow_bytes(crossings: Crossings, placed: Placement) -> int:
    """Return a size that takes a fifth of a second at the rate of the first host's slowest link."""
    from syncline.bench.pairing import Match

    rate = float(crossings.line_Bps([Match(0, placed.num_ranks - 1)])[0])
    return int(min(max(rate * SECONDS, SMALLEST), LARGEST))


def _lanes(placed: Placement) -> list[list[int]]:
    """Return the ranks of each host, in the order of its rails."""
    hosts: dict[int, list[int]] = {}
    for rank, host in enumerate(placed.host.tolist()):
        hosts.setdefault(host, []).append(rank)
    return list(hosts.values())


def _names(placed: Placement) -> list[str]:
    """Return the host of each rank by name, with the rank where a host has several."""
    names = [placed.fabric.host_names[host] for host in placed.host.tolist()]
    return [name if names.count(name) == 1 else f"{name} rank {rank}" for rank, name in enumerate(names)]
