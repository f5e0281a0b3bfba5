"""What a person reads about an argument of a question. It is written once, as `Annotated`; the command derives from it.

    @question("syncline place cluster.yaml job.yaml --hosts 'gpu[003-011]'")
    def place(cluster: ClusterArgument, job: JobArgument, *,
              slack: Annotated[float, Parameter("Loss that is accepted before more hosts move.", min=0, max=1)] = 0.02,
              ) -> PlaceAnswer: ...

An argument that may be given by position is an argument of the command; a keyword-only one is an option. A dataclass of
`Annotated` fields, marked `OptionGroup`, is an option for each field. An argument called `progress` is a progress bar.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Parameter:
    """One argument: its help, and how the command line spells and reads it where that does not follow from its type."""

    help: str
    names: tuple[str, ...] = ()
    """Option names (`("--cluster", "-c")`) where the argument's own with dashes will not do; they make it an option."""
    metavar: str | None = None
    min: float | None = None
    max: float | None = None
    kind: Any = None
    """The type at the command line."""
    read: Callable[[Any], Any] | None = None
    """Turns what the command line gives into the argument."""
    complete: Callable[[str], list[str]] | None = None
    """Returns what the shell may complete a text to."""
    rare: bool = False
    """One in a hundred needs it: the manual lists it apart."""


@dataclass(frozen=True)
class OptionGroup:
    """Marks an argument whose value is a dataclass: each of its fields is an option."""

    kind: type
    only: tuple[str, ...] = ()
    """The fields that this question knows; all of them unless named."""


def question(*examples: str, help: str = "", line: str = "") -> Callable[[Function], Function]:
    """Mark a function as a question whose command shows these examples.

    `help` replaces the docstring as the text of its manual, `line` its first sentence in the list of commands.
    """

    def mark(function: Function) -> Function:
        function.examples, function.manual, function.line = examples, help, line  # type: ignore[attr-defined]
        return function

    return mark
