"""YAML documents that remember their lines, read safely.

`read_document` turns a text into plain data plus a table from key paths to line numbers, so that a rule broken deep
inside a description is reported as `cluster.yaml line 41`. Only plain data comes out: tags, cycles, alias bombs,
duplicate keys, deep nesting and oversized files are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from syncline.describe.guide import cite
from syncline.errors import DescriptionError, FileError

MAX_BYTES = 32 * 2**20
MAX_VALUES = 1_500_000
MAX_DEPTH = 64
_YAML_HINT = f"See {cite('cluster-file')} for examples."

Path_ = tuple[str | int, ...]
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Document:
    """Plain data read from a YAML text, with the line of every key."""

    data: Any
    lines: dict[Path_, int]
    source: str

    def where(self, path: Path_) -> str:
        """Return `file line N` for the deepest known prefix of a key path."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return f"{self.source} line {self.lines[path[:end]]}"
        return self.source


def read_text(path: Path, *, limit: int = MAX_BYTES) -> str:
    """Read a text file, or say in one sentence why it cannot be read."""
    try:
        if path.is_dir():
            raise FileError(f'"{path}" is a directory, not a file.', hint="Name the file inside it.")
        size = path.stat().st_size
        with path.open("rb") as file:
            content = b"" if size > limit else file.read(limit + 1)  # a device or pipe has no size of its own
    except FileNotFoundError:
        raise FileError(f'there is no file "{path}".', hint="Check the name and the folder.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        hint = "Check the name and its permissions."
        raise FileError(f'cannot read "{_short(path)}": {reason}.', hint=hint) from None
    if max(size, len(content)) > limit:
        raise FileError(
            f'"{path}" has {max(size, len(content)) / 2**20:.0f} MiB; a description may have {limit / 2**20:.0f} MiB.',
            hint="Use a builder (network: {topology: ...}) instead of listing every cable.",
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f'"{path}" is not UTF-8 text (byte {error.start}).', hint="Name a text file.") from None


def read_json(text: str, source: str, hint: str = "") -> Any:
    """Return the plain data of a JSON text."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DescriptionError(f"not valid JSON: {error}.", where=source, hint=hint) from None


def _short(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 200 else f"{text[:100]}...{text[-50:]}"


def read_document(text: str, source: str) -> Document:
    """Parse one YAML document into plain data with line numbers."""
    reader = _Reader(source)
    try:
        data = reader.document(yaml.parse(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        line = (error.problem_mark.line + 1) if error.problem_mark else 1
        problem = f"not valid YAML: {error.problem}."
        raise DescriptionError(problem, where=f"{source} line {line}", hint=_YAML_HINT) from None
    except yaml.reader.ReaderError as error:
        raise DescriptionError(f"not valid YAML: {error.reason}.", where=source, hint="Is it a text file?") from None
    except yaml.YAMLError as error:
        raise DescriptionError(f"not valid YAML: {error}.", where=source, hint=_YAML_HINT) from None
    return Document(data, reader.lines, source)


@dataclass
class _Anchor:
    """A value that an alias may repeat; `num_values` is None while it is still being read."""

    value: Any = None
    num_values: int | None = None


class _Reader:
    """Builds plain data from the parser's events, so that nothing is expanded before it has been weighed.

    Composing first would be shorter, but PyYAML's composer recurses in C and dies on deep nesting.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines: dict[Path_, int] = {}
        self._anchors: dict[str, _Anchor] = {}
        self._num_values = 0
        self._scalars = yaml.SafeLoader("")
        self._resolve: Callable[..., str] = self._scalars.resolve
        self._events: Iterator[Any] = iter(())

    def document(self, events: Iterator[Any]) -> Any:
        """Return the data of the only document of a stream."""
        self._events = (e for e in events if not isinstance(e, (yaml.StreamStartEvent, yaml.DocumentEndEvent)))
        if isinstance(next(self._events), yaml.StreamEndEvent):
            raise DescriptionError(
                "the file is empty.", where=self.source, hint="Three lines are enough: hosts, host and network."
            )
        data = self._value(next(self._events), ())
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise self._error("ends here, but a second document follows.", after, "Keep one document in a file.")
        return data

    def _value(self, event: Any, path: Path_) -> Any:
        self.lines.setdefault(path, event.start_mark.line + 1)
        if len(path) > MAX_DEPTH:
            raise self._error(f"is nested more than {MAX_DEPTH} levels deep.", event, "Nothing needs that many.")
        if isinstance(event, yaml.AliasEvent):
            return self._repeat(event)
        self._count(1, event)
        anchor = _Anchor()
        if event.anchor:
            self._anchors[event.anchor] = anchor
        before = self._num_values
        if isinstance(event, yaml.ScalarEvent):
            anchor.value = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            anchor.value = self._sequence(event, path)
        else:
            anchor.value = self._mapping(event, path)
        anchor.num_values = 1 + self._num_values - before
        return anchor.value

    def _repeat(self, event: Any) -> Any:
        anchor = self._anchors.get(event.anchor)
        if anchor is None:
            raise self._error(f'uses the alias "*{event.anchor}", which nothing defines before it.', event)
        if anchor.num_values is None:
            raise self._error(
                "is cyclic: an alias refers to something that contains it.", event, "Write the value out instead."
            )
        self._count(anchor.num_values, event)
        return anchor.value

    def _count(self, num_values: int, event: Any) -> None:
        self._num_values += num_values
        if self._num_values > MAX_VALUES:
            raise self._error(
                f"has more than {MAX_VALUES:,} values (are aliases repeated too often?).", event, "Make it smaller."
            )

    def _sequence(self, start: Any, path: Path_) -> list[Any]:
        self._check_tag(start, "seq")
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event, (*path, len(items))))
        return items

    def _mapping(self, start: Any, path: Path_) -> dict[str, Any]:
        self._check_tag(start, "map")
        result: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event)
            if key in result:
                raise self._error(f'has the key "{key}" twice.', event, "Remove one of them.")
            self.lines[(*path, key)] = event.start_mark.line + 1
            result[key] = self._value(next(self._events), (*path, key))
        return result

    def _key(self, event: Any) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise self._error("has a key that is not plain text.", event, "Keys are words.")
        return str(event.value)

    def _scalar(self, event: Any) -> Any:
        tag = event.tag or self._resolve(yaml.ScalarNode, event.value, event.implicit)
        kind = tag.removeprefix(_TAG)
        if kind not in _READERS:
            raise self._bad_tag(event, tag)
        # YAML 1.1 reads 3:1 as three minutes and a second; a ratio is what people mean.
        if _READERS[kind] is None or (kind in ("int", "float") and ":" in event.value):
            return event.value
        try:
            return _READERS[kind](self._scalars, yaml.ScalarNode(tag, event.value))
        except (yaml.YAMLError, ValueError, KeyError):
            raise self._error(f'has the value "{event.value:.80}", which cannot be read.', event) from None

    def _check_tag(self, event: Any, expected: str) -> None:
        if event.tag not in (None, "!", _TAG + expected):
            raise self._bad_tag(event, event.tag)

    def _bad_tag(self, event: Any, tag: str) -> DescriptionError:
        return self._error(f'has the tag "{tag}"; only plain text and numbers are read.', event, "Remove the tag.")

    def _error(self, text: str, event: Any, hint: str = _YAML_HINT) -> DescriptionError:
        where = f"{self.source} line {event.start_mark.line + 1}"
        return DescriptionError(f"the description {text}", where=where, hint=hint)


_TAG = "tag:yaml.org,2002:"
_READERS: dict[str, Any] = {
    "str": None,
    "timestamp": None,
    "value": None,
    "merge": None,
    "!": None,
    "int": yaml.SafeLoader.construct_yaml_int,
    "float": yaml.SafeLoader.construct_yaml_float,
    "bool": yaml.SafeLoader.construct_yaml_bool,
    "null": yaml.SafeLoader.construct_yaml_null,
}
