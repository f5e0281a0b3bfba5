"""Options that the lab's commands share, and how they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

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
    list[str] | None, typer.Option("--set", help="A knob of the profile: --set mtu_bytes=1500. See the guide.")
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
    import dataclasses

    from syncline.describe.document import read_document
    from syncline.errors import UsageError
    from syncline.lab.profile import DEFAULT

    known = {field.name: field.type for field in dataclasses.fields(DEFAULT)}
    values: dict[str, Any] = {}
    for knob in knobs:
        name, equals, text = knob.partition("=")
        if not equals or name.strip() not in known:
            raise UsageError(f'--set "{knob}" sets no knob.', hint=f"Write NAME=VALUE; knobs: {', '.join(known)}.")
        value = read_document(text, "--set").data if text.strip() else ""
        kind = str(known[name.strip()])
        wanted = (str,) if "str" in kind or "Literal" in kind else (bool,) if kind == "bool" else (int, float)
        if "None" in kind:
            wanted = (*wanted, type(None))
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            raise UsageError(f'--set "{knob}": {name.strip()} is {kind}.', hint=f"See {cite('lab')}.")
        values[name.strip()] = value
    return dataclasses.replace(DEFAULT, **values)


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
