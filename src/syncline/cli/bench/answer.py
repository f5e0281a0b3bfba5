"""What `syncline bench` answers: the document, the table, findings and their price, the exit status."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import typer

from syncline.cli.shell.output import emit
from syncline.describe.plain import JsonObject, plain

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from syncline.bench.attribute import Suspect
    from syncline.bench.price import Loss
    from syncline.bench.verdict import Judgement
    from syncline.finding import Finding


def answer_of(
    rows: list[Judgement], unpredicted: dict[str, str], cluster: str | None, num_ranks: int, library: str
) -> JsonObject:
    """Return the document of nccl-tests -J with what syncline adds."""
    from syncline.bench.nccl_json import document
    from syncline.version import __version__

    told = document(rows, [], f"syncline {__version__}")
    return told | {"cluster": cluster, "ranks": num_ranks, "library": library, "unpredicted": unpredicted}


def finish(
    payload: JsonObject,
    rows: list[Judgement],
    cluster: str | None,
    num_ranks: int,
    cost: bool,
    exposed: float,
    gpu_hour: float | None,
    check: bool,
    json: bool,
    extra: list[Finding] | None = None,
    blamed: dict[str, tuple[Suspect, ...]] | None = None,
    html: Path | None = None,
) -> None:
    """Print the answer: rows, findings, cost; with `check`, end with the status of the worst finding."""
    from syncline.bench.price import loss
    from syncline.bench.verdict import findings, priced
    from syncline.finding import worst
    from syncline.report.text.check.bench import finding_lines, headline, loss_lines, sweep_lines

    found = [*findings(rows, blamed), *(extra or [])]
    lost: Loss | None = None
    if cost:
        price, source = _price(cluster, gpu_hour)
        lost = loss(rows, num_ranks, exposed, price, source)
        payload["cost"] = lost.to_json() if lost else None
        found = priced(found, lost.usd_per_day) if lost and lost.usd_per_day is not None else found
    payload["findings"] = [finding.to_json() for finding in found]

    told = [*finding_lines(found), *(loss_lines(lost) if cost else [])]
    lines = [*headline(found), *_head_lines(plain(payload)), *sweep_lines(rows), *told]
    if html is not None:
        from syncline.describe.files import write_text
        from syncline.report.page.findings import findings_page

        write_text(html, findings_page(f"Bench of {num_ranks} ranks", lines, found, rows))
        payload["html"] = str(html)

    def text(console: Any) -> None:
        for line in lines:
            console.print(line, soft_wrap=True)
        if "trace" in payload:
            console.print(f"wrote {payload['trace']}", soft_wrap=True)

    emit(payload, json, text)
    if check:
        raise typer.Exit(int(worst(found)))


def _head_lines(payload: Mapping[str, Any]) -> list[str]:
    hosts = payload.get("hosts") or 0
    where = f" on {payload['cluster']}" if payload["cluster"] else ""
    on = f", {hosts} host{'s' if hosts != 1 else ''}" if hosts else ""
    lines = [f"# {payload['args'][0].removesuffix('_perf')}{where}: {payload['ranks']} ranks{on}, {payload['library']}"]
    lines += [f"# {note}" for note in payload.get("notes", [])]
    unsaid = [f"# not judged ({name}): {why}" for name, why in payload["unpredicted"].items()]
    return [*unsaid, *lines]


def _price(cluster: str | None, gpu_hour: float | None) -> tuple[float | None, str]:
    """Return dollars a GPU-hour: as given, or what the cheapest cloud asks for this cluster's GPUs."""
    from syncline.errors import UsageError
    from syncline.fabric import load
    from syncline.planning.cost.prices import load_prices
    from syncline.planning.cost.renting import gpu_models, rent

    if gpu_hour is not None:
        if not 0 < gpu_hour < inf:
            raise UsageError(f"a GPU-hour cannot cost {gpu_hour:g} dollars.", hint="Write --gpu-hour 2.5, say.")
        return gpu_hour, "as given"
    if cluster is None:
        return None, "no cluster and no --gpu-hour was given"
    fabric = load(cluster)
    quotes = rent(gpu_models(fabric), load_prices())
    if not quotes:
        return None, f"no cloud rents {' and '.join(gpu_models(fabric))}; give --gpu-hour"
    return quotes[0].usd_per_gpu_hour, quotes[0].label
