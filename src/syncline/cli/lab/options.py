"""Options that the lab's commands share, and how they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.describe.guide import cite

if TYPE_CHECKING:
    from rich.progress import Progress

    from syncline.fault.fault import Fault
    from syncline.lab.blueprint import Blueprint
    from syncline.lab.profile import Profile

ScaleOption = Annotated[
    str | None,
    typer.Option(help="Factor for all rates: 1, 0.01 or 1/400. [the largest that keeps all hosts below 2 Gb/s]"),
]
ClusterArgument = Annotated[str, typer.Argument(metavar="CLUSTER", help="A preset's name or a cluster file.")]
HostsOption = Annotated[str | None, typer.Option(help="Only this many hosts, or these: 4, or host-00,host-05. [all]")]
KnobOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the profile: --set mtu_bytes=1500 (`syncline guide lab`)."),
]
LabOption = Annotated[str | None, typer.Option(help="Which running lab (see `lab list`). [the only one]")]


def drawn(cluster: str, scale: str | None, hosts: str | None, knobs: list[str]) -> Blueprint:
    """Return the blueprint that the options ask for."""
    from syncline.fabric import load
    from syncline.lab.drafting import draft

    chosen: int | list[str] | None = None
    if hosts is not None:
        chosen = int(hosts) if hosts.isdecimal() else [name.strip() for name in hosts.split(",") if name.strip()]
    return draft(load(cluster), scale=read_scale(scale), profile=read_profile(knobs), hosts=chosen)


def read_scale(text: str | None) -> float | None:
    """Read 1, 0.01 or 1/400."""
    from syncline.errors import UsageError

    if text is None:
        return None
    above, slash, below = text.partition("/")
    try:
        return float(above) / (float(below) if slash else 1.0)
    except (ValueError, ZeroDivisionError):
        raise UsageError(f'--scale "{text}" is not a factor.', hint="Write 1, 0.01 or 1/400.") from None


def read_profile(knobs: list[str]) -> Profile:
    """Read `mtu_bytes=1500` and the like into a profile."""
    from dataclasses import asdict

    from pydantic import TypeAdapter, ValidationError

    from syncline.describe.mistakes import mistake
    from syncline.errors import UsageError
    from syncline.lab.profile import DEFAULT, Profile
    from syncline.questions.inputs import read_set

    values = read_set(knobs)
    known = asdict(DEFAULT)
    if unknown := [name for name in values if name not in known]:
        raise UsageError(f"--set: the profile has no {unknown[0]}.", hint=f"It has {', '.join(known)}.")
    try:
        return TypeAdapter(Profile).validate_python(known | values)
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"--set {first['loc'][0]}: {mistake(first)}.", hint=f"See {cite('lab')}.") from None


def read_faults(texts: list[str], blueprint: Blueprint) -> tuple[Fault, ...]:
    """Read faults and see that what they name is there, before anything is built."""
    from syncline.fault.fault import parse_faults
    from syncline.lab.trouble import trouble

    faults = parse_faults(texts)
    for fault in faults:
        trouble(blueprint, fault)
    return faults


def share_of_progress(bar: Progress, words: str) -> Callable[[int, int], None]:
    """Return a callback that moves a progress bar."""
    task = bar.add_task(words, total=None)

    def move(done: int, total: int) -> None:
        bar.update(task, completed=min(done, total), total=total)

    return move
