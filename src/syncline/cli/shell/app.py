"""The `syncline` command: its verbs, and what happens when one fails.

Exit status: 0 done, 2 the user can put it right (a `SynclineError` or wrong arguments), 1 a bug or a closed pipe,
130 interrupted, 143 terminated (both clean up first); a verb whose statuses are those of a monitoring check (`audit`)
fails with 3. With `--json` among the arguments the error is one JSON object on stdout.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any, NoReturn

import typer
from pydantic_core import ValidationError
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command, get_group

from syncline.cli.shell.manual import plain
from syncline.cli.shell.output import examples, print_json
from syncline.cli.shell.verbs import BY_HAND, EXAMPLES, GROUPS, HELP, RENAMED, VERBS
from syncline.errors import FileError, SynclineError, UsageError
from syncline.version import __version__

_OUTPUT_LOST = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
#: What a name itself is refused for: too long, a loop of links, no permission on the way to it.
_NO_NAME = {errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES}
_OF_WATCH = ("fastapi", "starlette", "uvicorn", "sse_starlette", "prometheus_client", "httpx", "textual")
#: Package -> the extra that brings it; whatever a verb imports and does not find.
EXTRAS = {
    "torch": "torch", "ray": "ray", "pyroute2": "lab", "pynvml": "nvml", "opentelemetry": "otel", "resvg_py": "png",
    "pyarrow": "parquet",
} | dict.fromkeys(_OF_WATCH, "watch")  # fmt: skip
EXIT_OK = 0
EXIT_BUG = 1
EXIT_USER = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class Verbs(Mapping[str, Any]):
    """Verb -> its command, read when it is asked for: `syncline fabric` does not wait for the other twenty."""

    def __getitem__(self, verb: str) -> Any:
        line, name = VERBS[verb], verb.replace("-", "_")
        module = import_module(f"syncline.{'cli' if verb in BY_HAND else 'questions'}.{name}")
        if verb in BY_HAND:
            app = module.app
        else:
            from syncline.cli.shell.derive import app_of

            app = app_of(module)
        # A verb that is of use without a word (`syncline watch`) says so.
        return _command(verb, line, app, getattr(module, "RUNS_BARE", False))

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


class VerbGroup(TyperGroup):
    """The command with its verbs; its manual names them without reading one."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"commands": Verbs()})

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one line for each verb, by what a person wants."""
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(list(verbs.items()))


@cache
def _command(verb: str, line: str, app: typer.Typer, bare: bool) -> Any:
    """Return a verb's command; made once, as reading the types of its options takes longer than many an answer."""
    parent = typer.Typer(add_completion=False, rich_markup_mode=None)
    if app.registered_callback is None and len(app.registered_commands) == 1:  # a verb without commands of its own
        (only,) = app.registered_commands
        only.name, only.short_help, only.no_args_is_help = verb, line, not bare
        parent.registered_commands.append(only)
        parent.callback()(lambda: None)
    else:
        parent.add_typer(app, name=verb, short_help=line, no_args_is_help=not bare)
    return plain(get_group(parent).commands[verb])


def build() -> typer.Typer:
    """Return the whole command with every verb in `VERBS`."""
    app = typer.Typer(
        name="syncline",
        cls=VerbGroup,
        help=HELP,
        epilog=examples(*EXAMPLES),
        no_args_is_help=True,
        # Plain help reads the same in a terminal, a pager and a file, and starts without loading rich.
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_root)
    return app


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit status; errors are reported, never raised."""
    if arguments and arguments[0] in RENAMED:
        new = RENAMED[arguments[0]]
        print(f"`syncline {arguments[0]}` is now `syncline {' '.join(new)}`.", file=sys.stderr)
        arguments = [*new, *arguments[1:]]
    as_json = "--json" in arguments[: arguments.index("--")] if "--" in arguments else "--json" in arguments
    try:
        result = get_command(build()).main(args=arguments or ["--help"], prog_name="syncline", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else EXIT_OK
    except SynclineError as error:
        return _on_error(arguments, _refuse(error, as_json))
    except TyperException as error:
        return _on_error(arguments, _refuse_usage(error, as_json))
    except typer.Abort:
        return _refuse(UsageError("stopped at a question that was not answered."), as_json)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return EXIT_BUG
    except OSError as error:
        if error.errno in _NO_NAME and error.filename is not None:
            name = str(error.filename)
            short = name if len(name) <= 80 else f"{name[:79]}…"
            named = FileError(f'cannot open "{short}": {error.strerror}.', hint="Check the name.")
            return _on_error(arguments, _refuse(named, as_json))
        if error.errno not in _OUTPUT_LOST:
            return _own_up(error, as_json)
        _discard_stdout()
        return _refuse(
            FileError(f"cannot write the answer: {error.strerror}.", hint="Make room, then try again."), False
        )
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        return _on_error(arguments, _own_up(error, as_json) if extra is None else _refuse_bare(error, extra, as_json))
    except Exception as error:
        return _on_error(arguments, _own_up(error, as_json))


def main() -> NoReturn:
    """Run the command line of this process and exit with its status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without the sign for µ gets a ?, not a traceback
    terminated = _interrupt_on_sigterm()
    status = run(sys.argv[1:])
    sys.exit(EXIT_TERMINATED if terminated and status == EXIT_INTERRUPTED else status)


class Termination(KeyboardInterrupt):
    """SIGTERM came.

    A class of its own: Python, started with -m, ends as if by SIGINT where a plain KeyboardInterrupt once passed
    through code that is made from text, as dataclasses are, whoever caught it then.
    """


def _interrupt_on_sigterm() -> list[int]:
    """Let SIGTERM, as supervisors send it, end and clean up whatever Ctrl-C would; return a list that says it came."""
    received: list[int] = []

    def interrupt(number: int, _: object) -> None:
        received.append(number)
        if len(received) == 1:  # a second one must not cut the cleaning up short
            raise Termination

    signal.signal(signal.SIGTERM, interrupt)
    return received


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"syncline {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Hold the options that come before the verb."""


def _on_error(arguments: list[str], status: int) -> int:
    """Return the status of a failed command: its own, or the one of a verb whose statuses mean something else."""
    verb = next((word for word in arguments if not word.startswith("-")), "")
    module = sys.modules.get(f"syncline.cli.{verb.replace('-', '_')}")
    return int(getattr(module, "EXIT_ON_ERROR", status))


def _refuse(error: SynclineError, as_json: bool) -> int:
    if as_json:
        print_json(error.to_json())
    else:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    return EXIT_USER


def _refuse_usage(error: TyperException, as_json: bool) -> int:
    context: Any = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message(), file=sys.stderr)
        return EXIT_USER
    hint = f"Try: {context.command_path if context is not None else 'syncline'} --help"
    return _refuse(UsageError(_in_plain_words(error), hint=hint), as_json)


def _in_plain_words(error: TyperException) -> str:
    """Return what is wrong with an argument; a value of the wrong kind is said as in a description."""
    text = error.format_message()
    if isinstance(error.__cause__, ValidationError):
        from syncline.describe.mistakes import mistake

        return f"{text.partition(': ')[0]}: {mistake(error.__cause__.errors()[0])}."
    return text


def _refuse_bare(error: ModuleNotFoundError, extra: str, as_json: bool) -> int:
    """Say which extra has the package that a verb needs."""
    hint = f'Install it: pip install "syncline[{extra}]"'
    return _refuse(UsageError(f"this needs the package {error.name}, which is not installed.", hint=hint), as_json)


def _own_up(error: Exception, as_json: bool) -> int:
    """Report a bug of syncline's own, with all that a report needs."""
    text = f"{type(error).__name__}: {error}"
    hint = "This is a bug in syncline, not in your input: please report it with the command and the lines above."
    traceback.print_exc(file=sys.stderr)
    print(f"syncline {__version__} stopped on {text}\n  {hint}", file=sys.stderr)
    if as_json:
        print_json({"error": "InternalError", "message": text, "where": "", "detail": "", "hint": hint})
    return EXIT_BUG


def _discard_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not complain about the closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
