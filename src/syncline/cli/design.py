"""`syncline design`: the fabric for a job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli.shell.output import JsonOption, examples, progress, tell

EPILOG = examples(
    "syncline design llama3-70b --gpus 1024",
    "syncline design llama3-70b --budget 40M --link NDR --link 400GbE --html design.html",
    "syncline design llama3-70b gpt3-175b --weight 3 --weight 1 --gpus 2048 --state design.json",
    "syncline design llama3-70b --gpus 1024 --days 60 --tokens 1T --out cluster.yaml",
    "syncline design llama3-70b --gpus 1024 --later 8192 --storage",
    "syncline design llama3-70b --gpus 1024 --by 2027-06",
    "syncline design llama3-70b --budget 400M --on ray --state design.json",
    "syncline design llama3-8b --gpus 256 --sites 2 --wan 400Gbps,6ms",
)
app = typer.Typer()


@app.command(epilog=EPILOG)
def design(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB", help="Jobs by name or file.")],
    gpus: Annotated[int | None, typer.Option(help="How many GPUs.")] = None,
    budget: Annotated[str | None, typer.Option(help="Dollars for hosts and network: 40M.")] = None,
    power: Annotated[float | None, typer.Option(help="Most power, in kW, at full load.")] = None,
    racks: Annotated[int | None, typer.Option(help="Most racks.")] = None,
    days: Annotated[float | None, typer.Option(help="Most days for --tokens.")] = None,
    tokens: Annotated[str | None, typer.Option(help="What must be trained: 15T.")] = None,
    survive: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Least share of the training that remains after a failed switch.")
    ] = 0.5,
    host: Annotated[list[str] | None, typer.Option(help="Host models to look at. [dgx-h100]")] = None,
    link: Annotated[
        list[str] | None, typer.Option(help="Links to look at; default: all the host's cards have.")
    ] = None,
    weight: Annotated[list[float] | None, typer.Option(help="Weight of each job, in their order.")] = None,
    state: Annotated[Path | None, typer.Option(help="Keep what was planned here, and go on from it.")] = None,
    checked: Annotated[int, typer.Option(min=0, max=50, help="How many points are executed at flow level.")] = 2,
    later: Annotated[
        list[int] | None, typer.Option(help="GPUs to which it shall grow without recabling; again for each step.")
    ] = None,
    by: Annotated[
        str, typer.Option(metavar="MONTH", help="Look at parts that can be bought by then too, as 2027-06.")
    ] = "",
    storage: Annotated[
        bool, typer.Option("--storage", help="Size storage and a front end beside it; simulate a converged network.")
    ] = False,
    sites: Annotated[int, typer.Option(min=1, max=16, help="Cut the hosts into this many sites.")] = 1,
    wan: Annotated[str, typer.Option(metavar="RATE,LATENCY", help="With --sites: the line between two.")] = "",
    out_file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the best fabric as a cluster file.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with the front.")] = None,
    on: Annotated[str | None, typer.Option(help='"ray" spreads the search over a Ray cluster.')] = None,
    json: JsonOption = False,
) -> None:
    """Search fabrics for jobs: topology, oversubscription, cards, links, switches, copper or optics, planes."""
    from syncline.describe.document import Document
    from syncline.describe.files import check_writable
    from syncline.fabric import save
    from syncline.fabric.load import parse_cluster
    from syncline.questions.cost import read_number
    from syncline.questions.design import DEFAULT_HOST
    from syncline.questions.design import design as ask

    for path in (html, out_file, state):
        if path is not None:
            check_writable(path)
    with progress() as bar:
        task = bar.add_task("fabrics", total=None)
        answer = ask(
            list(jobs), gpus=gpus, budget=None if budget is None else read_number("--budget", budget),
            power_w=None if power is None else power * 1e3, racks=racks, days=days, survive=survive,
            tokens=None if tokens is None else read_number("--tokens", tokens), hosts=tuple(host or (DEFAULT_HOST,)),
            links=tuple(link or ()), weights=tuple(weight or ()), state=state, checked=checked,
            later=later, storage=storage, sites=sites, wan=wan, by=by, on=on,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )  # fmt: skip
    if out_file is not None:
        save(parse_cluster(Document(answer.cluster(), {}, "design")), out_file)
    if html is not None:
        answer.page(html)
    tell(answer, json, out_file, html, state)
