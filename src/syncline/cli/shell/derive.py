"""Commands derived from questions: types, defaults and help stand once, in the question's signature.

A keyword-only argument is an option, one that may be given by position is an argument; what a command can write stands
with the answer (`Answer.outputs`). A module of questions says which commands it has:

    COMMANDS = {"": place}                          # `syncline place`
    COMMANDS = {"best": plan, "compare": compare}   # `syncline plan best`, `syncline plan compare`
    UNNAMED = "best"                                # `syncline plan` is `syncline plan best`
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from syncline.cli.shell.output import JSON_HELP, err, examples, progress, tell
from syncline.describe.files import check_folder, check_writable, make_folder
from syncline.errors import UsageError
from syncline.questions.answer import Answer, OptionGroup, Output, Parameter, SaidElsewhere

RARE = "Rarely needed"
rare = partial(typer.Option, rich_help_panel=RARE)
"""An option of a command written by hand that one in a hundred needs; the command's class lists panels apart."""
Question = Callable[..., Answer]


@cache
def app_of(module: ModuleType) -> typer.Typer:
    """Return the Typer app of a module of questions: its one command, or several, of which the first may be unnamed."""
    commands: Mapping[str, Question] = module.COMMANDS
    if list(commands) == [""]:
        app = typer.Typer()
        app.command(**_described(commands[""]))(command(commands[""]))
        return app
    unnamed = getattr(module, "UNNAMED", "")
    app = typer.Typer(help=module.HELP, epilog=examples(*getattr(module, "EXAMPLES", ())), cls=_with_default(unnamed))
    for name, each in commands.items():
        app.command(name, **_described(each))(command(each))
    return app


def command(question: Question) -> Callable[..., None]:
    """Return the function that Typer turns into the command of a question."""
    shape = _Shape.of(question)

    def run(**given: Any) -> None:
        as_json = given.pop("json")
        paths = {key: path for key in shape.outputs if (path := given.pop(key)) is not None}
        for key, path in paths.items():
            if (needed := shape.outputs[key].needs) and given[needed] is None:
                raise UsageError(
                    shape.spelt(f"--{key.replace('_', '-')} needs `{needed}`."), hint=shape.parameter[needed].help
                )
            shape.outputs[key].check(path)
            (check_folder if shape.outputs[key].folder else check_writable)(path)
        given |= {shape.outputs[key].sets: True for key in paths if shape.outputs[key].sets}
        answer = _ask(question, shape, given)
        elsewhere = isinstance(answer, SaidElsewhere)
        written = [] if elsewhere else [path for key, target in paths.items() for path in _write(answer, key, target)]
        if not elsewhere:
            tell(answer, as_json, *written)
        if answer.exit_status:
            raise typer.Exit(answer.exit_status)

    run.__signature__ = inspect.Signature([*shape.parameters(), *shape.output_options()])  # type: ignore[attr-defined]
    run.__doc__ = getattr(_bare(question), "manual", "") or shape.spelt(_prose(_bare(question).__doc__ or ""))
    return run


@dataclass(frozen=True)
class _Shape:
    """What the signature of a question says about its command."""

    arguments: dict[str, inspect.Parameter]
    parameter: dict[str, Parameter]
    groups: dict[str, tuple[type, tuple[str, ...]]]
    """Argument -> the dataclass that it is, and those of its fields that are options."""
    outputs: dict[str, Output]
    listens: frozenset[str]
    """Which of `progress`, `tell` and `warn` the question takes: what it says while it works."""

    @classmethod
    def of(cls, question: Question) -> _Shape:
        bare = _bare(question)
        hints = typing.get_type_hints(bare, include_extras=True)
        bound = question.keywords if isinstance(question, partial) else {}
        arguments: dict[str, inspect.Parameter] = {}
        described: dict[str, Parameter] = {}
        groups: dict[str, tuple[type, tuple[str, ...]]] = {}
        for name, each in inspect.signature(bare).parameters.items():
            if name in bound:
                continue
            if isinstance(mark := _mark(hints[name]), Parameter):
                arguments[name], described[name] = each.replace(annotation=hints[name]), mark
            elif isinstance(mark, OptionGroup):
                inner = typing.get_type_hints(mark.kind, include_extras=True)
                chosen = [field for field in fields(mark.kind) if field.name in (mark.only or inner)]
                groups[name] = mark.kind, tuple(field.name for field in chosen)
                for field in chosen:
                    kind, default = inspect.Parameter.KEYWORD_ONLY, field.default
                    hint = inner[field.name]
                    arguments[field.name] = inspect.Parameter(field.name, kind, annotation=hint, default=default)
                    described[field.name] = _mark(hint)
        answers = [kind for kind in _union(hints["return"]) if isinstance(kind, type) and issubclass(kind, Answer)]
        outputs = {key: output for kind in answers for key, output in kind.outputs.items()}
        return cls(arguments, described, groups, outputs, frozenset(hints) & {"progress", "tell", "warn"})

    def spelt(self, text: str) -> str:
        """Return a text of the library in which `arguments` are options."""
        names = {
            f"`{name}`": self._names(name)[0].partition("/")[0] for name in self.arguments if self._is_option(name)
        }
        return re.sub("|".join(map(re.escape, names)) or "(?!)", lambda found: names[found.group()], text)

    def _is_option(self, name: str) -> bool:
        return self.arguments[name].kind is inspect.Parameter.KEYWORD_ONLY or bool(self.parameter[name].names)

    def _names(self, name: str) -> tuple[str, ...]:
        return self.parameter[name].names or (f"--{name.rstrip('_').replace('_', '-')}",)

    def parameters(self) -> Iterator[inspect.Parameter]:
        for name, each in self.arguments.items():
            about = self.parameter[name]
            kind = about.kind or _kind(each.annotation)
            optional = each.default is None or each.default == () or (each.default is not each.empty and about.read)
            default = None if optional else each.default
            if kind == Path and isinstance(default, str):
                default = Path(default)
            about = replace(about, help=self.spelt(about.help))
            info = _info(about, name, self._names(name) if self._is_option(name) else ())
            wide = kind | None if default is None and optional else kind
            yield inspect.Parameter(name, each.KEYWORD_ONLY, annotation=Annotated[wide, info], default=default)

    def output_options(self) -> Iterator[inspect.Parameter]:
        for key, output in self.outputs.items():
            names = output.names or (f"--{key.replace('_', '-')}",)
            info = typer.Option(*names, metavar="DIR" if output.folder else "FILE", help=output.help)
            yield inspect.Parameter(
                key, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[Path | None, info], default=None
            )
        info = typer.Option("--json", help=JSON_HELP)
        yield inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[bool, info], default=False)


class Panels:
    """Lists the options of each panel apart, those that one in a hundred needs last."""

    params: list[Any]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str | None, list[Any]] = {None: []}
        for each in self.params:
            panels.setdefault(getattr(each, "rich_help_panel", None), []).append(each)
        everything, self.params = self.params, panels.pop(None)
        try:
            super().format_options(ctx, formatter)  # type: ignore[misc]
        finally:
            self.params = everything
        for name in sorted(panels, key=lambda panel: panel == RARE):
            if rows := [row for each in panels[name] if (row := each.get_help_record(ctx)) is not None]:
                with formatter.section(name):
                    formatter.write_dl(rows)


class GroupedCommand(Panels, TyperCommand):
    """A command whose manual lists options by panel."""


class GroupedVerbs(Panels, TyperGroup):
    """A group of commands whose manual lists options by panel."""


def _with_default(default: str) -> type[TyperGroup]:
    class Group(TyperGroup):
        """A group of commands of which one need not be named."""

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            if default and args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
                args = [default, *args]
            return super().parse_args(ctx, args)

    return Group


def _described(question: Question) -> dict[str, Any]:
    bare = _bare(question)
    bound = question.keywords.values() if isinstance(question, partial) else ()
    lines = [line.format(*bound) for line in getattr(bare, "examples", ())]
    text = getattr(bare, "manual", "") or bare.__doc__ or ""
    short = getattr(bare, "line", "").format(*bound) or text.strip().partition("\n")[0]
    return {"epilog": examples(*lines), "cls": GroupedCommand, "short_help": short}


def _ask(question: Question, shape: _Shape, given: Mapping[str, Any]) -> Answer:
    values = {}
    for name, value in given.items():
        read = shape.parameter[name].read if name in shape.parameter else None
        values[name] = read(value) if read is not None else tuple(value) if isinstance(value, list) else value
        if (
            values[name] is None
            and name in shape.arguments
            and shape.arguments[name].default is not inspect.Parameter.empty
        ):
            values[name] = shape.arguments[name].default
    for name, (kind, names) in shape.groups.items():
        values[name] = kind(**{each: values.pop(each) for each in names})
    spoken = {"tell": _note, "warn": lambda text: err().print(text, soft_wrap=True)}
    values |= {name: spoken[name] for name in shape.listens & spoken.keys()}
    try:
        if "progress" not in shape.listens:
            return question(**values)
        with _bar(_bare(question).__name__) as bar:
            return question(**values, progress=bar)
    except UsageError as error:
        raise _with_dashes(error, shape) from None


def _note(text: str) -> None:
    """Show what is being done, at a terminal and nowhere else."""
    console = err()
    if console.is_terminal:
        console.print(text, style="dim", soft_wrap=True)


@contextmanager
def _bar(words: str) -> Iterator[Callable[[int, int], None]]:
    if not err().is_terminal:  # the display itself is a tenth of a second to load
        yield lambda done, total: None
        return
    with progress() as shown:
        task = shown.add_task(words, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def _with_dashes(error: UsageError, shape: _Shape) -> UsageError:
    """Return an error of the library whose `arguments` are spelt as options."""
    message, detail, hint = (shape.spelt(part) for part in (error.message, error.detail, error.hint))
    return type(error)(message, where=error.where, detail=detail, hint=hint)


def _write(answer: Answer, key: str, target: Path) -> Iterable[Path]:
    output = answer.outputs.get(key)
    if output is None:
        others = ", ".join(f"--{name.replace('_', '-')}" for name in answer.outputs) or "none of its kind"
        raise UsageError(f"--{key} cannot be written of this answer.", hint=f"It can write: {others}.")
    if output.folder:
        make_folder(target)
    found = output.write(answer, target)
    return found if isinstance(found, (list, tuple)) else [target]


def _info(about: Parameter, name: str, options: tuple[str, ...]) -> Any:
    shared: Any = {"help": about.help, "autocompletion": about.complete, "min": about.min, "max": about.max}
    if not options:
        return typer.Argument(metavar=about.metavar or name.upper(), **shared)
    return typer.Option(*options, metavar=about.metavar, rich_help_panel=RARE if about.rare else None, **shared)


def _kind(hint: Any) -> Any:
    """Return the type at the command line: text before paths, a list for a sequence, without None."""
    kinds = [kind for kind in _union(hint) if kind is not NoneType]
    if len(kinds) == 1:
        (kind,) = kinds
        if typing.get_origin(kind) is typing.Literal:
            return str
        if typing.get_origin(kind) in (tuple, list, Sequence):
            return list[typing.get_args(kind)[0]]  # type: ignore[misc]
        return kind
    if Path in kinds and not any(kind in kinds for kind in (int, float)):
        return Path if set(kinds) <= {Path, str} else str
    return str


def _union(hint: Any) -> tuple[Any, ...]:
    while typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    if typing.get_origin(hint) in (typing.Union, UnionType):
        return tuple(each for part in typing.get_args(hint) for each in _union(part))
    return (hint,)


def _mark(hint: Any) -> Any:
    return next(
        (mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, (Parameter, OptionGroup))), None
    )


def _bare(question: Question) -> Any:
    return question.func if isinstance(question, partial) else question


def _prose(text: str) -> str:
    """Return a docstring without its examples."""
    return inspect.cleandoc(text).partition(">>> ")[0].rstrip()
