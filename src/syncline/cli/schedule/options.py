"""The options that say which schedule is meant, stated once for all commands of `syncline schedule` that take them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from syncline.errors import UsageError

if TYPE_CHECKING:
    from syncline.fabric import Fabric
    from syncline.schedule import Options, Schedule

DEFAULT_RANKS = 8


def families_beginning(text: str) -> list[str]:
    """Return the names of families for shell completion."""
    from syncline.schedule import FAMILIES

    return [name for name in FAMILIES if name.startswith(text)]


What = Annotated[
    str,
    typer.Argument(
        metavar="FAMILY|FILE", help="A family (see list), or a .json or .xml file.", autocompletion=families_beginning
    ),
]


@dataclass(frozen=True)
class ScheduleRequest:
    """What a command line says about a schedule; a field that has its default was not asked for."""

    ranks: Annotated[int | None, typer.Option("--ranks", "-n", help="Number of ranks.")] = None
    collective: Annotated[str | None, typer.Option("--collective", "-c", help="all_reduce, all_gather, ...")] = None
    root: Annotated[int, typer.Option(help="Root of a broadcast, reduce, scatter, gather or send.")] = 0
    peer: Annotated[int, typer.Option(help="Who receives a send_recv.")] = -1
    channels: Annotated[int, typer.Option(help="Equal strands side by side.")] = 1
    directions: Annotated[int, typer.Option(help="Directions of a ring: 1 or 2.")] = 1
    chunks: Annotated[int, typer.Option(help="Chunks in a pipeline (0: the family's own).")] = 0
    shape: Annotated[str, typer.Option(help="Grid or levels from the outside in: 64x8, 4x4x4.")] = ""
    hosts: Annotated[int, typer.Option(help="Hosts, with --per-host: short for --shape HxP.")] = 0
    per_host: Annotated[int, typer.Option("--per-host", help="Ranks a host.")] = 0
    levels: Annotated[str, typer.Option(help="Family of each level, outside first: ring,direct.")] = ""
    servers: Annotated[int, typer.Option(help="Parameter servers.")] = 1
    colocated: Annotated[bool, typer.Option("--colocated", help="Servers live with the first workers.")] = False
    radix: Annotated[int, typer.Option(help="Children of a reducing switch.")] = 32
    rates: Annotated[str, typer.Option(help="Rates of rails to stripe over: 100Gbps,400Gbps.")] = ""
    speeds: Annotated[str, typer.Option(help="Speed of each rank, for balanced: 100Gbps,400Gbps.")] = ""

    def options(self, fabric: Fabric | None = None) -> Options:
        """Return the options of a family; without a number of ranks, one for each GPU of the fabric."""
        from syncline.schedule import Options
        from syncline.schedule.collective import read_kind

        grid, speeds = self._grid(), _rates(self.speeds)
        otherwise = len(speeds) or (fabric.num_gpus if fabric else DEFAULT_RANKS)
        return Options(
            self.ranks if self.ranks is not None else prod(grid) if grid else otherwise,
            read_kind(self.collective) if self.collective else None,
            root=self.root,
            peer=self.peer,
            channels=self.channels,
            directions=self.directions,
            chunks=self.chunks,
            shape=grid,
            levels=tuple(part.strip() for part in self.levels.split(",")) if self.levels else (),
            servers=self.servers,
            colocated=self.colocated,
            radix=self.radix,
            rates_Bps=_rates(self.rates),
            speeds_Bps=speeds,
        )

    def schedule(self, what: str, fabric: Fabric | None = None) -> tuple[Schedule, Options]:
        """Return the schedule of a family or file, and the options used.

        A fabric fills in what was not asked for: a rank for each GPU, and the grid its hosts suggest.
        """
        from syncline.schedule.cost import fitted
        from syncline.schedule.family.families import find
        from syncline.schedule.formats.files import is_file, read

        options = self.options(fabric)
        if is_file(what):
            self._refuse_for_a_file(what)
            return read(Path(what)), options
        family = find(what)
        family.refuse_unused(options)
        if fabric is not None:
            options = fitted(options, what, fabric)
        return family.make(options), options

    def _grid(self) -> tuple[int, ...]:
        if not (self.hosts or self.per_host):
            return _numbers(self.shape)
        if not (self.hosts and self.per_host) or self.shape:
            raise UsageError(
                "--hosts and --per-host go together, and not with --shape.", hint="Write --hosts 64 --per-host 8."
            )
        return (self.hosts, self.per_host)

    def _refuse_for_a_file(self, what: str) -> None:
        given = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        if given:
            raise UsageError(
                f"--{given[0].replace('_', '-')} shapes a family; {what} is a file that says all.",
                hint="Leave it out, or name a family instead of the file.",
            )


def asks(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option for each field of `Asked`, in place of its parameter `asked`."""
    hints = get_type_hints(ScheduleRequest, include_extras=True)
    names = [field.name for field in fields(ScheduleRequest)]
    parameters = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if parameter.name != "asked":
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        parameters += [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
            )
            for field in fields(ScheduleRequest)
        ]

    @functools.wraps(command)
    def asking(**given: Any) -> None:
        command(asked=ScheduleRequest(**{name: given.pop(name) for name in names}), **given)

    asking.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    asking.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return asking


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.lower().split("x")) if text else ()
    except ValueError:
        raise UsageError(f'cannot read the shape "{text}".', hint='Write it as "64x8".') from None


def _rates(text: str) -> tuple[float, ...]:
    from syncline.describe import units

    return tuple(units.rate(part.strip()) for part in text.split(",")) if text else ()
