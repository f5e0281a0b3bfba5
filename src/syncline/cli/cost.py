"""`syncline cost`: what a cluster costs, owned and rented, and what a job on it costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.output import JsonOption, emit, examples

if TYPE_CHECKING:
    from rich.console import Console

    from syncline.plan.cost import Run, Statement

app = typer.Typer()


@app.callback(
    invoke_without_command=True,
    # A group stops reading options at its first argument unless told otherwise.
    context_settings={"allow_interspersed_args": True},
    subcommand_metavar="",
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
    from syncline.fabric import load
    from syncline.plan.cost import load_assumptions, load_prices, load_reliability, statement

    options = {
        "years": years,
        "utilisation": utilisation,
        "power_usd_per_kWh": power_price,
        "pue": pue,
        "financing_rate": financing,
        "cloud": cloud,
        "region": region,
        "commitment_discount": discount,
    }
    given = _set(set_ or []) | {key: value for key, value in options.items() if value is not None}
    assumed, origin = load_assumptions(assumptions, given)
    account = statement(
        load(cluster),
        assumed,
        prices=load_prices(prices),
        reliability=load_reliability(reliability),
        origin=origin,
        run=_run(step_time, tokens_per_step, steps),
        budget_usd=_number("--budget", budget) if budget is not None else None,
        upgrade=_upgrade(upgrade_price, upgrade_step_time),
    )
    emit(account.to_json(), json, lambda console: _show(console, account, sources))


def _show(console: Console, account: Statement, sources: bool) -> None:
    from syncline.report import cost_text

    def lines(texts: list[str]) -> None:
        console.print("\n".join(texts), soft_wrap=True)

    lines([*cost_text.headline(account), ""])
    console.print(cost_text.comparison_table(account))
    console.print()
    console.print(cost_text.money_table(account))
    lines(["", *cost_text.failure_lines(account), *cost_text.run_lines(account)])
    if sources:
        console.print()
        console.print(cost_text.assumption_table(account))
    else:
        lines(cost_text.assumption_lines(account))


def _run(step_time: str | None, tokens_per_step: str | None, steps: str | None) -> Run | None:
    from syncline import units
    from syncline.errors import UsageError
    from syncline.plan.cost import Run

    if step_time is None:
        for name, given in (("--tokens-per-step", tokens_per_step), ("--steps", steps)):
            if given is not None:
                raise UsageError(f"{name} needs the time of a step.", hint="Add --step-time 2.1s, say.")
        return None
    tokens = _number("--tokens-per-step", tokens_per_step) if tokens_per_step is not None else None
    num_steps = int(_number("--steps", steps)) if steps is not None else None
    return Run(units.time(step_time), tokens, num_steps)


def _upgrade(price: str | None, step_time: str | None) -> tuple[float, float] | None:
    from syncline import units
    from syncline.errors import UsageError

    if price is None and step_time is None:
        return None
    if price is None or step_time is None:
        raise UsageError("--upgrade-price and --upgrade-step-time go together.", hint="Give both.")
    return _number("--upgrade-price", price), units.time(step_time)


def _number(option: str, text: str) -> float:
    """Read 250000, 4M, 2.5B or $500k."""
    from syncline.errors import UsageError

    factors = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
    digits = text.replace("_", "").replace(",", "").replace("$", "").strip()
    factor = factors.get(digits[-1:], 1.0)
    try:
        value = float(digits[:-1] if factor != 1.0 else digits) * factor
    except ValueError:
        raise UsageError(f'{option} "{text}" is not a number.', hint="Write it as 250000, 4M or 500k.") from None
    if not 0 <= abs(value) < 1e30:
        raise UsageError(f"{option} {text} is out of range.", hint="Write a finite number.")
    return value


def _set(pairs: list[str]) -> dict[str, Any]:
    from syncline.errors import UsageError
    from syncline.fabric.document import read_document

    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UsageError(f'--set "{pair}" has no value.', hint="Write --set hosts_per_fte=100.")
        values[name.strip()] = read_document(value, "--set").data
    return values
