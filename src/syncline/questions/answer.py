"""A question and its answer.

What a person reads about an argument is written once, as `Annotated`:

    @question("syncline place cluster.yaml job.yaml --hosts 'gpu[003-011]'")
    def place(cluster: ClusterArgument, job: JobArgument, *,
              slack: Annotated[float, Parameter("Loss that is accepted before more hosts move.", min=0, max=1)] = 0.02,
              ) -> PlaceAnswer: ...

An argument that may be given by position is an argument of the command; a keyword-only one is an option. A dataclass of
`Annotated` fields, marked `OptionGroup`, is an option for each field. An argument called `progress` is a progress bar.

An answer is a frozen value; JSON, schema, text and page derive from its fields.

    answer = syncline.simulate("h100-64-rail", "allreduce", "1GiB")
    answer.to_json()       # what `syncline simulate --json` prints
    print(answer)          # what `syncline simulate` prints
    answer.page("a.html")  # what `--html` writes, where the answer has a page

A field is part of the JSON unless its type is `Handle[...]`; a property marked `@reported` is part of it too
(`describe/model.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, get_type_hints

from pydantic import ConfigDict, TypeAdapter

from syncline.describe import rendering
from syncline.describe.files import write_text
from syncline.describe.model import is_handle
from syncline.describe.pdf import browser, write_pdf
from syncline.describe.plain import JsonObject, plain
from syncline.describe.raster import write_png

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


@dataclass(frozen=True)
class Output:
    """A file or folder that a command writes of an answer: `--html page.html`."""

    help: str
    write: Callable[[Any, Path], Iterable[Path] | object]
    """Writes it; returns the files where it writes several."""
    folder: bool = False
    names: tuple[str, ...] = ()
    """Option names, where the key with dashes will not do."""
    sets: str = ""
    """An argument that is true where this is written."""
    needs: str = ""
    """An argument without which there is nothing to write."""
    check: Callable[[Path], object] = lambda path: None
    """Raises where such a file cannot be written: called before the question is asked."""


class Answer:
    """One answer. It prints as its command prints it, and has the JSON that `--json` gives."""

    schema_name: ClassVar[str]
    """What its schema is called: `plan`, `simulate-buffers`."""
    schema_version: ClassVar[int] = 1
    """Counts changes of the JSON that a reader of the old one would stumble over."""
    content: ClassVar[str] = ""
    """The field or property that holds all of the JSON, where it is not the fields of the answer itself."""
    outputs: ClassVar[Mapping[str, Output]] = MappingProxyType({})

    def __init_subclass__(cls) -> None:
        # A dataclass would write out all of its fields, thousands of letters of some.
        cls.__repr__ = cls.__dict__.get("__repr__", Answer.__repr__)  # type: ignore[method-assign]

    @property
    def exit_status(self) -> int:
        """The exit status of the command that prints this answer."""
        return 0

    def to_json(self) -> JsonObject:
        """Return the object that `--json` prints."""
        value = getattr(self, self.content) if self.content else self
        found = _adapter(type(self)).dump_python(value, fallback=plain, warnings=False)
        return {str(key): plain(part) for key, part in found.items()}

    @classmethod
    def schema(cls) -> JsonObject:
        """Return the JSON schema of `to_json()`."""
        return strict_schema(_adapter(cls).json_schema(mode="serialization"), cls.schema_name, cls.schema_version)

    def __str__(self) -> str:
        return rendering.current.text(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {str(self).strip().partition(chr(10))[0]} ...>"

    def _repr_html_(self) -> str:
        return rendering.current.inset(self)

    def html(self) -> str:
        """Return the answer as one self-contained page."""
        return rendering.current.page(self)

    def pictures(self) -> dict[str, str]:
        """Return the pictures of the answer as SVG, by file name; an answer without one has none."""
        return rendering.current.pictures(self)

    def page(self, path: str | Path) -> Path:
        """Write the answer as one self-contained page and return its path."""
        target = Path(path)
        write_text(target, self.html())
        return target

    def __getstate__(self) -> dict[str, object]:
        """Return the fields without handles, which hold engines and caches of this process."""
        kept = [one.name for one in fields(self) if not is_handle(one)]  # type: ignore[arg-type]
        return {name: getattr(self, name) for name in kept}

    def __setstate__(self, state: dict[str, object]) -> None:
        handles = (one.name for one in fields(self) if is_handle(one))  # type: ignore[arg-type]
        self.__dict__.update(dict.fromkeys(handles) | state)

    def __copy__(self) -> Answer:
        return self

    def __deepcopy__(self, memo: object) -> Answer:
        return self


@dataclass(frozen=True)
class SaidElsewhere(Answer):
    """Another process prints the answer: the first of several ranks, or one that was started here."""

    status: int

    @property
    def exit_status(self) -> int:
        return self.status


PDF = Output(
    "Write the report as PDF (needs chromium or Chrome).",
    lambda answer, path: write_pdf(answer.html(), path),
    check=lambda path: browser(),
)


def page_output(help: str) -> dict[str, Output]:
    """Return `--html`, with what stands on the page."""
    return {"html": Output(help, Answer.page)}


def picture_output() -> dict[str, Output]:
    """Return `--svg` and `--png`, of an answer whose `picture` is an SVG."""
    return {
        "svg": Output("Write the picture as SVG.", lambda answer, path: write_text(path, answer.picture)),
        "png": Output(
            "Write the picture as PNG (needs the png extra).", lambda answer, path: write_png(answer.picture, path)
        ),
    }


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Return pydantic's reading of an answer's fields, made once."""
    if kind not in _ADAPTERS:
        target = _content_type(kind) if kind.content else kind
        target.__pydantic_config__ = ConfigDict(arbitrary_types_allowed=True, use_attribute_docstrings=True)
        _ADAPTERS[kind] = TypeAdapter(target)
    return _ADAPTERS[kind]


def _content_type(kind: type[Answer]) -> Any:
    made = vars(kind).get(kind.content)
    if isinstance(made, property):
        return get_type_hints(made.fget, include_extras=True)["return"]
    return get_type_hints(kind, include_extras=True)[kind.content]


SCHEMA_ID = "https://syncline.dev/schemas/{name}-{version}.json"


def strict_schema(found: Any, name: str, version: int) -> JsonObject:
    """Return pydantic's schema with a version and `$id`: every key is there, and no other is allowed."""
    found = _strict(found)
    # The command adds the files it wrote.
    found["properties"].setdefault("written", {"type": "array", "items": {"type": "string"}})
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID.format(name=name, version=version),
        "title": f"syncline {name}",
        "version": version,
    }
    return {**head, **found}


def _strict(part: Any) -> Any:
    """Return a schema whose objects have all of their keys and no others, without titles that repeat the keys."""
    if isinstance(part, list):
        return [_strict(each) for each in part]
    if not isinstance(part, dict):
        return part
    made = {key: _strict(value) for key, value in part.items() if key not in ("title", "default", "readOnly")}
    if isinstance(part.get("properties"), dict) and part.get("type") == "object":
        made["properties"] = {key: _strict(value) for key, value in part["properties"].items()}
        made["required"] = list(part["properties"])
        made["additionalProperties"] = False
    if "$defs" in part:
        made["$defs"] = {key: _strict(value) for key, value in part["$defs"].items()}
    return made
