"""`syncline validate`: predictions against published measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.output import JsonOption, emit, examples

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(rich_markup_mode=None)
VERDICTS = ("reproduced", "conditional", "refuted", "not here")

DataOption = Annotated[
    Path | None, typer.Option("--data", help="CSV of measured rows; default: the published rows that ship.")
]
SystemsOption = Annotated[
    Path | None, typer.Option("--systems", help="YAML that maps the system column to cluster descriptions.")
]


@app.callback()
def _group() -> None:
    """Compare predictions with published measurements."""


@app.command(
    epilog=examples(
        "syncline validate collectives",
        "syncline validate collectives --data mine.csv --systems mine.yaml --json",
    )
)
def collectives(data: DataOption = None, systems: SystemsOption = None, json: JsonOption = False) -> None:
    """Predict every row of a nccl-tests results file and print the errors by system and size band.

    Errors are |predicted time / measured time - 1| as median / 90th percentile, in percent, of jobs up to 64 hosts:
    plain, after calibration on six sizes, by interpolation of the same six, and with the system left out of the fit.
    """
    from syncline.sim.validate import validate_collectives

    payload = validate_collectives(data, systems).to_json()
    emit(payload, json, lambda console: _show(console, payload))


@app.command(
    epilog=examples(
        "syncline validate training",
        "syncline validate training --data mine.csv --systems mine.yaml --json",
    )
)
def training(data: DataOption = None, systems: SystemsOption = None, json: JsonOption = False) -> None:
    """Predict every row of a file of published training runs and print the errors by source.

    Metrics are converted to step times by each source's own FLOP convention. Errors are |predicted / measured - 1|
    over distinct runs; beside them the error of each source when it is left out of the fit, of scaling ratios inside a
    series, and the rank correlation inside sweeps. Rows that cannot be modelled are listed with the reason.
    """
    from syncline.report.training_text import training_lines
    from syncline.sim.training import validate_training

    payload = validate_training(data, systems).to_json()
    emit(payload, json, lambda console: console.print("\n".join(training_lines(payload)), soft_wrap=True))


@app.command(
    epilog=examples(
        "syncline validate claims",
        "syncline validate claims volume C51",
        "syncline validate claims --data mine.yaml --json",
    )
)
def claims(
    only: Annotated[list[str] | None, typer.Argument(metavar="[CLAIM|AREA]...", help="C01, fabric, ...")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="YAML of claims (docs/guides/claims.md).")] = None,
    json: JsonOption = False,
) -> None:
    """Check published claims about networks for training by running the commands that compute them.

    Reproduced: every case gives what is stated; refuted: none does; conditional: some do, and the cases say which.
    """
    from syncline.cli.claims import judge, load_claims

    verdicts = [verdict.to_json() for verdict in judge(load_claims(data), only or ())]
    counted = {word: sum(verdict["verdict"] == word for verdict in verdicts) for word in VERDICTS}
    emit(
        {"claims": verdicts, "counted": counted},
        json,
        lambda console: console.print("\n".join(_claim_lines(verdicts, counted)), soft_wrap=True, highlight=False),
    )


def _claim_lines(verdicts: list[dict[str, Any]], counted: dict[str, int]) -> list[str]:
    from syncline.report.claim_text import claim_lines

    lines = [line for verdict in verdicts for line in claim_lines(verdict)]
    return [*lines, "", ", ".join(f"{count} {word}" for word, count in counted.items() if count)]


def _show(console: Console, payload: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(title=f"Errors in %, {payload['source']}", title_justify="left", box=None, padding=(0, 1))
    table.add_column("system", no_wrap=True, max_width=26)
    for name in ("rows", "used", "all", "XS", "S", "M", "L", "six sizes", "interp.", "left out"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, row in {"overall": payload["overall"], **payload["systems"]}.items():
        bands = [_percent(row["by_band"][band]) for band in ("XS", "S", "M", "L")]
        others = [_percent(row[key]) for key in ("calibrated", "interpolated", "left_out")]
        table.add_row(name, str(row["rows"]), str(row["modelled"]), _percent(row), *bands, *others)
    console.print(table)
    console.print(payload["bands"] + ". Each cell: median / 90th percentile.")
    far = payload["overall"]["beyond_64_hosts"]
    if far["scored"]:
        held = f"the interval holds {far['coverage']:.0%} of them"
        console.print(f"Beyond 64 hosts ({far['scored']} rows): {_percent(far)} %; {held}.")
    for item in payload["unmodelled"]:
        console.print(f"not modelled: {item['rows']} rows of {item['system'][:60]}: {item['reason']}")


def _percent(row: dict[str, Any]) -> str:
    if row["median_error"] is None:
        return "-"
    return f"{100 * row['median_error']:.1f}/{100 * row['p90_error']:.0f}"
