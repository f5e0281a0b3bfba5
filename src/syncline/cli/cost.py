"""`syncline cost`: what a cluster costs, owned and rented, and what a job on it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli.shell.output import JsonOption, emit, examples
from syncline.describe.plain import JsonObject

app = typer.Typer()


@app.command(
    epilog=examples(
        "syncline cost h100-64-rail",
        "syncline cost cluster.yaml --years 3 --utilisation 0.5 --cloud aws",
        "syncline cost h100-64-rail --step-time 2.1s --tokens-per-step 4M --steps 250000 --json",
        "syncline cost h100-64-rail --step-time 2.1s --upgrade-price 500k --upgrade-step-time 1.9s",
        "syncline cost cluster.yaml --assumptions ours.yaml --prices ours.csv --set hosts_per_fte=100",
    ),
)
def cost(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="A preset's name or a cluster file.")],
    years: Annotated[float | None, typer.Option(help="Years the cluster is kept. [4]")] = None,
    utilisation: Annotated[float | None, typer.Option(help="Share of hours in which it is used. [0.7]")] = None,
    power_price: Annotated[float | None, typer.Option(help="Dollars per kWh. [0.08]")] = None,
    pue: Annotated[float | None, typer.Option(help="Power of the hall over power of the hosts. [1.25]")] = None,
    financing: Annotated[float | None, typer.Option(help="Interest a year on the capital. [0]")] = None,
    cloud: Annotated[str | None, typer.Option(help="Only this cloud: aws, azure, gcp, oci, lambda, nebius.")] = None,
    gpu_hour: Annotated[
        float | None, typer.Option(help="Dollars you pay for a rented GPU-hour, instead of a cloud's.")
    ] = None,
    region: Annotated[str | None, typer.Option(help="Only prices of this region.")] = None,
    discount: Annotated[
        float | None, typer.Option(help="Discount for a commitment; every hour is then paid, used or not. [0]")
    ] = None,
    step_time: Annotated[str | None, typer.Option(help="Time of a training step: 2.1s.")] = None,
    tokens_per_step: Annotated[str | None, typer.Option(help="Tokens a step trains on: 4M.")] = None,
    steps: Annotated[str | None, typer.Option(help="Steps of the run: 250000.")] = None,
    budget: Annotated[str | None, typer.Option(help="Dollars to spend: 2M. Says what they buy.")] = None,
    upgrade_price: Annotated[str | None, typer.Option(help="What an upgrade costs: 500k.")] = None,
    upgrade_step_time: Annotated[str | None, typer.Option(help="The step time after it: 1.9s.")] = None,
    assumptions: Annotated[Path | None, typer.Option(help="YAML with any assumption by name.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="One assumption: --set hosts_per_fte=100.")] = None,
    prices: Annotated[Path | None, typer.Option(help="CSV of prices instead of those that ship.")] = None,
    reliability: Annotated[Path | None, typer.Option(help="CSV of failures instead of those that ship.")] = None,
    sources: Annotated[bool, typer.Option("--sources", help="List every assumption with its source.")] = False,
    json: JsonOption = False,
) -> None:
    """Say what a cluster costs.

    A GPU-hour owned against rented, where the money goes, where owning breaks even, what failures cost, and with
    --step-time what steps, tokens and runs cost. Every number follows from the bill of the cluster, dated prices and
    assumptions that are shown and can be changed.
    """
    from syncline.questions.cost import cost as ask
    from syncline.report.text.cost import show_cost

    options = {
        "years": years,
        "utilisation": utilisation,
        "power_usd_per_kWh": power_price,
        "pue": pue,
        "financing_rate": financing,
        "cloud": cloud,
        "gpu_hour_usd": gpu_hour,
        "region": region,
        "commitment_discount": discount,
    }
    given = read_set(set_ or []) | {key: value for key, value in options.items() if value is not None}
    answer = ask(
        cluster, step_time=step_time, tokens_per_step=tokens_per_step, steps=steps, budget=budget,
        upgrade_price=upgrade_price, upgrade_step_time=upgrade_step_time, assumptions=assumptions, assume=given,
        prices=prices, reliability=reliability,
    )  # fmt: skip
    emit(answer.to_json(), json, lambda console: show_cost(console, answer.statement, sources))


def read_set(pairs: list[str]) -> JsonObject:
    """Read NAME=VALUE pairs, each value as YAML."""
    from syncline.describe.document import read_document
    from syncline.errors import UsageError

    values: JsonObject = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UsageError(f'--set "{pair}" has no value.', hint="Write --set hosts_per_fte=100.")
        values[name.strip()] = read_document(value, "--set").data
    return values
